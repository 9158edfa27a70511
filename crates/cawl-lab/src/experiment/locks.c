/* Threads that take a lock, and threads that write to one file: what their time goes to.
 *
 *   sections LOCK THREADS WORK SECTION OUTSIDE TIME IO BYTES LENGTH FOLDER
 *
 * THREADS threads take LOCK (mutex, spin, adaptive), hold it for SECTION µs, release it and stay outside for
 * TIME µs, for LENGTH ms. WORK and OUTSIDE: `computes` for so long, `sleeps` once for so long, or `naps`:
 * usleep(1) so many times. IO: `inside` or `outside` the section each writes BYTES to a file of its own in
 * FOLDER, over and over 1 MiB; or `none`.
 *
 * Prints for each thread `thread SECTIONS WALL IO LOCK PROCESSOR COMPUTING SLEEPING`, in ns: the time in
 * writes, for the lock, ready but without a processor, computing and asleep. At the end `all WALL PROCESSOR`,
 * where PROCESSOR is the time that all of them were on one.
 *
 *   writes THREADS CALLS BYTES over|append FLAGS FILE…
 *
 * THREADS threads make CALLS writes of BYTES in all, each thread to the file of its number, modulo the number
 * of files: `over` a part of it that is the thread's own, or behind its end. FLAGS: `cached` or `direct`.
 * Prints for each call `THREAD FILE OFFSET START DURATION RAN DELAYED`, in ns: its time on a processor and
 * its run delay.
 *
 * Times are of CLOCK_MONOTONIC, run delay is that of /proc/thread-self/schedstat. Each thread has the
 * processor of its number, modulo the number of processors. The program ends with its parent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* The parts of a turn: outside, writing, the lock, the section. */
enum { OUTSIDE, IO, LOCK, SECTION, PARTS };
enum { PAGE = 4096, FILE_SIZE = 1 << 20, REGION = 4, MAX_THREADS = 64 };
/* No run delay is looked for in less, in ns: what an interrupt takes. */
enum { SHORT = 50000 };

struct call {
    uint64_t offset, start, duration, ran, delayed;
};

struct thread {
    pthread_t thread;
    int number, schedstat, file;
    char *data;
    uint64_t sections, start, end, parts[PARTS], delayed;
    struct call *calls;
};

static struct thread threads[MAX_THREADS];
static int count;
static uint64_t bytes, each;
static pthread_barrier_t begin;
static uint64_t of_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t now(void) { return of_clock(CLOCK_MONOTONIC); }

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* The run delay of the calling thread. The first number, its time on a processor, is as of the latest
 * tick. */
static uint64_t run_delay(const struct thread *me) {
    char text[96], *rest = text;
    ssize_t length = pread(me->schedstat, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    strtoull(rest, &rest, 10);
    return strtoull(rest, &rest, 10);
}

static void compute(uint64_t turns) {
    uint64_t made_up = turns;
    for (uint64_t i = 0; i < turns; i++) {
        made_up = made_up * 6364136223846793005u + 1;
        /* Keeps the compiler from removing it. */
        __asm__ volatile("" : "+r"(made_up));
    }
}

/* Turns of `compute` in a ms, and ns of a usleep(1): the fastest of some. */
static uint64_t turns_per_ms, sleep_ns;

static void calibrate(void) {
    enum { TURNS = 20000 };
    uint64_t least = UINT64_MAX;
    sleep_ns = UINT64_MAX;
    for (int i = 0; i < 20; i++) {
        uint64_t start = now();
        compute(TURNS);
        uint64_t between = now();
        usleep(1);
        uint64_t slept = now() - between;
        least = between - start < least ? between - start : least;
        sleep_ns = slept < sleep_ns ? slept : sleep_ns;
    }
    turns_per_ms = TURNS * 1000000ull / (least ? least : 1);
}

/* Begins a thread: its processor and its own count of run delay. */
static void settle(struct thread *me) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (!sched_getaffinity(0, sizeof all, &all) && CPU_COUNT(&all)) {
        int left = me->number % CPU_COUNT(&all), cpu = 0;
        for (; !CPU_ISSET(cpu, &all) || left-- > 0; cpu++)
            ;
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    }
    me->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    pthread_barrier_wait(&begin);
}

static void start(void *(*routine)(void *)) {
    pthread_barrier_init(&begin, 0, count);
    for (int i = 0; i < count; i++) {
        struct thread *one = &threads[i];
        one->number = i;
        if (posix_memalign((void **)&one->data, PAGE, bytes ? bytes : PAGE))
            fail("there is no memory");
        memset(one->data, i + 1, bytes ? bytes : PAGE);
        if ((errno = pthread_create(&one->thread, 0, routine, one)))
            fail("cannot start a thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i].thread, 0);
}

static void write_at(struct thread *me, uint64_t offset) {
    ssize_t done = pwrite(me->file, me->data, bytes, offset);
    if (done != (ssize_t)bytes) {
        errno = done < 0 ? errno : ENOSPC;
        fail("cannot write");
    }
}

static enum { MUTEX, SPIN, ADAPTIVE } kind;
static pthread_mutex_t mutex;
static pthread_spinlock_t spin;
static enum work { COMPUTES, SLEEPS, NAPS } work, outside;
static int io_inside, io_outside;
static uint64_t section_us, outside_us, length_ns;

/* Which of these a word is; the first, if none. */
static int which(const char *word, const char *const words[3]) {
    for (int i = 0; i < 3; i++)
        if (!strcmp(word, words[i]))
            return i;
    return 0;
}

static void make_lock(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, kind == ADAPTIVE ? PTHREAD_MUTEX_ADAPTIVE_NP : PTHREAD_MUTEX_DEFAULT);
    pthread_mutex_init(&mutex, &attributes);
    pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
}

static void spend(enum work work, uint64_t us) {
    if (work == COMPUTES)
        compute(us * turns_per_ms / 1000);
    else if (work == SLEEPS)
        usleep(us);
    else
        while (us--)
            usleep(1);
}

/* What it should take, in ns. */
static uint64_t nominal(enum work work, uint64_t us) {
    uint64_t late = sleep_ns > 1000 ? sleep_ns - 1000 : 0;
    return us * 1000 + (work == NAPS ? us * late : work == SLEEPS ? late : 0);
}

/* Adds the parts of a turn. The run delay since the last look belongs to the parts that took longer than they
 * should, in proportion. */
static void account(struct thread *me, const uint64_t parts[PARTS], uint64_t *last) {
    const uint64_t wanted[PARTS] = {[OUTSIDE] = nominal(outside, outside_us),
                                    [SECTION] = nominal(work, section_us)};
    uint64_t over[PARTS], all = 0;
    for (int i = 0; i < PARTS; i++) {
        me->parts[i] += parts[i];
        over[i] = parts[i] > wanted[i] ? parts[i] - wanted[i] : 0;
        all += over[i];
    }
    if (all < SHORT)
        return;
    uint64_t next = run_delay(me);
    double delay = next - *last;
    *last = next;
    for (int i = 0; i < PARTS; i++) {
        uint64_t share = delay < all ? (uint64_t)(delay * over[i] / all) : over[i];
        me->parts[i] -= share;
        me->delayed += share;
    }
}

static void *take_turns(void *argument) {
    struct thread *me = argument;
    settle(me);
    uint64_t last = run_delay(me), place = 0;
    me->start = me->end = now();
    do {
        uint64_t parts[PARTS] = {0}, at = me->end, then;
        spend(outside, outside_us);
        then = now(), parts[OUTSIDE] = then - at, at = then;
        if (io_outside) {
            write_at(me, place++ * bytes % FILE_SIZE);
            then = now(), parts[IO] = then - at, at = then;
        }
        if (kind == SPIN)
            pthread_spin_lock(&spin);
        else
            pthread_mutex_lock(&mutex);
        then = now(), parts[LOCK] = then - at, at = then;
        spend(work, section_us);
        then = now(), parts[SECTION] = then - at, at = then;
        if (io_inside) {
            write_at(me, place++ * bytes % FILE_SIZE);
            then = now(), parts[IO] = then - at, at = then;
        }
        if (kind == SPIN)
            pthread_spin_unlock(&spin);
        else
            pthread_mutex_unlock(&mutex);
        then = now(), parts[LOCK] += then - at;
        account(me, parts, &last);
        me->sections++;
        me->end = now();
    } while (me->end - me->start < length_ns);
    return 0;
}

static int sections(char **arguments) {
    static const char *const kinds[] = {"mutex", "spin", "adaptive"};
    static const char *const works[] = {"computes", "sleeps", "naps"};
    kind = which(arguments[0], kinds);
    count = atoi(arguments[1]);
    work = which(arguments[2], works), section_us = atoll(arguments[3]);
    outside = which(arguments[4], works), outside_us = atoll(arguments[5]);
    io_inside = !strcmp(arguments[6], "inside"), io_outside = !strcmp(arguments[6], "outside");
    bytes = atoll(arguments[7]), length_ns = atoll(arguments[8]) * 1000000ull;
    if (count < 1 || count > MAX_THREADS || bytes > FILE_SIZE)
        return 2;
    make_lock();
    calibrate();
    for (int i = 0; i < count && (io_inside || io_outside); i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/locks-%d", arguments[9], i);
        threads[i].file = open(path, O_RDWR | O_CLOEXEC);
        if (threads[i].file < 0)
            fail("cannot open a file");
    }
    uint64_t before = of_clock(CLOCK_PROCESS_CPUTIME_ID), first = UINT64_MAX, last = 0;
    start(take_turns);
    uint64_t processor = of_clock(CLOCK_PROCESS_CPUTIME_ID) - before;
    for (int i = 0; i < count; i++) {
        struct thread *one = &threads[i];
        uint64_t asleep = (work != COMPUTES) * one->parts[SECTION] + (outside != COMPUTES) * one->parts[OUTSIDE];
        uint64_t computed = one->parts[SECTION] + one->parts[OUTSIDE] - asleep;
        printf("thread %lu %lu %lu %lu %lu %lu %lu\n", one->sections, one->end - one->start, one->parts[IO],
               one->parts[LOCK], one->delayed, computed, asleep);
        first = one->start < first ? one->start : first;
        last = one->end > last ? one->end : last;
    }
    printf("all %lu %lu\n", last - first, processor);
    return 0;
}

static int appends, file_count;
static int files[MAX_THREADS];
static _Atomic uint64_t ends[MAX_THREADS];

static void *write_calls(void *argument) {
    struct thread *me = argument;
    int file = me->number % file_count;
    uint64_t first = file_count == 1 ? me->number * REGION * bytes : 0;
    me->file = files[file];
    settle(me);
    for (uint64_t i = 0; i < each; i++) {
        struct call *call = &me->calls[i];
        call->offset = appends ? atomic_fetch_add(&ends[file], bytes) : first + i % REGION * bytes;
        uint64_t delayed = run_delay(me), ran = of_clock(CLOCK_THREAD_CPUTIME_ID);
        call->start = now();
        write_at(me, call->offset);
        call->duration = now() - call->start;
        call->ran = of_clock(CLOCK_THREAD_CPUTIME_ID) - ran;
        call->delayed = run_delay(me) - delayed;
    }
    return 0;
}

static int writes(char **arguments) {
    count = atoi(arguments[0]), bytes = atoll(arguments[2]);
    appends = !strcmp(arguments[3], "append");
    int direct = !strcmp(arguments[4], "direct") ? O_DIRECT : 0;
    if (count < 1 || count > MAX_THREADS)
        return 2;
    each = atoll(arguments[1]) / count;
    for (char **path = arguments + 5; *path && file_count < MAX_THREADS; path++) {
        files[file_count] = open(*path, O_RDWR | O_CLOEXEC | direct);
        if (files[file_count++] < 0)
            fail("cannot open a file");
    }
    if (!file_count)
        return 2;
    for (int i = 0; i < count; i++) {
        threads[i].calls = calloc(each, sizeof *threads[i].calls);
        if (each && !threads[i].calls)
            fail("there is no memory");
        /* Touched before it counts. */
        memset(threads[i].calls, 1, each * sizeof *threads[i].calls);
    }
    start(write_calls);
    for (int i = 0; i < count; i++)
        for (uint64_t k = 0; k < each; k++) {
            struct call *call = &threads[i].calls[k];
            printf("%d %d %lu %lu %lu %lu %lu\n", i, i % file_count, call->offset, call->start, call->duration,
                   call->ran, call->delayed);
        }
    return 0;
}

int main(int argc, char **argv) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc == 12 && !strcmp(argv[1], "sections"))
        return sections(argv + 2);
    if (argc > 7 && !strcmp(argv[1], "writes"))
        return writes(argv + 2);
    fprintf(stderr, "wrong arguments\n");
    return 2;
}
