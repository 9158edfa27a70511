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

/* One descriptor or stream of each kind. */
struct places {
    int null, fd, pipes[2];
    FILE *out, *in;
};

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

static int is(const char *other) { return !strcmp(name, other); }

/* The file of the cases that read: 4 MB, in lines of 40 bytes. */
static void fill(void) {
    FILE *stream = fopen(file, "w");
    check(stream != NULL);
    for (int line = 0; line < BATCH * 4096 / 40; line++) fprintf(stream, "%039d\n", line);
    check(fwrite(block, 1, 4096, stream) == 4096 && fclose(stream) == 0);
}

#define EACH(call) for (int i = 0; i < BATCH; i++) check(call)

/* A batch of the calls; ns each. */
static double calls(struct places *at) {
    /* Over the same 4 MB, so that pages are cached and the disk stays idle. */
    if (at->fd >= 0) check(lseek(at->fd, 0, SEEK_SET) == 0);
    if (at->in) rewind(at->in);
    if (is("read-1B-pipe")) check(write(at->pipes[1], block, BATCH) == BATCH);
    double start = now_ns();
    if (!strncmp(name, "write-1B", 8)) EACH(write(at->null, block, 1) == 1);
    else if (is("write-4K-file")) EACH(write(at->fd, block, 4096) == 4096);
    else if (is("read-4K-file")) EACH(read(at->fd, block, 4096) == 4096);
    else if (is("pread-1B-file")) EACH(pread(at->fd, block, 1, i * 4000) == 1);
    else if (is("read-1B-pipe")) EACH(read(at->pipes[0], block, 1) == 1);
    else if (is("fread-4K-file")) EACH(fread(block, 4096, 1, at->in) == 1);
    else if (is("fgets-40B-file")) EACH(fgets(block, 100, at->in) == block);
    else if (is("getc-file")) EACH(getc(at->in) != EOF);
    else if (is("open-close-file")) EACH(close(open(file, O_RDONLY)) == 0);
    else if (is("fwrite-16B")) EACH(fwrite(block, 16, 1, at->out) == 1);
    else EACH(fputc('x', at->out) != EOF);
    return (now_ns() - start) / BATCH;
}

/* One thread's batches; their costs go to `cost`. */
static void *work(void *cost) {
    double *out = cost;
    struct places at = {.fd = -1};
    check((at.null = open("/dev/null", O_WRONLY)) >= 0 && (at.out = fopen("/dev/null", "w")));
    if (is("write-4K-file")) {
        check((at.fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600)) >= 0);
    } else if (is("read-1B-pipe")) {
        check(pipe(at.pipes) == 0);
    } else if (strstr(name, "-file")) {
        fill();
        check((at.fd = open(file, O_RDONLY)) >= 0 && (at.in = fopen(file, "r")));
    }
    for (int batch = 0; batch < batches; batch++) out[batch] = calls(&at);
    fclose(at.out);
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
