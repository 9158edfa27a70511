/* The cost of a stream call that stays in its buffer: prints lines of "SIZE NANOSECONDS-PER-CALL". What the
 * first call of a stream takes beyond the read that it makes: lines of "buffer NANOSECONDS". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 16];
static char data[4096];

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Of its own program, which is a file in the page cache. */
static void allocating(void)
{
    const char *path = "/proc/self/exe";
    double first = 0, plain = 0;
    int turns = 32, fd = open(path, O_RDONLY);
    if (fd < 0)
        return;
    for (int turn = 0; turn < turns; turn++) {
        FILE *stream = fopen(path, "r");
        if (!stream)
            return;
        double start = now();
        getc(stream);
        double middle = now();
        /* As much as the C library reads. */
        size_t length = __fbufsize(stream);
        fclose(stream);
        double again = now();
        if (pread(fd, data, length < sizeof data ? length : sizeof data, 0) <= 0)
            return;
        plain += now() - again;
        first += middle - start;
    }
    close(fd);
    printf("buffer %.3f\n", (first - plain) / turns);
}

int main(void)
{
    static const size_t sizes[] = {8, 32, 100, 256, 1000, 2048, 4096};
    FILE *stream = fopen("/dev/null", "w");
    if (!stream || setvbuf(stream, buffer, _IOFBF, sizeof buffer))
        return 1;
    memset(data, 1, sizeof data);
    for (int round = 0; round < 12; round++) {
        allocating();
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
    }
    return 0;
}
