// A storage service of WRENCH (2.1, for SimGrid 3.32) on a disk that a page cache drives, and on one of
// SimGrid's own.
#include "cawl_simgrid.hpp"

#include <wrench-dev.h>

#include <cstdio>
#include <cstdlib>

namespace s4u = simgrid::s4u;

static const uint64_t MiB = 1 << 20;

static void expect(bool holds, const char *what, double figure) {
    std::printf("%s: %s (%.9g)\n", holds ? "ok" : "NOT SO", what, figure);
    std::fflush(stdout);
    if (!holds)
        std::_Exit(1);
}

class Test : public wrench::ExecutionController {
public:
    explicit Test(std::shared_ptr<wrench::StorageService> disks)
        : ExecutionController("node", "test"), disks_(std::move(disks)) {}

private:
    std::shared_ptr<wrench::StorageService> disks_;

    using Access = void (*)(const std::shared_ptr<wrench::DataFile> &,
                            const std::shared_ptr<wrench::FileLocation> &);

    // Seconds to write or to read a whole file.
    double seconds(Access access, const std::string &mount, const std::shared_ptr<wrench::DataFile> &file) {
        double begun_s = s4u::Engine::get_clock();
        access(file, wrench::FileLocation::LOCATION(disks_, mount));
        return s4u::Engine::get_clock() - begun_s;
    }

    int main() override {
        s4u::Disk *driven = s4u::Host::by_name("node")->get_disks().front();
        const Access write = wrench::StorageService::writeFile, read = wrench::StorageService::readFile;
        auto small = wrench::Simulation::addFile("small", 100 * MiB);
        auto large = wrench::Simulation::addFile("large", 300 * MiB);
        double own_s = seconds(write, "/plain", small), took_s = seconds(write, "/driven", small);
        expect(own_s > 1 && own_s < 1.2, "100 MiB at 100 MB/s", own_s);
        expect(took_s < 0.2, "go to the page cache", took_s);
        double dirty = cawl::PageCache::of(driven).level().dirty_bytes;
        expect(dirty > 80 * MiB, "where they are dirty", dirty);
        took_s = seconds(write, "/driven", large);
        expect(took_s > 1, "more than the threshold is held back", took_s);
        s4u::this_actor::sleep_for(3600);
        took_s = seconds(read, "/driven", small);
        expect(took_s > 0.8 && took_s < 1.2, "100 MiB are read at 120 MB/s", took_s);
        std::puts("all is well");
        std::fflush(stdout);
        return 0;
    }
};

int main(int argc, char **argv) {
    auto simulation = wrench::Simulation::createSimulation();
    simulation->init(&argc, argv);
    simulation->instantiatePlatform([] {
        s4u::NetZone *zone = s4u::create_full_zone("zone");
        s4u::Host *host = zone->create_host("node", 1e9);
        host->set_property("cawl-set", "kernel.limits = { background = 134217728, hard = 268435456 }");
        s4u::Disk *driven = host->create_disk("driven", 120e6, 100e6);
        s4u::Disk *plain = host->create_disk("plain", 120e6, 100e6);
        driven->set_property("mount", "/driven")->set_property("size", "1TB");
        plain->set_property("mount", "/plain")->set_property("size", "1TB");
        cawl::PageCache::drive(driven);
        driven->seal();
        plain->seal();
        s4u::Link *loopback = zone->create_link("loopback", 1e12)->set_latency(0)->seal();
        auto *node = host->get_netpoint();
        zone->add_route(node, node, nullptr, nullptr, {s4u::LinkInRoute(loopback)});
        zone->seal();
    });
    auto disks = simulation->add(new wrench::SimpleStorageService("node", {"/driven", "/plain"}));
    simulation->add(new Test(disks));
    simulation->launch();
    return 0;
}
