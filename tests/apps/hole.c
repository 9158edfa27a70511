/* Stores into a mapping of which a part in the middle is unmapped, before the file is synced. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, SIZE = 16 * MIB };

int main(void) {
    static char written[MIB];
    int fd = open("hole", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int at = 0; at < SIZE; at += MIB)
        if (write(fd, written, MIB) != MIB)
            return 1;
    char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fsync(fd) != 0 || at == MAP_FAILED)
        return 1;
    memset(at, 1, SIZE);
    return munmap(at + 4 * MIB, 4 * MIB) != 0 || fsync(fd) != 0;
}
