/* Cost of a call in ns, as the program sees it: median over batches, and mean over all.
 * Usage: overhead CASE FILE [BATCHES]    Prints: median mean calls
 *        overhead exec OUT CMD…          Runs a program; writes to OUT: microseconds, peak memory in KB */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 1000, THREADS = 4 };

static const char *name, *file;
static int batches = 400;
static char block[4096];

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void check(int right) {
    if (!right) {
        perror(name);
        _exit(1);
    }
}

/* One thread's batches; their costs go to `cost`. */
static void *work(void *cost) {
    double *out = cost;
    int null = open("/dev/null", O_WRONLY), fd = -1;
    FILE *stream = fopen("/dev/null", "w");
    check(null >= 0 && stream);
    if (!strcmp(name, "write-4K-file")) check((fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600)) >= 0);
    for (int batch = 0; batch < batches; batch++) {
        double start = now_ns();
        if (!strncmp(name, "write-1B", 8)) {
            for (int i = 0; i < BATCH; i++) check(write(null, block, 1) == 1);
        } else if (fd >= 0) {
            /* Over the same 4 MB, so that pages are cached and the disk stays idle. */
            check(lseek(fd, 0, SEEK_SET) == 0);
            for (int i = 0; i < BATCH; i++) check(write(fd, block, 4096) == 4096);
        } else if (!strcmp(name, "fwrite-16B")) {
            for (int i = 0; i < BATCH; i++) check(fwrite(block, 16, 1, stream) == 1);
        } else {
            for (int i = 0; i < BATCH; i++) check(fputc('x', stream) != EOF);
        }
        out[batch] = (now_ns() - start) / BATCH;
    }
    fclose(stream);
    return NULL;
}

/* Runs a program; writes its time and peak memory. */
static int run(const char *out, char **command) {
    double start = now_ns();
    pid_t pid = vfork();
    if (pid == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (pid < 0 || wait4(pid, &status, 0, &usage) != pid || status) return 1;
    double took = now_ns() - start;
    FILE *file = fopen(out, "w");
    if (!file) return 1;
    fprintf(file, "%.0f %ld\n", took / 1e3, usage.ru_maxrss);
    return fclose(file);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    if (!strcmp(argv[1], "exec")) return run(argv[2], argv + 3);
    name = argv[1], file = argv[2];
    if (argc > 3) batches = atoi(argv[3]);
    int threads = strstr(name, "-4-threads") ? THREADS : 1;
    double *cost = calloc((size_t)batches * threads, sizeof *cost), sum = 0;
    pthread_t others[THREADS];
    double start = now_ns();
    for (int i = 1; i < threads; i++) check(!pthread_create(&others[i], NULL, work, cost + i * batches));
    work(cost);
    for (int i = 1; i < threads; i++) pthread_join(others[i], NULL);
    double whole = now_ns() - start;
    int count = batches * threads;
    for (int i = 0; i < count; i++) sum += cost[i];
    qsort(cost, count, sizeof *cost, ascending);
    /* With threads, the rate of all of them together counts. */
    double each = threads > 1 ? whole / count / BATCH : cost[count / 2];
    printf("%.1f %.1f %ld\n", each, sum / count, (long)count * BATCH);
    if (access(file, F_OK) == 0) unlink(file);
    return 0;
}
