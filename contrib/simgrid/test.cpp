// What holds of the plug-in, on the nodes of platform.xml: ctest runs it, with one thread and with four.
#include "cawl_simgrid.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace s4u = simgrid::s4u;

static const uint64_t MiB = 1 << 20;
static s4u::Host *node_1, *node_2;

static void expect(bool holds, const char *what, double figure) {
    std::printf("%s: %s (%.9g)\n", holds ? "ok" : "NOT SO", what, figure);
    std::fflush(stdout);
    if (!holds)
        std::_Exit(1); // at once: no actor comes to its end
}

template <class Work> static bool fails(const std::string &why, Work work) {
    try {
        work();
    } catch (const std::runtime_error &error) {
        return std::string(error.what()).find(why) != std::string::npos;
    }
    return false;
}

// In the order of their names.
static s4u::Disk *hdd(const s4u::Host *host) { return host->get_disks().at(0); }
static s4u::Disk *ssd(const s4u::Host *host) { return host->get_disks().at(1); }

// Lets actors that were just made come to their ends, and what is dirty be written.
static void rest() { s4u::this_actor::sleep_for(3600); }

// Seconds that a new file of so many MiB was held back for.
static double held_back(s4u::Disk *disk, const std::string &path, int mib) {
    cawl::File file(disk, path, CAWL_WRITE | CAWL_CREATE);
    double sum_s = 0;
    for (int call = 0; call < mib; call++)
        sum_s += file.write(MiB).parts_ns[CAWL_CAUSE_THROTTLE] / 1e9;
    file.close();
    return sum_s;
}

static void one_threshold_for_a_host() {
    double together[2], apart[2];
    for (int of : {0, 1})
        s4u::Actor::create("together", node_1,
                           [&, of] { together[of] = held_back(hdd(node_1), "/a" + std::to_string(of), 160); });
    rest();
    s4u::Actor::create("apart", node_1, [&] { apart[0] = held_back(hdd(node_1), "/b", 160); });
    s4u::Actor::create("apart", node_2, [&] { apart[1] = held_back(hdd(node_2), "/b", 160); });
    rest();
    expect(together[0] > 0.1 && together[1] > 0.1, "two writers of a host are held back", together[0]);
    expect(apart[0] < 0.01 && apart[1] < 0.01, "writers of two hosts are not", apart[0]);
    // Different disks, one threshold.
    s4u::Actor::create("ssd", node_1, [&] { together[0] = held_back(ssd(node_1), "/c", 160); });
    s4u::Actor::create("hdd", node_1, [&] { together[1] = held_back(hdd(node_1), "/c", 160); });
    rest();
    expect(together[1] > 0.1, "what is dirty of another disk counts", together[1]);
}

static void fsync_waits_for_its_disk() {
    double begun_s = s4u::Engine::get_clock();
    cawl::File slow(hdd(node_1), "/d", CAWL_WRITE | CAWL_CREATE), fast(ssd(node_1), "/d", CAWL_WRITE | CAWL_CREATE);
    slow.write(100 * MiB);
    fast.write(20 * MiB);
    double wrote_s = s4u::Engine::get_clock() - begun_s;
    expect(wrote_s < 0.2, "120 MiB go to the page cache", wrote_s);
    double dirty = cawl::PageCache::of(node_1).level().dirty_bytes;
    expect(dirty == 120 * MiB, "where they are dirty", dirty);
    begun_s = s4u::Engine::get_clock();
    double cost_s = fast.fsync().cost_ns / 1e9, took_s = s4u::Engine::get_clock() - begun_s;
    expect(cost_s > 0.05 && cost_s < 0.2, "fsync of 20 MiB at 400 MB/s", cost_s);
    expect(std::abs(took_s - cost_s) < 2e-9, "for which the actor sleeps", took_s);
    cost_s = slow.fsync().cost_ns / 1e9;
    expect(cost_s > 0.7 && cost_s < 1.3, "fsync of 100 MiB at 100 MB/s", cost_s);
    slow.close();
    fast.close();
}

static void reads_are_cached() {
    auto &cache = cawl::PageCache::of(node_2);
    cache.add(hdd(node_2), "/cold", 120 * MiB);
    cache.add(hdd(node_2), "/warm", 120 * MiB, true);
    cawl::File cold(hdd(node_2), "/cold", CAWL_READ), warm(hdd(node_2), "/warm", CAWL_READ);
    double first_s = 0, again_s = 0;
    for (int call = 0; call < 100; call++)
        first_s += cold.read(MiB).cost_ns / 1e9;
    for (int call = 0; call < 100; call++)
        again_s += cold.pread(MiB, call * MiB).cost_ns / 1e9;
    expect(first_s > 0.8 && first_s < 1, "100 MiB from the disk at 120 MB/s", first_s);
    expect(again_s < 0.1, "and again from the page cache", again_s);
    expect(cold.read(100 * MiB).bytes == 20 * MiB, "no further than the file goes", 20);
    double warm_s = warm.read(100 * MiB).cost_ns / 1e9;
    expect(warm_s < 0.1, "cached before", warm_s);
}

static void names_come_and_go() {
    auto &cache = cawl::PageCache::of(node_2);
    cawl::File(ssd(node_2), "/e", CAWL_WRITE | CAWL_CREATE).write(10 * MiB);
    cache.unlink(ssd(node_2), "/e");
    double dirty = cache.level().dirty_bytes;
    expect(dirty == 0, "what nobody can read is not dirty", dirty);
    bool told = fails("no such file", [] { cawl::File(ssd(node_2), "/e", CAWL_READ); });
    expect(told, "a name that is gone cannot be opened", 0);
    cawl::File again(ssd(node_2), "/e", CAWL_READ | CAWL_WRITE | CAWL_CREATE);
    expect(again.read(MiB).bytes == 0, "the next of the name is empty", 0);
}

static void renamed_files_take_the_place_of_others() {
    auto &cache = cawl::PageCache::of(node_2);
    for (const char *path : {"/new", "/old"}) {
        cawl::File file(ssd(node_2), path, CAWL_WRITE | CAWL_CREATE);
        file.write(*(path + 1) == 'n' ? 10 * MiB : 20 * MiB);
        file.close();
    }
    cache.rename(ssd(node_2), "/new", "/newer");
    cache.rename(ssd(node_2), "/newer", "/old");
    cawl::File file(ssd(node_2), "/old", CAWL_READ);
    double bytes = file.read(100 * MiB).bytes, dirty = cache.level().dirty_bytes;
    expect(bytes == 10 * MiB, "a file that is renamed over another is what the name means", bytes);
    expect(dirty <= 10 * MiB, "and the other one is not written", dirty);
    bool told = fails("", [&] { cache.rename(ssd(node_2), "/new", "/newest"); });
    expect(told, "a name that is gone cannot be given away", 0);
}

static void limits_change() {
    auto &cache = cawl::PageCache::of(node_2);
    rest();
    cache.set_limits(20 * MiB, 40 * MiB);
    double few_s = held_back(hdd(node_2), "/i", 160);
    rest();
    cache.set_limits(128 * MiB, 256 * MiB);
    double many_s = held_back(hdd(node_2), "/j", 160);
    expect(few_s > 0.1 && many_s < 0.01, "writers are held to new limits", few_s);
}

static void killed_actors_leave_no_trouble() {
    auto victim = s4u::Actor::create("victim", node_2, [] { held_back(hdd(node_2), "/f", 1000); });
    s4u::this_actor::sleep_for(1.5);
    victim->kill();
    auto &cache = cawl::PageCache::of(node_2);
    double dirty = cache.level().dirty_bytes;
    expect(dirty > 100 * MiB, "what a killed actor wrote is dirty", dirty);
    cache.unlink(hdd(node_2), "/f");
    dirty = cache.level().dirty_bytes;
    expect(dirty < 100 * MiB, "but not for longer than its name, since its file was closed", dirty);
    rest();
    double held_back_s = held_back(hdd(node_2), "/g", 160);
    expect(held_back_s < 0.01, "others go on", held_back_s);
}

// The same calls, told to libcawl without SimGrid: one file of 400 calls, an fsync, a close.
static void the_figures_are_those_of_libcawl() {
    cawl_profile *profile, *disk;
    cawl_machine *machine;
    cawl_profile_default(&profile);
    cawl_profile_default(&disk);
    cawl_profile_set(profile, node_2->get_property("cawl-set"));
    cawl_profile_set(disk, "device = { write.value = 4e8, writeback.value = 4e8, read.value = 5e8 }");
    cawl_profile_set_device(profile, 2, disk);
    cawl_machine_new(profile, "kernel", &machine);
    cawl_cost cost{};
    cost.size = sizeof cost;
    int32_t descriptor;
    cawl_open(machine, {1, 1}, {2, 1}, CAWL_WRITE | CAWL_CREATE, 0, &descriptor, &cost);
    for (int call = 0; call < 400; call++)
        cawl_write(machine, {1, 1}, descriptor, MiB, cost.end_ns, &cost);
    cawl_fsync(machine, {1, 1}, descriptor, cost.end_ns, &cost);
    cawl_close(machine, {1, 1}, descriptor, cost.end_ns, &cost);
    double wanted_s = cost.end_ns / 1e9;
    cawl_machine_free(machine);
    cawl_profile_free(disk);
    cawl_profile_free(profile);

    double begun_s = s4u::Engine::get_clock();
    cawl::File file(ssd(node_2), "/h", CAWL_WRITE | CAWL_CREATE);
    for (int call = 0; call < 400; call++)
        file.write(MiB);
    file.fsync();
    file.close();
    double took_s = s4u::Engine::get_clock() - begun_s;
    expect(std::abs(took_s - wanted_s) < 1e-6, "400 MiB take as long as without SimGrid", took_s - wanted_s);
}

static void mistakes_are_told(s4u::Engine &engine) {
    s4u::Host *node = engine.host_by_name("node-1");
    auto open = [&] { cawl::File(hdd(node), "/a", CAWL_WRITE | CAWL_CREATE); };
    for (const char *property : {"cawl-sets", "cawl-Profile"}) {
        node->set_property(property, "x");
        bool told = fails(property, [&] { cawl::PageCache::of(node); });
        expect(told, "a property that is none is told", 0);
        const_cast<std::unordered_map<std::string, std::string> *>(node->get_properties())->erase(property);
    }
    expect(fails("by actors", open), "a call outside of actors is told", 0);
}

int main(int argc, char **argv) {
    s4u::Engine engine(&argc, argv);
    engine.load_platform(argc > 1 ? argv[1] : "platform.xml");
    node_1 = engine.host_by_name("node-1");
    node_2 = engine.host_by_name("node-2");
    mistakes_are_told(engine);
    s4u::Actor::create("test", node_2, [] {
        the_figures_are_those_of_libcawl(); // while node-2 is new
        one_threshold_for_a_host();
        fsync_waits_for_its_disk();
        reads_are_cached();
        names_come_and_go();
        renamed_files_take_the_place_of_others();
        limits_change();
        killed_actors_leave_no_trouble();
        std::puts("all is well");
        std::fflush(stdout);
    });
    engine.run();
    return 0;
}
