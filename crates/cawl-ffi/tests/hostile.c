/* What no program should do to libcawl: each has its code, and nothing crashes. Also the layout of version 1.
 * */
#include <cawl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(cawl_cost) == 320 && offsetof(cawl_cost, cost_ns) == 16, "cawl_cost of version 1");
_Static_assert(offsetof(cawl_cost, end_ns) == 40 && offsetof(cawl_cost, parts_ns) == 64, "cawl_cost of version 1");
_Static_assert(sizeof(cawl_levels) == 56 && offsetof(cawl_levels, hard_bytes) == 32, "cawl_levels of version 1");
_Static_assert(sizeof(cawl_task) == 8 && sizeof(cawl_file) == 16, "by value");

static int failures;

#define ENDS(call, wanted) \
    do { \
        int32_t got_ = (call); \
        if (got_ != (wanted)) \
            failures++, printf("%s: %d (%s), not %d\n", #call, got_, cawl_last_error(), (int32_t)(wanted)); \
    } while (0)

int main(void) {
    cawl_profile *profile = NULL, *none = (cawl_profile *)1;
    cawl_machine *machine = NULL, *copy;
    /* Texts. */
    ENDS(cawl_profile_default(NULL), CAWL_ERROR_NULL);
    ENDS(cawl_profile_from_text(NULL, &none), CAWL_ERROR_NULL);
    ENDS(none != NULL, 0);
    ENDS(cawl_profile_from_text("schema = 1\nname = ", &none), CAWL_ERROR_PROFILE);
    ENDS(strstr(cawl_last_error(), "line 2") == NULL, 0);
    ENDS(cawl_profile_from_text("schema = 99", &none), CAWL_ERROR_PROFILE);
    ENDS(cawl_profile_from_text("\xff", &none), CAWL_ERROR_TEXT);
    ENDS(cawl_profile_from_file("/nonexistent/p.toml", &none), CAWL_ERROR_FILE);
    ENDS(cawl_profile_from_file("/", &none), CAWL_ERROR_FILE);
    ENDS(cawl_profile_default(&profile), CAWL_OK);
    ENDS(cawl_profile_set(profile, "kernel.limits.hard = 1"), CAWL_ERROR_PROFILE);
    ENDS(cawl_profile_set(profile, "kernel.limit = 1"), CAWL_ERROR_PROFILE);
    ENDS(cawl_profile_set(profile, "kernel.hz = 'x'"), CAWL_ERROR_PROFILE);
    ENDS(strstr(cawl_last_error(), "in `kernel.hz`") == NULL, 0);
    ENDS(cawl_profile_set(profile, "kernel.hz = '\033'"), CAWL_ERROR_PROFILE);
    ENDS(strchr(cawl_last_error(), 27) != NULL, 0);
    ENDS(cawl_profile_set(profile, "device.write.value = nan"), CAWL_ERROR_PROFILE);
    ENDS(cawl_profile_set(profile, NULL), CAWL_ERROR_NULL);
    ENDS(cawl_profile_set(NULL, ""), CAWL_ERROR_NULL);
    ENDS(cawl_profile_set_device(profile, 7, NULL), CAWL_ERROR_NULL);
    ENDS(cawl_profile_set_device(profile, UINT64_MAX, profile), CAWL_OK);
    ENDS(cawl_machine_new(profile, "kernel ", &machine), CAWL_ERROR_MODEL);
    ENDS(cawl_machine_new(profile, NULL, &machine), CAWL_ERROR_NULL);
    ENDS(cawl_machine_new(NULL, "kernel", &machine), CAWL_ERROR_NULL);
    ENDS(cawl_machine_new(profile, "kernel", NULL), CAWL_ERROR_NULL);

    /* Handles and structs. */
    const cawl_task task = {1, 1};
    const cawl_file file = {UINT64_MAX, UINT64_MAX};
    struct { cawl_cost cost; char more[16]; } later;
    cawl_cost cost = {0};
    cawl_levels levels = {.size = 1};
    int32_t fd;
    ENDS(cawl_machine_new(profile, "kernel", &machine), CAWL_OK);
    const uint32_t how = CAWL_READ | CAWL_WRITE | CAWL_CREATE;
    ENDS(cawl_open(machine, task, file, how, 5, &fd, &cost), CAWL_ERROR_SIZE);
    cost.size = UINT32_MAX;
    ENDS(cawl_open(machine, task, file, how, 5, &fd, &cost), CAWL_ERROR_SIZE);
    cost.size = sizeof cost;
    ENDS(cawl_open(NULL, task, file, how, 5, &fd, &cost), CAWL_ERROR_NULL);
    ENDS(cawl_open(machine, task, file, how, 5, NULL, &cost), CAWL_ERROR_NULL);
    ENDS(cawl_open(machine, task, file, how, 5, &fd, NULL), CAWL_ERROR_NULL);
    ENDS(cawl_open(machine, task, file, CAWL_READ, 5, &fd, &cost), CAWL_ERROR_NO_FILE);
    ENDS(cawl_open(machine, task, file, how | 1u << 31, 5, &fd, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_open(machine, task, file, how, 5, &fd, &cost), CAWL_OK);
    memset(&later, 1, sizeof later);
    later.cost.size = sizeof later;
    ENDS(cawl_write(machine, task, fd, 1, 5, &later.cost), CAWL_OK);
    ENDS(later.more[0] | later.more[15], 0);
    ENDS(cawl_level(machine, &levels), CAWL_ERROR_SIZE);
    ENDS(cawl_level(NULL, &levels), CAWL_ERROR_NULL);
    ENDS(cawl_fork(NULL, &copy), CAWL_ERROR_NULL);
    ENDS(cawl_fork(machine, NULL), CAWL_ERROR_NULL);

    /* Numbers. */
    ENDS(cawl_write(machine, task, fd, UINT64_C(1) << 63, 5, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_pwrite(machine, task, fd, 4096, UINT64_MAX, 5, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_read(machine, task, fd, UINT64_MAX, 5, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_seek(machine, fd, UINT64_MAX), CAWL_ERROR_VALUE);
    ENDS(cawl_truncate(machine, task, file, UINT64_C(1) << 63, 5, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_write(machine, task, -1, 1, 5, &cost), CAWL_ERROR_DESCRIPTOR);
    ENDS(cawl_write(machine, task, INT32_MAX, 1, 5, &cost), CAWL_ERROR_DESCRIPTOR);
    ENDS(cawl_write(machine, (cawl_task){2, 1}, fd, 1, 5, &cost), CAWL_ERROR_DESCRIPTOR);
    ENDS(cawl_fwrite(machine, task, fd, 1, 5, &cost), CAWL_ERROR_ACCESS);
    ENDS(cawl_fflush(machine, task, fd, 5, &cost), CAWL_ERROR_ACCESS);
    ENDS(cawl_add_file(machine, file, 1, 1), CAWL_ERROR_EXISTS);
    ENDS(cawl_add_file(machine, (cawl_file){1, 1}, UINT64_MAX, 1), CAWL_ERROR_VALUE);
    ENDS(cawl_write(machine, task, fd, 1, 4, &cost), CAWL_ERROR_TIME);
    ENDS(cawl_pwrite(machine, task, fd, UINT64_C(1) << 40, 0, 5, &cost), CAWL_OK);
    ENDS(cawl_truncate(machine, task, file, INT64_MAX, 5, &cost), CAWL_OK);
    ENDS(cawl_rename(machine, task, file, &(cawl_file){1, 1}, 5, &cost), CAWL_ERROR_VALUE);
    ENDS(cawl_rename(machine, task, file, &(cawl_file){UINT64_MAX, 1}, 5, &cost), CAWL_ERROR_NO_FILE);
    ENDS(cawl_rename(machine, task, (cawl_file){1, 1}, NULL, 5, &cost), CAWL_ERROR_NO_FILE);
    ENDS(cawl_rename(machine, task, file, &file, 5, &cost), CAWL_OK);
    ENDS(cawl_set_limits(machine, 2, 1), CAWL_ERROR_VALUE);
    ENDS(cawl_set_limits(NULL, 1, 2), CAWL_ERROR_NULL);
    ENDS(cawl_set_limits(machine, UINT64_MAX - 1, UINT64_MAX), CAWL_OK);
    ENDS(cawl_set_limits(machine, 1, 2), CAWL_OK);
    ENDS(cawl_advance(machine, 0), CAWL_OK);
    ENDS(cawl_advance(machine, UINT64_MAX), CAWL_OK);
    ENDS(cawl_fsync(machine, task, fd, UINT64_MAX - 1, &cost), CAWL_ERROR_TIME);
    ENDS(cawl_fsync(machine, task, fd, UINT64_MAX, &cost), CAWL_OK);
    ENDS(cost.end_ns != UINT64_MAX, 0);
    ENDS(cawl_unlink(machine, task, file, UINT64_MAX, &cost), CAWL_OK);
    ENDS(cawl_close(machine, task, fd, UINT64_MAX, &cost), CAWL_OK);
    ENDS(cawl_close(machine, task, fd, UINT64_MAX, &cost), CAWL_ERROR_DESCRIPTOR);
    ENDS(cawl_cause_name(UINT32_MAX) != NULL, 0);
    ENDS(strcmp(cawl_error_text(INT32_MIN), "unknown error"), 0);

    cawl_profile_free(profile);
    cawl_profile_free(NULL);
    cawl_machine_free(machine);
    cawl_machine_free(NULL);
    return failures != 0;
}
