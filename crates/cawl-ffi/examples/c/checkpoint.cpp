// A simulator's storage: two processes of a node write checkpoints, one to the node's disk, one to a slow
// volume, and a third logs through a stream. The simulator's own queue of events has the time; the library
// has the costs.
//
//     c++ -std=c++17 checkpoint.cpp $(pkg-config --cflags --libs cawl) && ./a.out
#include <cawl.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Free {
    void operator()(cawl_profile *profile) const { cawl_profile_free(profile); }
    void operator()(cawl_machine *machine) const { cawl_machine_free(machine); }
};
using Profile = std::unique_ptr<cawl_profile, Free>;
using Machine = std::unique_ptr<cawl_machine, Free>;

void ok(cawl_status status) {
    if (status != CAWL_OK)
        throw std::runtime_error(std::string(cawl_error_text(status)) + ": " + cawl_last_error());
}

void expect(bool holds, const char *what) {
    if (!holds)
        throw std::runtime_error(std::string("not so: ") + what);
}

Profile profile(const char *changes) {
    cawl_profile *made;
    ok(cawl_profile_default(&made));
    Profile owned(made);
    ok(cawl_profile_set(made, changes));
    return owned;
}

constexpr uint64_t disk = 1, volume = 2;

// Writes a checkpoint of 256 MiB in calls of 1 MiB, then waits for the device: each step is an event.
struct Writer {
    cawl_machine *machine;
    cawl_task task;
    cawl_file file;
    int32_t descriptor = -1;
    unsigned calls = 0;
    double waited_ns = 0.0;
    cawl_cost cost{};

    // What happens at this time; false when there is no more.
    bool step(uint64_t now_ns) {
        cost.size = sizeof cost;
        if (descriptor < 0) {
            ok(cawl_open(machine, task, file, CAWL_WRITE | CAWL_CREATE | CAWL_TRUNCATE, now_ns, &descriptor, &cost));
        } else if (calls++ < 256) {
            ok(cawl_write(machine, task, descriptor, 1 << 20, now_ns, &cost));
        } else if (calls == 257) {
            ok(cawl_fsync(machine, task, descriptor, now_ns, &cost));
            waited_ns = cost.cost_ns;
        } else {
            ok(cawl_close(machine, task, descriptor, now_ns, &cost));
            return false;
        }
        return true;
    }
};

} // namespace

int main() try {
    Profile node = profile("kernel.limits = { background = 134217728, hard = 268435456 }");
    Profile slow = profile("device = { writeback.value = 50e6, write.value = 60e6 }");
    ok(cawl_profile_set_device(node.get(), volume, slow.get()));
    cawl_machine *made;
    ok(cawl_machine_new(node.get(), "kernel", &made));
    Machine machine(made);

    Writer writers[] = {{made, {1, 1}, {disk, 10}}, {made, {2, 2}, {volume, 10}}};
    using Event = std::pair<uint64_t, Writer *>;
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events;
    for (Writer &writer : writers)
        events.push({0, &writer});
    uint64_t end_ns = 0;
    while (!events.empty()) {
        auto [now_ns, writer] = events.top();
        events.pop();
        if (writer->step(now_ns))
            events.push({writer->cost.end_ns, writer});
        else
            std::printf("process %u: %.3f s, of which fsync %.3f s\n", writer->task.process,
                        writer->cost.end_ns / 1e9, writer->waited_ns / 1e9);
        end_ns = writer->cost.end_ns;
    }
    expect(writers[1].cost.end_ns > 4 * writers[0].cost.end_ns, "the slow volume takes longer");

    // The log, a line of 100 bytes at a time: most calls only fill the stream's buffer.
    cawl_cost cost{};
    cost.size = sizeof cost;
    int32_t log;
    ok(cawl_open(made, {3, 3}, {disk, 11}, CAWL_WRITE | CAWL_CREATE | CAWL_STREAM, end_ns, &log, &cost));
    unsigned buffered = 0;
    for (int line = 0; line < 1000; line++) {
        ok(cawl_fwrite(made, {3, 3}, log, 100, cost.end_ns, &cost));
        buffered += cost.state == CAWL_STATE_BUFFERED;
    }
    expect(buffered > 970 && buffered < 980, "100000 bytes fill 24 buffers of 4 KiB");
    ok(cawl_close(made, {3, 3}, log, cost.end_ns, &cost));

    // After an hour of rest nothing is dirty.
    ok(cawl_advance(made, cost.end_ns + 3600ull * 1000000000));
    cawl_levels levels{};
    levels.size = sizeof levels;
    ok(cawl_level(made, &levels));
    expect(levels.dirty_bytes == 0, "all is written");
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
