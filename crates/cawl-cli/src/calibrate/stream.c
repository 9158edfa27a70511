/* The cost of a stream call that stays in its buffer: prints lines of "SIZE NANOSECONDS-PER-CALL". */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <time.h>

static char buffer[1 << 16];
static char data[4096];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void)
{
    static const size_t sizes[] = {8, 32, 100, 256, 1000, 2048, 4096};
    FILE *stream = fopen("/dev/null", "w");
    if (!stream || setvbuf(stream, buffer, _IOFBF, sizeof buffer))
        return 1;
    memset(data, 1, sizeof data);
    for (int round = 0; round < 12; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t calls = (sizeof buffer - 1) / sizes[i], total = 0;
            double spent = 0;
            while (total < 4000) {
                double start = now();
                for (size_t call = 0; call < calls; call++)
                    fwrite(data, 1, sizes[i], stream);
                spent += now() - start;
                total += calls;
                /* Discards the buffer. */
                __fpurge(stream);
            }
            printf("%zu %.3f\n", sizes[i], spent / (double)total);
        }
    return 0;
}
