/* Cost of a call in ns, as the program sees it: median over batches. Usage: overhead CASE FILE */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1000, BATCHES = 400 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    const char *name = argv[1], *file = argv[2];
    static char block[4096];
    static double cost[BATCHES];
    int null = open("/dev/null", O_WRONLY), fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FILE *stream = fopen("/dev/null", "w");
    if (null < 0 || fd < 0 || !stream) return 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now_ns();
        if (!strcmp(name, "write-1B-null")) {
            for (int i = 0; i < BATCH; i++) if (write(null, block, 1) != 1) return 1;
        } else if (!strcmp(name, "write-4K-file")) {
            /* Over the same 4 MB, so that pages are cached and the disk is left alone. */
            if (lseek(fd, 0, SEEK_SET)) return 1;
            for (int i = 0; i < BATCH; i++) if (write(fd, block, 4096) != 4096) return 1;
        } else if (!strcmp(name, "fwrite-16B")) {
            for (int i = 0; i < BATCH; i++) if (fwrite(block, 16, 1, stream) != 1) return 1;
        } else if (!strcmp(name, "fputc")) {
            for (int i = 0; i < BATCH; i++) if (fputc('x', stream) == EOF) return 1;
        } else {
            return 2;
        }
        cost[batch] = (now_ns() - start) / BATCH;
    }
    qsort(cost, BATCHES, sizeof *cost, ascending);
    printf("%.1f\n", cost[BATCHES / 2]);
    return unlink(file);
}
