/* Stores into scattered pages of a mapping and syncs all of it, so often that not each time it can be looked at. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, SIZE = 128 * MIB, TIMES = 200, STORES = 16 };

int main(void) {
    int fd = open("often", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, SIZE) != 0)
        return 1;
    volatile char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return 1;
    /* Single pages, in an order that no reading ahead finds. */
    for (long page = 0; page < SIZE / PAGE; page++)
        at[page * 5 % (SIZE / PAGE) * PAGE] = 1;
    if (msync((void *)at, SIZE, MS_SYNC) != 0)
        return 1;
    unsigned long place = 1;
    for (int time = 0; time < TIMES; time++) {
        for (int store = 0; store < STORES; store++) {
            place = place * 6364136223846793005 + 1442695040888963407;
            at[(place >> 33) % (SIZE / PAGE) * PAGE] = 2;
        }
        if (msync((void *)at, SIZE, MS_SYNC) != 0)
            return 1;
    }
    return 0;
}
