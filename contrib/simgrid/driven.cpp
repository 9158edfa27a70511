// SimGrid's own operations on disks that a page cache drives: Disk::write and Disk::read, Io's beside each
// other, and the file system module, where SimGrid has it.
#include "cawl_simgrid.hpp"

#if __has_include(<simgrid/plugins/file_system.h>)
#include <simgrid/plugins/file_system.h>
#define HAS_FILES
#endif

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <unistd.h>

namespace s4u = simgrid::s4u;

static const uint64_t MiB = 1 << 20;

static void expect(bool holds, const char *what, double figure) {
    std::printf("%s: %s (%.9g)\n", holds ? "ok" : "NOT SO", what, figure);
    std::fflush(stdout);
    if (!holds)
        std::_Exit(1);
}

template <class Work> static double seconds(Work work) {
    double begun_s = s4u::Engine::get_clock();
    work();
    return s4u::Engine::get_clock() - begun_s;
}

static double write_s(const s4u::Disk *disk, int mib) {
    return seconds([&] {
        for (int call = 0; call < mib; call++)
            disk->write(MiB);
    });
}

static void test(const s4u::Disk *disk, const s4u::Disk *plain) {
    double took_s = write_s(disk, 100), plain_s = write_s(plain, 100);
    expect(plain_s > 1 && plain_s < 1.1, "100 MiB at 100 MB/s", plain_s);
    expect(took_s < 0.1, "go to the page cache", took_s);
    double dirty = cawl::PageCache::of(disk).level().dirty_bytes;
    expect(dirty > 90 * MiB, "where they are dirty", dirty);
    took_s = write_s(disk, 300);
    expect(took_s > 1, "more than the threshold is held back", took_s);
    s4u::this_actor::sleep_for(3600);
    // A file and an operation of the disk share the page cache.
    cawl::File file(disk, "/file", CAWL_WRITE | CAWL_CREATE);
    file.write(120 * MiB);
    took_s = write_s(disk, 160);
    expect(took_s > 0.2, "files count", took_s);
    file.close();
    s4u::this_actor::sleep_for(3600);
    // Side by side none of them waits for the others.
    took_s = seconds([&] {
        s4u::IoPtr first = disk->write_async(20 * MiB), second = disk->write_async(20 * MiB);
        first->wait();
        second->wait();
    });
    double alone_s = seconds([&] { disk->write(20 * MiB); });
    expect(took_s < 1.1 * alone_s, "two at once copy at once", took_s / alone_s);
    took_s = seconds([&] { disk->read(120 * MiB); });
    expect(took_s > 1 && took_s < 1.2, "120 MiB are read at 120 MB/s", took_s);
#ifdef HAS_FILES
    s4u::this_actor::sleep_for(3600);
    s4u::File *opened = s4u::File::open("/scratch/data", nullptr);
    took_s = seconds([&] { opened->write(100 * MiB); });
    expect(took_s < 0.1, "the file system module writes to the page cache", took_s);
    took_s = seconds([&] { opened->write(200 * MiB); });
    expect(took_s > 0.2, "and is held back", took_s);
    s4u::this_actor::sleep_for(3600);
    opened->seek(0);
    sg_size_t bytes = 0;
    took_s = seconds([&] { bytes = opened->read(120 * MiB); });
    expect(bytes == 120 * MiB && took_s > 1 && took_s < 1.2, "it reads at 120 MB/s", took_s);
    opened->close();
#endif
    std::puts("all is well");
    std::fflush(stdout);
}

int main(int argc, char **argv) {
    s4u::Engine engine(&argc, argv);
#ifdef HAS_FILES
    sg_storage_file_system_init();
#endif
    s4u::NetZone *zone = s4u::create_full_zone("cluster");
    s4u::Host *host = zone->create_host("node", 1e9);
    host->set_property("cawl-set", "kernel.limits = { background = 134217728, hard = 268435456 }");
    s4u::Disk *disk = host->create_disk("driven", 120e6, 100e6), *plain = host->create_disk("plain", 120e6, 100e6);
    // The module of 3.32 needs a table of what is there, in the working directory.
    std::string content = "simgrid_driven." + std::to_string(getpid());
    std::ofstream(content) << "/data 0\n";
    disk->set_property("mount", "/scratch")->set_property("content", content);
    plain->set_property("mount", "/plain");
    cawl::PageCache::drive(disk);
    disk->seal();
    std::remove(content.c_str());
    plain->seal();
    host->seal();
    zone->seal();
    s4u::Actor::create("test", host, test, disk, plain);
    engine.run();
    return 0;
}
