/* The cost of new files and of unlinks, as the program sees it, in µs: of each open, write of one byte and close, and of
 * each unlink. Wall time as the median over batches of 100, which is mostly shorter than a turn on a busy processor; the
 * program's own processor time as the mean over all.
 * Usage: files COUNT RESULT [over|append|make]
 * RESULT: a file to which both figures of a new file, both of an unlink and the time at the end, in s, are written;
 * else those of an open and a close of a file that is there, to write over it or to append, or of a new file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 100, BATCHES = 10000 };

static double wall[BATCHES];

static double now_us(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void make(const char *name) {
    int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "x", 1) != 1 || close(fd)) exit(1);
}

static int flags = O_WRONLY;

static void open_again(const char *name) {
    int fd = open(name, flags);
    if (fd < 0 || close(fd)) exit(1);
}

static void take_away(const char *name) {
    if (unlink(name)) exit(1);
}

static void measure(int batches, void (*each)(const char *), FILE *result) {
    double cpu = now_us(CLOCK_PROCESS_CPUTIME_ID);
    for (int batch = 0; batch < batches; batch++) {
        double start = now_us(CLOCK_MONOTONIC);
        for (int i = batch * BATCH; i < (batch + 1) * BATCH; i++) {
            char name[32];
            snprintf(name, sizeof name, "f%d", i);
            each(name);
        }
        wall[batch] = (now_us(CLOCK_MONOTONIC) - start) / BATCH;
    }
    cpu = (now_us(CLOCK_PROCESS_CPUTIME_ID) - cpu) / batches / BATCH;
    qsort(wall, batches, sizeof *wall, ascending);
    fprintf(result, "%.3f %.3f ", wall[batches / 2], cpu);
}

int main(int argc, char **argv) {
    int batches = argc >= 3 ? atoi(argv[1]) / BATCH : 0;
    if (batches < 1 || batches > BATCHES) return 2;
    FILE *result = fopen(argv[2], "w");
    if (!result) return 1;
    if (argc > 3) {
        if (!strcmp(argv[3], "append")) flags |= O_APPEND;
        measure(batches, strcmp(argv[3], "make") ? open_again : make, result);
        return fclose(result);
    }
    measure(batches, make, result);
    measure(batches, take_away, result);
    return fprintf(result, "%.6f\n", now_us(CLOCK_REALTIME) / 1e6) < 0 || fclose(result);
}
