// Replays recorded calls (recorded.hpp) with the page cache of WRENCH, which is the model of Do et al.,
// "Modeling the Linux page cache for accurate simulation of data-intensive applications" (CLUSTER 2021).
// Prints the sum of the costs, in seconds.
//
//     simgrid_wrench PROFILE DIRTY_BYTES [through] < calls.csv
//
// Disk and memory have the rates of the profile, and writers are held below DIRTY_BYTES. through: writes go
// through the cache, as its authors call it, which is nearest to O_SYNC and O_DIRECT.
#include "recorded.hpp"

#include <wrench-dev.h>

#include <cstdio>
#include <iostream>

namespace s4u = simgrid::s4u;
using recorded::Call, recorded::rate;

// More than the runs fill: nothing is evicted.
static const double MEMORY = 64.0 * (1 << 30);

class Replay : public wrench::ExecutionController {
public:
    double sum_s = 0;

    Replay(std::shared_ptr<wrench::StorageService> disk, std::vector<Call> calls, double most_dirty,
           bool through)
        : ExecutionController("node", "replay"), disk_(std::move(disk)), calls_(std::move(calls)),
          most_dirty_(most_dirty), through_(through) {}

private:
    std::shared_ptr<wrench::StorageService> disk_;
    std::vector<Call> calls_;
    double most_dirty_;
    bool through_;

    int main() override {
        s4u::this_actor::sleep_for(1e-3); // until the storage service has made its page cache
        wrench::MemoryManager *cache = simulation->getMemoryManagerByHost("node");
        // Its dirty ratio is of the memory that is not dirty.
        cache->setDirtyRatio(most_dirty_ / (MEMORY - most_dirty_));
        double size = 0;
        for (const Call &call : calls_)
            size = std::max(size, static_cast<double>(call.offset + call.size));
        auto file = wrench::Simulation::addFile("recorded", size);
        auto location = wrench::FileLocation::LOCATION(disk_);
        sum_s = recorded::made(calls_, [&](const Call &call) {
            if (call.op.find("sync") != std::string::npos)
                cache->flush(cache->getDirty(), ""); // it has no fsync
            else if (call.op.find("read") != std::string::npos)
                simulation->readWithMemoryCache(file, call.size, location);
            else if (through_)
                simulation->writeThroughWithMemoryCache(file, call.size, location);
            else
                simulation->writebackWithMemoryCache(file, call.size, location, true);
        });
        return 0;
    }
};

int main(int argc, char **argv) try {
    std::vector<std::string> words(argv, argv + argc);
    if (words.size() < 3)
        throw std::runtime_error("simgrid_wrench PROFILE DIRTY_BYTES [through] < calls.csv");
    words.insert(words.begin() + 1, "--wrench-pagecache-simulation");
    std::vector<char *> pointers;
    for (std::string &word : words)
        pointers.push_back(word.data());
    int count = pointers.size();
    pointers.push_back(nullptr);
    auto simulation = wrench::Simulation::createSimulation();
    simulation->init(&count, pointers.data());
    const char *profile = argv[1];
    simulation->instantiatePlatform([&] {
        s4u::NetZone *zone = s4u::create_full_zone("zone");
        s4u::Host *host = zone->create_host("node", 1e9);
        double copy = rate(profile, "[memory.fresh]");
        host->create_disk("memory", rate(profile, "[memory.cached]"), copy)
            ->set_property("mount", "/memory")->set_property("size", std::to_string(MEMORY) + "B")->seal();
        host->create_disk("disk", rate(profile, "[device.read]"), rate(profile, "[device.write]"))
            ->set_property("mount", "/")->set_property("size", "1TB")->seal();
        s4u::Link *loopback = zone->create_link("loopback", 1e12)->set_latency(0)->seal();
        auto *node = host->get_netpoint();
        zone->add_route(node, node, nullptr, nullptr, {s4u::LinkInRoute(loopback)});
        zone->seal();
    });
    auto disk = simulation->add(new wrench::SimpleStorageService("node", {"/"}));
    auto replay = simulation->add(new Replay(disk, recorded::calls(std::cin), std::stod(argv[2]), argc > 3));
    simulation->launch();
    std::printf("%.6f\n", replay->sum_s);
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
