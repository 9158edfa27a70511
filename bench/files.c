/* The cost of new files and of unlinks, as the program sees it, in µs: of each open, write of one byte and close, and of
 * each unlink. The median over batches of 100, which is mostly shorter than a turn on a busy processor.
 * Usage: files COUNT RESULT     RESULT: a file to which both figures are written */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

enum { BATCH = 100, BATCHES = 10000 };

static double cost[2][BATCHES];

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    int batches = argc == 3 ? atoi(argv[1]) / BATCH : 0;
    if (batches < 1 || batches > BATCHES) return 2;
    char name[32];
    for (int batch = 0; batch < batches; batch++) {
        double start = now_us();
        for (int i = batch * BATCH; i < (batch + 1) * BATCH; i++) {
            snprintf(name, sizeof name, "f%d", i);
            int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
            if (fd < 0 || write(fd, "x", 1) != 1 || close(fd)) return 1;
        }
        cost[0][batch] = (now_us() - start) / BATCH;
    }
    for (int batch = 0; batch < batches; batch++) {
        double start = now_us();
        for (int i = batch * BATCH; i < (batch + 1) * BATCH; i++) {
            snprintf(name, sizeof name, "f%d", i);
            if (unlink(name)) return 1;
        }
        cost[1][batch] = (now_us() - start) / BATCH;
    }
    for (int i = 0; i < 2; i++) qsort(cost[i], batches, sizeof **cost, ascending);
    FILE *result = fopen(argv[2], "w");
    return result && fprintf(result, "%.2f %.2f\n", cost[0][batches / 2], cost[1][batches / 2]) > 0 && !fclose(result)
               ? 0
               : 1;
}
