/* How much of a part of a file is dirty: cachestat(2), Linux 6.5. Answers by value, so that any arguments are safe. */
#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* Dirty pages and those under writeback, or -errno. A length of 0 means all that follows. */
int64_t cawl_dirty_pages(int32_t fd, uint64_t offset, uint64_t length) {
    uint64_t range[2] = {offset, length};
    /* nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted */
    uint64_t found[5] = {0};
    if (syscall(SYS_cachestat, fd, range, found, 0) != 0)
        return -errno;
    return (int64_t)(found[1] + found[2]);
}
