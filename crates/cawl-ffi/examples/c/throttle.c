/* The example of cawl_model's documentation in C: a machine with limits of 64 and 128 MiB and a device that
 * writes back 100 MB/s. A program writes 40 MiB to a file, 4 MiB at a time. How much is dirty then, and what
 * would another call cost?
 *
 *     cc throttle.c $(pkg-config --cflags --libs cawl) && ./a.out
 */
#include <cawl.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program at the first error. */
static void ok(cawl_status status) {
    if (status != CAWL_OK) {
        fprintf(stderr, "%s: %s\n", cawl_error_text(status), cawl_last_error());
        exit(1);
    }
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

int main(void) {
    const uint64_t mib = 1 << 20;
    cawl_profile *profile;
    ok(cawl_profile_default(&profile));
    ok(cawl_profile_set(profile, "kernel.limits = { background = 67108864, hard = 134217728 }\n"
                                 "device.writeback.value = 100e6\n"));
    cawl_machine *machine, *ahead;
    ok(cawl_machine_new(profile, "kernel", &machine));
    cawl_profile_free(profile);

    const cawl_task task = {.process = 1, .thread = 1};
    const cawl_file file = {.device = 1, .inode = 42};
    cawl_cost cost = {.size = sizeof cost};
    int32_t fd;
    ok(cawl_open(machine, task, file, CAWL_WRITE | CAWL_CREATE, 0, &fd, &cost));
    for (int call = 0; call < 10; call++) {
        /* The next call begins where this one ended, as predicted. */
        ok(cawl_write(machine, task, fd, 4 * mib, cost.end_ns, &cost));
        expect(cost.state == CAWL_STATE_FREE, "nothing is in the way");
    }
    cawl_levels levels = {.size = sizeof levels};
    ok(cawl_level(machine, &levels));
    expect(levels.dirty_bytes == 40 * mib && cost.dirty_bytes == 40 * mib, "40 MiB are dirty");

    /* A copy looks ahead; the machine itself stays where it is. The program goes on to 160 MiB: too much is
     * dirty, and the kernel holds the writer back. */
    ok(cawl_fork(machine, &ahead));
    for (int call = 10; call < 40; call++)
        ok(cawl_write(ahead, task, fd, 4 * mib, cost.end_ns, &cost));
    expect(cost.state == CAWL_STATE_THROTTLE, "the writer is throttled");
    expect(cost.parts_ns[CAWL_CAUSE_THROTTLE] > 10e6, "for more than 10 ms");
    double sum = 0.0;
    for (unsigned cause = 0; cause < CAWL_CAUSES; cause++) {
        sum += cost.parts_ns[cause];
        if (cost.parts_ns[cause] > 0.0)
            printf("%-16s %9.3f ms\n", cawl_cause_name(cause), cost.parts_ns[cause] / 1e6);
    }
    printf("%-16s %9.3f ms\n", "all", cost.cost_ns / 1e6);
    expect(sum > cost.cost_ns * 0.999999 && sum < cost.cost_ns * 1.000001, "the parts add up to the cost");
    ok(cawl_level(machine, &levels));
    expect(levels.dirty_bytes == 40 * mib && levels.regime == CAWL_REGIME_FREE, "the machine stays where it is");
    cawl_machine_free(ahead);
    cawl_machine_free(machine);
    return 0;
}
