// Replays recorded calls (recorded.hpp) by one actor: with the files of this plug-in, and with SimGrid's own
// disk. Prints the sums of the costs, in seconds: observed, plug-in, SimGrid.
//
//     simgrid_replay platform.xml PROFILE [direct] [sync] [limit=BYTES] < calls.csv
//
// limit: what writers were held below in the beginning, by a kernel whose limit had just been lowered.
#include "cawl_simgrid.hpp"
#include "recorded.hpp"

#include <cstdio>
#include <iostream>

namespace s4u = simgrid::s4u;
using recorded::Call, recorded::made, recorded::rate;

namespace {

double with_files(const std::vector<Call> &calls, s4u::Disk *disk, uint32_t flags) {
    bool is_stream = !calls.empty() && calls.front().op == "fwrite";
    uint32_t how = CAWL_WRITE | CAWL_CREATE | flags | (is_stream ? CAWL_STREAM : CAWL_READ);
    cawl::File file(disk, "/recorded", how);
    return made(calls, [&](const Call &call) {
        if (call.op == "write" || call.op == "pwrite")
            file.pwrite(call.size, call.offset);
        else if (call.op == "fwrite")
            file.write(call.size);
        else if (call.op == "read" || call.op == "pread")
            file.pread(call.size, call.offset);
        else if (call.op == "fsync")
            file.fsync();
        else if (call.op == "fdatasync")
            file.fdatasync();
        else
            throw std::runtime_error("no replay of " + call.op);
    });
}

double with_disk(const std::vector<Call> &calls, const s4u::Disk *disk) {
    return made(calls, [&](const Call &call) {
        if (call.op.find("write") != std::string::npos)
            disk->write(call.size);
        else if (call.op.find("read") != std::string::npos)
            disk->read(call.size);
    });
}

} // namespace

int main(int argc, char **argv) try {
    s4u::Engine engine(&argc, argv);
    if (argc < 3)
        throw std::runtime_error("simgrid_replay platform.xml PROFILE [direct] [sync] [limit=BYTES] < "
                                 "calls.csv");
    engine.load_platform(argv[1]);
    uint32_t flags = 0;
    uint64_t limit = 0;
    for (int at = 3; at < argc; at++) {
        std::string word = argv[at];
        if (word.rfind("limit=", 0) == 0)
            limit = std::stoull(word.substr(6));
        else
            flags |= word == "direct" ? CAWL_DIRECT : CAWL_SYNC;
    }
    std::vector<Call> calls = recorded::calls(std::cin);
    s4u::Host *host = engine.host_by_name("node-1");
    s4u::Disk *disk = host->get_disks().front();
    host->set_property("cawl-profile", argv[2]);
    host->set_property("cawl-set", "");
    disk->set_property("cawl-set", "");
    double write = rate(argv[2], "[device.write]"), read = rate(argv[2], "[device.read]");
    disk->set_write_bandwidth(write)->set_read_bandwidth(read)->set_readwrite_bandwidth(std::max(write, read));
    cawl::PageCache &cache = cawl::PageCache::of(host);
    cawl_levels levels = cache.level();
    if (limit > levels.hard_bytes) {
        cache.set_limits(levels.background_bytes, limit);
        cache.set_limits(levels.background_bytes, levels.hard_bytes);
    }
    double files_s = 0, disk_s = 0, observed_s = 0;
    s4u::Actor::create("files", host, [&] { files_s = with_files(calls, disk, flags); });
    s4u::Actor::create("disk", host, [&] { disk_s = with_disk(calls, disk); });
    engine.run();
    for (const Call &call : calls)
        observed_s += call.duration_s;
    std::printf("%.6f %.6f %.6f\n", observed_s, files_s, disk_s);
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
