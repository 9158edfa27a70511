#include "cawl_simgrid.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <stdexcept>

#if __has_include(<simgrid/simcall.hpp>)
#include <simgrid/simcall.hpp>
#else
#include <simgrid/simix.hpp> // until 3.34
#endif

namespace cawl {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::actor::simcall_answered;

void ok(cawl_status status) {
    if (status == CAWL_OK)
        return;
    std::string text = cawl_error_text(status), details = cawl_last_error();
    throw std::runtime_error("cawl: " + (details.empty() ? text : text + ": " + details));
}

using Profile = std::unique_ptr<cawl_profile, decltype(&cawl_profile_free)>;

Profile profile(const char *path) {
    cawl_profile *made = nullptr;
    ok(path ? cawl_profile_from_file(path, &made) : cawl_profile_default(&made));
    return {made, cawl_profile_free};
}

void change(const Profile &profile, const char *toml) {
    if (toml)
        ok(cawl_profile_set(profile.get(), toml));
}

// A property that is none would change nothing, and nobody would know.
template <class Of> void known(const char *kind, const Of *of, std::initializer_list<std::string> names) {
    for (const auto &[name, value] : *of->get_properties())
        if (name.rfind("cawl-", 0) == 0 && std::find(names.begin(), names.end(), name) == names.end())
            throw std::runtime_error(std::string("cawl: there is no property ") + name + " of a " + kind + " (" +
                                     of->get_name() + "); cawl_simgrid.hpp has all");
}

// The device of a disk: its own profile's, that of its host's, or the platform's.
Profile device(const s4u::Disk *disk, const s4u::Host *host) {
    const char *own = disk->get_property("cawl-profile"), *path = own ? own : host->get_property("cawl-profile");
    Profile made = profile(path);
    if (!path) {
        char rates[200];
        double write = disk->get_write_bandwidth(), read = disk->get_read_bandwidth();
        std::snprintf(rates, sizeof rates, "device = { write.value = %e, writeback.value = %e, read.value = %e, "
                      "sequential_read.value = %e }",
                      write, write, read, read);
        change(made, rates);
    }
    if (!own)
        change(made, host->get_property("cawl-set"));
    change(made, disk->get_property("cawl-set"));
    return made;
}

} // namespace

// What one machine of libcawl needs to be told calls in their order.
struct PageCache::Machine {
    std::unique_ptr<cawl_machine, decltype(&cawl_machine_free)> handle{nullptr, cawl_machine_free};
    uint64_t begun_ns = 0;

    // The clock is a double, and may be less than a ns before the moment that an actor slept to.
    uint64_t now_ns() {
        begun_ns = std::max<uint64_t>(begun_ns, std::llround(s4u::Engine::get_clock() * 1e9));
        return begun_ns;
    }
};

PageCache::PageCache(s4u::Host *host) : machine_(std::make_shared<Machine>()) {
    known("host", host, {"cawl-profile", "cawl-set", "cawl-model"});
    const char *model = host->get_property("cawl-model");
    Profile made = profile(host->get_property("cawl-profile"));
    change(made, host->get_property("cawl-set"));
    for (const s4u::Disk *disk : host->get_disks()) {
        known("disk", disk, {"cawl-profile", "cawl-set"});
        uint64_t number = devices_.size() + 1;
        devices_[disk] = number;
        ok(cawl_profile_set_device(made.get(), number, device(disk, host).get()));
    }
    cawl_machine *machine = nullptr;
    ok(cawl_machine_new(made.get(), model ? model : "kernel", &machine));
    machine_->handle.reset(machine);
}

PageCache &PageCache::of(s4u::Host *host) {
    // In the kernel of SimGrid, where one actor's call at a time is served, in an order that does not change.
    return *simcall_answered([host] {
        static const auto extension = s4u::Host::extension_create<PageCache>(
            [](void *cache) { delete static_cast<PageCache *>(cache); });
        if (!host->extension(extension))
            host->extension_set(extension, new PageCache(host));
        return host->extension(extension);
    });
}

PageCache &PageCache::of(const s4u::Disk *disk) { return of(disk->get_host()); }

cawl_cost PageCache::call(const Call &call) {
    if (s4u::this_actor::is_maestro())
        throw std::runtime_error("cawl: calls are made by actors, which sleep as long as they take");
    cawl_cost cost{};
    cost.size = sizeof cost;
    uint32_t thread = s4u::this_actor::get_pid();
    simcall_answered([&] { ok(call(machine_->handle.get(), thread, machine_->now_ns(), &cost)); });
    double left_s = cost.end_ns * 1e-9 - s4u::Engine::get_clock();
    if (left_s >= 1e-9) // SimGrid knows no shorter time
        s4u::this_actor::sleep_for(left_s);
    return cost;
}

PageCache::Name PageCache::name(const s4u::Disk *disk, const std::string &path) const {
    auto found = devices_.find(disk);
    if (found == devices_.end())
        throw std::runtime_error("cawl: disk " + disk->get_name() + " was not there at its host's first call");
    return {found->second, path};
}

cawl_file PageCache::file(const Name &name) {
    auto known = inodes_.try_emplace(name, last_inode_ + 1);
    last_inode_ += known.second;
    return {name.first, known.first->second};
}

void PageCache::add(const s4u::Disk *disk, const std::string &path, uint64_t bytes, bool cached) {
    simcall_answered([&] { ok(cawl_add_file(machine_->handle.get(), file(name(disk, path)), bytes, cached)); });
}

cawl_cost PageCache::unlink(const s4u::Disk *disk, const std::string &path) {
    return call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        Name named = name(disk, path);
        cawl_status status = cawl_unlink(machine, {thread, thread}, file(named), now_ns, cost);
        if (status == CAWL_OK)
            inodes_.erase(named); // the next of this name is another file
        return status;
    });
}

cawl_cost PageCache::truncate(const s4u::Disk *disk, const std::string &path, uint64_t bytes) {
    return call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return cawl_truncate(machine, {thread, thread}, file(name(disk, path)), bytes, now_ns, cost);
    });
}

cawl_cost PageCache::rename(const s4u::Disk *disk, const std::string &from, const std::string &to) {
    return call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        Name old = name(disk, from), now = name(disk, to);
        cawl_file renamed = file(old), replaced = file(now);
        cawl_status status = cawl_rename(machine, {thread, thread}, renamed, &replaced, now_ns, cost);
        if (status == CAWL_ERROR_NO_FILE) // nothing had the name yet
            status = cawl_rename(machine, {thread, thread}, renamed, nullptr, now_ns, cost);
        if (status == CAWL_OK && old != now) {
            inodes_[now] = renamed.inode;
            inodes_.erase(old);
        }
        return status;
    });
}

void PageCache::set_limits(uint64_t background, uint64_t hard) {
    simcall_answered([&] {
        ok(cawl_advance(machine_->handle.get(), machine_->now_ns()));
        ok(cawl_set_limits(machine_->handle.get(), background, hard));
    });
}

void PageCache::drive(s4u::Disk *disk) {
    using Operation = s4u::Disk::Operation;
    // Each has the whole bandwidth, and a factor that makes it last as libcawl says, which knows the others.
    for (Operation of : {Operation::READ, Operation::WRITE, Operation::READWRITE})
        disk->set_sharing_policy(of, s4u::Disk::SharingPolicy::NONLINEAR,
                                 [](double bandwidth, int operations) { return bandwidth * operations; });
    disk->set_factor_cb([disk](sg_size_t bytes, s4u::Io::OpType type) {
        bool writes = type == s4u::Io::OpType::WRITE;
        double rate = writes ? disk->get_write_bandwidth() : disk->get_read_bandwidth();
        return bytes / (rate * std::max<uint64_t>(of(disk).operation_ns(disk, writes, bytes), 1) * 1e-9);
    });
}

// How long an operation takes that begins now. SimGrid is in its kernel already.
uint64_t PageCache::operation_ns(const s4u::Disk *disk, bool writes, uint64_t bytes) {
    const uint32_t process = 1u << 31; // no actor's
    cawl_machine *machine = machine_->handle.get();
    uint64_t now_ns = machine_->now_ns();
    cawl_cost cost{};
    cost.size = sizeof cost;
    // A thread makes one call at a time.
    auto is_free = [&](uint64_t end_ns) { return end_ns <= now_ns; };
    auto free = std::find_if(operations_end_ns_.begin(), operations_end_ns_.end(), is_free);
    if (free == operations_end_ns_.end())
        free = operations_end_ns_.insert(free, 0);
    uint32_t thread = process + static_cast<uint32_t>(free - operations_end_ns_.begin());
    cawl_task task = {process, thread};
    // Files of its own, so that operations beside each other wait for no lock; named as no path is.
    Name written = name(disk, "w" + std::to_string(thread)), read = name(disk, "r" + std::to_string(thread));
    Driven &driven = driven_[{written.first, thread}];
    if (driven.writer < 0) {
        ok(cawl_add_file(machine, file(read), 1ull << 50, false));
        ok(cawl_open(machine, task, file(read), CAWL_READ, now_ns, &driven.reader, &cost));
        ok(cawl_open(machine, task, file(written), CAWL_WRITE | CAWL_CREATE, now_ns, &driven.writer, &cost));
    }
    if (writes) {
        ok(cawl_write(machine, task, driven.writer, bytes, now_ns, &cost));
    } else {
        ok(cawl_pread(machine, task, driven.reader, bytes, driven.read_up_to, now_ns, &cost));
        driven.read_up_to += bytes;
    }
    *free = cost.end_ns;
    return cost.end_ns - now_ns;
}

cawl_levels PageCache::level() {
    cawl_levels levels{};
    levels.size = sizeof levels;
    simcall_answered([&] {
        ok(cawl_advance(machine_->handle.get(), machine_->now_ns()));
        ok(cawl_level(machine_->handle.get(), &levels));
    });
    return levels;
}

File::File(PageCache &cache, uint32_t how)
    : cache_(cache), machine_(cache.machine_), process_(s4u::this_actor::get_pid()), how_(how) {}

// Delegates, so that the destructor closes the file of an actor that is killed while it opens.
File::File(const s4u::Disk *disk, const std::string &path, uint32_t how) : File(PageCache::of(disk), how) {
    cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return cawl_open(machine, task(thread), cache_.file(cache_.name(disk, path)), how, now_ns, &descriptor_, cost);
    });
}

File::~File() {
    if (descriptor_ < 0)
        return;
    // An actor that is killed can ask the kernel of SimGrid for nothing; others may be killed beside it.
    static std::mutex one;
    std::lock_guard<std::mutex> lock(one);
    cawl_cost cost{};
    cost.size = sizeof cost;
    cawl_close(machine_->handle.get(), task(process_), descriptor_, machine_->begun_ns, &cost);
}

cawl_cost File::write(uint64_t bytes) {
    auto write = how_ & CAWL_STREAM ? cawl_fwrite : cawl_write;
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return write(machine, task(thread), descriptor_, bytes, now_ns, cost);
    });
}

cawl_cost File::pwrite(uint64_t bytes, uint64_t offset) {
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return cawl_pwrite(machine, task(thread), descriptor_, bytes, offset, now_ns, cost);
    });
}

cawl_cost File::read(uint64_t bytes) {
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return cawl_read(machine, task(thread), descriptor_, bytes, now_ns, cost);
    });
}

cawl_cost File::pread(uint64_t bytes, uint64_t offset) {
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return cawl_pread(machine, task(thread), descriptor_, bytes, offset, now_ns, cost);
    });
}

cawl_cost File::without_bytes(Plain function) {
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        return function(machine, task(thread), descriptor_, now_ns, cost);
    });
}

cawl_cost File::fflush() { return without_bytes(cawl_fflush); }
cawl_cost File::fsync() { return without_bytes(cawl_fsync); }
cawl_cost File::fdatasync() { return without_bytes(cawl_fdatasync); }

cawl_cost File::close() {
    return cache_.call([&](cawl_machine *machine, uint32_t thread, uint64_t now_ns, cawl_cost *cost) {
        cawl_status status = cawl_close(machine, task(thread), descriptor_, now_ns, cost);
        descriptor_ = status == CAWL_OK ? -1 : descriptor_;
        return status;
    });
}

void File::seek(uint64_t offset) {
    simcall_answered([&] { ok(cawl_seek(machine_->handle.get(), descriptor_, offset)); });
}

} // namespace cawl
