/* The work `sequential` of crates/cawl-core/benches/work.rs through libcawl: library CALLS. */
#include <cawl.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    cawl_profile *profile;
    cawl_machine *machine;
    cawl_cost cost = {.size = sizeof cost};
    const cawl_task task = {1, 1};
    const cawl_file file = {1, 1};
    int32_t fd;
    if (count != 2 || cawl_profile_default(&profile) ||
        cawl_profile_set(profile, "kernel.limits = { background = 134217728, hard = 268435456 }") ||
        cawl_machine_new(profile, "kernel", &machine) ||
        cawl_open(machine, task, file, CAWL_WRITE | CAWL_CREATE, 0, &fd, &cost))
        return 1;
    uint64_t at = 0;
    for (long calls = atol(arguments[1]); calls > 0; calls--) {
        if (cawl_write(machine, task, fd, 4096, at, &cost))
            return 1;
        at += (uint64_t)cost.cost_ns + 100;
    }
    return 0;
}
