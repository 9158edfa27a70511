/* Stores a few pages through a mapping before an msync of their part, an fsync, and munmap. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static void or_fail(int ok) {
    if (!ok)
        exit(1);
}

int main(void) {
    static char written[MIB];
    int fd = open("synced", O_RDWR | O_CREAT | O_TRUNC, 0644);
    or_fail(fd >= 0 && ftruncate(fd, 64 * MIB) == 0);
    or_fail(pwrite(fd, written, MIB, 0) == MIB);
    char *at = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    or_fail(at != MAP_FAILED);
    for (int time = 0; time < 2; time++) {
        memset(at + 8 * MIB, 1 + time, 10 * PAGE);
        or_fail(msync(at + 8 * MIB, MIB, MS_SYNC) == 0);
    }
    memset(at + 20 * MIB, 1, 5 * PAGE);
    or_fail(msync(at, 64 * MIB, MS_ASYNC) == 0);
    or_fail(fsync(fd) == 0 && fsync(fd) == 0);
    memset(at + 30 * MIB, 1, 3 * PAGE);
    or_fail(munmap(at, 64 * MIB) == 0);
    return 0;
}
