// Replays the calls of one file, a table with the columns op, start_s, offset, size and duration_s, by one
// actor: with the files of this plug-in, and with SimGrid's own disk.
// Prints the sums of the costs, in seconds: observed, plug-in, SimGrid.
//
//     simgrid_replay platform.xml PROFILE [direct] [sync] < calls.csv
//
// A call begins as long after the end of the one before as it did when it was recorded.
#include "cawl_simgrid.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

namespace s4u = simgrid::s4u;

namespace {

struct Call {
    std::string op;
    double start_s, duration_s;
    uint64_t offset, size;
};

std::vector<std::string> fields(const std::string &line) {
    std::vector<std::string> found;
    std::stringstream stream(line);
    for (std::string field; std::getline(stream, field, ',');)
        found.push_back(field);
    return found;
}

std::vector<Call> calls(std::istream &input) {
    std::string line;
    std::getline(input, line);
    std::map<std::string, size_t> columns;
    for (const std::string &name : fields(line))
        columns.emplace(name, columns.size());
    std::vector<Call> found;
    while (std::getline(input, line)) {
        auto values = fields(line);
        auto number = [&](const char *column) {
            const std::string &text = values.at(columns.at(column));
            return text.empty() ? 0.0 : std::stod(text);
        };
        // Doubles are exact up to 2^53 bytes.
        found.push_back({values.at(columns.at("op")), number("start_s"), number("duration_s"),
                         static_cast<uint64_t>(number("offset")), static_cast<uint64_t>(number("size"))});
    }
    return found;
}

// Lets the actor make all calls after one another, with the pauses between them; the sum of their costs.
template <class Make> double made(const std::vector<Call> &calls, Make make) {
    double sum_s = 0, ended_s = calls.empty() ? 0 : calls.front().start_s;
    for (const Call &call : calls) {
        if (call.start_s - ended_s >= 1e-9)
            s4u::this_actor::sleep_for(call.start_s - ended_s);
        ended_s = call.start_s + call.duration_s;
        double begun_s = s4u::Engine::get_clock();
        make(call);
        sum_s += s4u::Engine::get_clock() - begun_s;
    }
    return sum_s;
}

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

// A rate of the profile's device: SimGrid's disk has those that were measured, too.
double rate(const char *path, const std::string &section) {
    std::ifstream file(path);
    bool is_there = false;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty() && line[0] == '[')
            is_there = line == section;
        else if (is_there && line.rfind("value = ", 0) == 0)
            return std::stod(line.substr(8));
    }
    throw std::runtime_error(std::string(path) + ": no " + section);
}

} // namespace

int main(int argc, char **argv) try {
    s4u::Engine engine(&argc, argv);
    if (argc < 3)
        throw std::runtime_error("simgrid_replay platform.xml PROFILE [direct] [sync] < calls.csv");
    engine.load_platform(argv[1]);
    uint32_t flags = 0;
    for (int at = 3; at < argc; at++)
        flags |= std::strcmp(argv[at], "direct") == 0 ? CAWL_DIRECT : CAWL_SYNC;
    std::vector<Call> recorded = calls(std::cin);
    s4u::Host *host = engine.host_by_name("node-1");
    s4u::Disk *disk = host->get_disks().front();
    host->set_property("cawl-profile", argv[2]);
    host->set_property("cawl-set", "");
    disk->set_property("cawl-set", "");
    double write = rate(argv[2], "[device.write]"), read = rate(argv[2], "[device.read]");
    disk->set_write_bandwidth(write)->set_read_bandwidth(read)->set_readwrite_bandwidth(std::max(write, read));
    double files_s = 0, disk_s = 0, observed_s = 0;
    s4u::Actor::create("files", host, [&] { files_s = with_files(recorded, disk, flags); });
    s4u::Actor::create("disk", host, [&] { disk_s = with_disk(recorded, disk); });
    engine.run();
    for (const Call &call : recorded)
        observed_s += call.duration_s;
    std::printf("%.6f %.6f %.6f\n", observed_s, files_s, disk_s);
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
