// Two nodes write checkpoints to their hard disks, node-1 by two actors, node-2 by one; an analysis on node-1
// reads back what is still cached.
//
//     simgrid_checkpoint platform.xml
#include "cawl_simgrid.hpp"

#include <cstdio>

namespace s4u = simgrid::s4u;

static s4u::Disk *disk(const s4u::Host *host, const std::string &name) {
    for (s4u::Disk *disk : host->get_disks())
        if (disk->get_name() == name)
            return disk;
    throw std::runtime_error("no disk " + name);
}

static void writer(const std::string &on) {
    s4u::Host *host = s4u::this_actor::get_host();
    std::string name = s4u::this_actor::get_name();
    cawl::File file(disk(host, on), "/" + name, CAWL_WRITE | CAWL_CREATE);
    double write_s = 0, paused_s = 0;
    for (int call = 0; call < 320; call++) {
        cawl_cost cost = file.write(1 << 20);
        write_s += cost.cost_ns / 1e9;
        paused_s += cost.parts_ns[CAWL_CAUSE_THROTTLE] / 1e9;
    }
    double fsync_s = file.fsync().cost_ns / 1e9;
    file.close();
    std::printf("%-8s %-8s wrote 320 MiB in %5.2f s, of which held back %5.2f s; fsync %5.2f s\n",
                host->get_cname(), name.c_str(), write_s, paused_s, fsync_s);
}

static void reader() {
    s4u::this_actor::sleep_until(20);
    cawl::File file(disk(s4u::this_actor::get_host(), "hdd-1"), "/rank-0", CAWL_READ);
    cawl_cost cost = file.read(320 << 20);
    file.close();
    std::printf("node-1   analysis read %.0f MiB in %.2f s\n", cost.bytes / 1048576.0, cost.cost_ns / 1e9);
}

int main(int argc, char **argv) {
    s4u::Engine engine(&argc, argv);
    engine.load_platform(argc > 1 ? argv[1] : "platform.xml");
    s4u::Host *one = engine.host_by_name("node-1"), *two = engine.host_by_name("node-2");
    s4u::Actor::create("rank-0", one, writer, "hdd-1");
    s4u::Actor::create("rank-1", one, writer, "hdd-1");
    s4u::Actor::create("rank-2", two, writer, "hdd-2");
    s4u::Actor::create("analysis", one, reader);
    engine.run();
    std::printf("node-1 has %.0f MiB dirty\n", cawl::PageCache::of(one).level().dirty_bytes / 1048576.0);
    return 0;
}
