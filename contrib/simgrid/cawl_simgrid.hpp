// Disks of SimGrid whose files cost what cawl says: each s4u::Host has a page cache with one dirty threshold
// for all of its disks, and actors that call a File sleep as long as the call takes.
//
//     cawl::File file(disk, "/checkpoint", CAWL_WRITE | CAWL_CREATE);    // within an actor
//     file.write(64 << 20);
//     file.fsync();
//     file.close();
//
// Properties of hosts and disks, in the platform's file or by set_property before the first call:
//
//   cawl-profile  path of a profile (`cawl-cli calibrate`); of a disk, its device is what counts
//   cawl-set      constants that differ, as "kernel.limits = { background = 67108864, hard = 134217728 }"
//   cawl-model    of a host: "kernel" (which is what counts otherwise), "cawl" or "naive"
//
// A disk without a profile has the device of its host's; without that, the bandwidths of the platform.
#ifndef CAWL_SIMGRID_HPP
#define CAWL_SIMGRID_HPP

#include <cawl.h>
#include <simgrid/s4u.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cawl {

// What the files of a host go through: one machine of libcawl. Failures are std::runtime_error's.
class PageCache {
public:
    // That of a host, made of its properties and its disks at the first call.
    static PageCache &of(simgrid::s4u::Host *host);
    static PageCache &of(const simgrid::s4u::Disk *disk);

    // A file that was there before the simulation, in the page cache or not. Takes no time.
    void add(const simgrid::s4u::Disk *disk, const std::string &path, uint64_t bytes, bool cached = false);
    // Takes a file's name away; what is dirty of it is not written once it is closed.
    cawl_cost unlink(const simgrid::s4u::Disk *disk, const std::string &path);
    cawl_cost truncate(const simgrid::s4u::Disk *disk, const std::string &path, uint64_t bytes);
    // A file gets another name on its disk. The file that had it is unlinked.
    cawl_cost rename(const simgrid::s4u::Disk *disk, const std::string &from, const std::string &to);
    // The dirty limits are these from now on, in bytes, as when memory comes or goes: background < hard.
    void set_limits(uint64_t background, uint64_t hard);
    // SimGrid's own operations on this disk (Disk::write, Disk::read, Io's, and what is made of them) take as
    // long as appending to a file, and as reading one that is not cached: which file, they do not tell. For a
    // disk that is not sealed yet, as in a platform made in C++.
    static void drive(simgrid::s4u::Disk *disk);
    // What is dirty at this moment, and whether writers are held back.
    cawl_levels level();

    PageCache(const PageCache &) = delete;
    PageCache &operator=(const PageCache &) = delete;

private:
    friend class File;
    using Call = std::function<cawl_status(cawl_machine *, uint32_t thread, uint64_t now_ns, cawl_cost *)>;
    using Name = std::pair<uint64_t, std::string>;
    struct Machine;
    struct Driven {
        int32_t reader = -1, writer = -1;
        uint64_t read_up_to = 0;
    };

    explicit PageCache(simgrid::s4u::Host *host);
    // Asks what a call costs that begins now, and lets the actor sleep until it ends.
    cawl_cost call(const Call &call);
    Name name(const simgrid::s4u::Disk *disk, const std::string &path) const;
    cawl_file file(const Name &name);
    uint64_t operation_ns(const simgrid::s4u::Disk *disk, bool writes, uint64_t bytes);

    std::shared_ptr<Machine> machine_;
    std::map<const simgrid::s4u::Disk *, uint64_t> devices_;
    std::map<Name, uint64_t> inodes_;
    std::vector<uint64_t> operations_end_ns_;                // by the thread that stands for each
    std::map<std::pair<uint64_t, uint32_t>, Driven> driven_; // by device and thread
    uint64_t last_inode_ = 0;
};

// An open file. Calls come from actors and block them; each ends with the cost, whole and by cause, and the
// bytes that it moved. The actor that opened it is the process, any other that calls is a thread of it.
class File {
public:
    // `how`: bits CAWL_READ, CAWL_WRITE and others of cawl_open.
    File(const simgrid::s4u::Disk *disk, const std::string &path, uint32_t how);
    // Closes, without a cost, what was not closed: as when its actor is killed.
    ~File();
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    cawl_cost write(uint64_t bytes); // at the position; of a stream: fwrite
    cawl_cost pwrite(uint64_t bytes, uint64_t offset);
    cawl_cost read(uint64_t bytes);
    cawl_cost pread(uint64_t bytes, uint64_t offset);
    cawl_cost fflush(); // of a stream
    cawl_cost fsync();
    cawl_cost fdatasync();
    cawl_cost close();
    void seek(uint64_t offset);

private:
    using Plain = cawl_status (*)(cawl_machine *, cawl_task, int32_t descriptor, uint64_t now_ns, cawl_cost *);

    File(PageCache &cache, uint32_t how);
    cawl_task task(uint32_t thread) const { return {process_, thread}; }
    cawl_cost without_bytes(Plain function);

    PageCache &cache_;
    std::shared_ptr<PageCache::Machine> machine_; // a host may go before its files
    uint32_t process_;
    uint32_t how_;
    int32_t descriptor_ = -1;
};

} // namespace cawl

#endif
