/* Stores a MiB through a mapping for each byte of input, without a call that would show it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    const size_t mib = 1 << 20, parts = 256;
    int fd = open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, parts * mib) != 0)
        return 1;
    char *at = mmap(NULL, parts * mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return 2;
    char byte;
    for (size_t stored = 0; stored < parts && read(STDIN_FILENO, &byte, 1) == 1; stored++) {
        memset(at + stored * mib, 1, mib);
        puts("stored");
        fflush(stdout);
    }
    return 0;
}
