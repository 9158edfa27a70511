/* Makes the calls of a script in the folder that it is started in.
 *
 * Standard input is the script (script.rs has its layout), standard output takes the results: the steps with
 * their times, or what failed. Every recorded process is a process here and every thread a thread, so that
 * descriptors, positions and streams are shared as they were. All are one process group, which is killed when
 * a call fails or the parent dies. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Operations by their codes in a trace, and steps that are no calls of it. */
enum {
    OPEN = 1, CLOSE = 2, DUP = 3, SEEK = 4, WRITE = 10, PWRITE = 11, WRITEV = 12, PWRITEV = 13, COPY_RANGE = 14,
    SENDFILE = 15, TRUNCATE = 20, ALLOCATE = 21, UNLINK = 22, RENAME = 23, FSYNC = 30, FDATASYNC = 31, SYNC = 32,
    SYNCFS = 33, SYNC_RANGE = 34, ADVISE = 36, STREAM_WRITE = 40, STREAM_FLUSH = 41, STREAM_SEEK = 42, STREAM_CLOSE = 43,
    STREAM_OPEN = 45, FORK = 60, START = 200, WAIT = 201, PAUSE = 202, SET_FLAGS = 203, ORDER = 204
};
/* Flags of a step: no call of the trace; the descriptor is moved to `offset` first; by name instead of
 * descriptor; without a name; a stream of an open descriptor; the time stamps are read first. */
enum { SILENT = 1, POSITION = 2, BY_NAME = 4, NAMELESS = 8, ON_DESCRIPTOR = 16, STAMPS_READ = 64 };
enum { NONE = 0xffffffff, PAGE = 4096, SMALL = 256 << 10, WINDOW = 1 << 20, POOL = 64 << 20, STACK = 256 << 10 };
/* A thread that sleeps wakes so much before its time and waits awake, in ns. */
enum { AWAKE = 50000 };

struct header {
    uint64_t magic, steps, names_size, largest, source;
    uint32_t threads, processes, names, slots, fills, random;
};
struct step {
    union { int64_t think; uint64_t late; };
    union { uint64_t offset, duration; };
    uint64_t size;
    uint32_t arg, slot, file;
    uint16_t flags;
    uint8_t op, unused;
};
struct thread_info { uint64_t first, count; uint32_t process, unused; };
struct process_info { uint32_t first_thread, threads, is_root, flushes; };
struct fill { uint64_t size; uint32_t file, unused; };
struct stream { FILE *file; char *buffer; };
/* Shared by all processes. */
struct gate { sem_t open; uint64_t base; _Atomic uint64_t passed; } __attribute__((aligned(64)));
struct life { sem_t done, ended; _Atomic uint64_t end; _Atomic uint32_t left; pid_t pid; };
struct message { uint64_t kind, about, error; struct step step; };
enum { RESULTS = 1, FAILED = 2, NOT_FILLED = 3, LOST = 4 };

static struct header header;
static struct step *steps;
static struct thread_info *threads;
static struct process_info *processes;
static struct fill *fills;
static struct gate *gates;
static struct life *lives;
static const char **names;
static char *pool;
static int source = -1, out = -1;
/* Of this process. */
static int *fds;
static struct stream *streams;
static uint32_t current = NONE;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void say(uint64_t kind, uint64_t about, int error, const struct step *step) {
    struct message message = {.kind = kind, .about = about, .error = error};
    if (step)
        message.step = *step;
    if (write(out, &message, sizeof message) < 0)
        _exit(1);
}

/* The reader learns why, and all processes end. */
static void give_up(uint64_t kind, uint64_t about, int error) {
    say(kind, about, error, NULL);
    kill(0, SIGKILL);
    _exit(1);
}

/* A call failed. */
static void fail(const struct step *step, int error) {
    say(FAILED, 0, error, step);
    kill(0, SIGKILL);
    _exit(1);
}

static void end_all(int signal) {
    (void)signal;
    kill(0, SIGKILL);
}

static void need(const void *memory) {
    if (!memory || memory == MAP_FAILED)
        give_up(LOST, 0, errno);
}

static void *shared(size_t size) {
    void *memory = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(memory);
    return memory;
}

static void take(void *to, size_t size) {
    char *at = to;
    while (size) {
        ssize_t got = read(0, at, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            _exit(1);
        at += got, size -= got;
    }
}

static void hand(const void *from, size_t size) {
    const char *at = from;
    while (size) {
        ssize_t put = write(out, at, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            _exit(1);
        at += put, size -= put;
    }
}

/* Bytes that no device can compress, in the first `random` of each page, without an end of line, which would
 * empty some streams. They repeat after POOL bytes; the memory behind shows the same bytes again, so that a
 * call of any size finds its data. */
static void fill_pool(void) {
    size_t room = (header.largest / POOL + 2) * (size_t)POOL;
    pool = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(pool);
    need(mmap(pool, POOL, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    for (size_t at = POOL; at < room; at += POOL)
        need(mremap(pool, 0, POOL, MREMAP_MAYMOVE | MREMAP_FIXED, pool + at));
    uint64_t seed = 88172645463325252u;
    for (size_t page = 0; page < POOL; page += PAGE)
        for (size_t at = 0; at < header.random; at += sizeof seed) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            memcpy(pool + page + at, &seed, sizeof seed);
        }
    for (char *at = pool; (at = memchr(at, '\n', pool + POOL - at)); at++)
        *at = '\v';
}

/* Small calls take their data from the processor's cache, as in programs that have just made them, large ones
 * from memory. */
static char *data(uint64_t size, uint64_t turn) {
    return pool + (size < SMALL ? turn * PAGE % WINDOW : turn * size % POOL / PAGE * PAGE);
}

/* Makes a file that was there before the trace. */
static void make(const struct fill *fill) {
    int fd = open(names[fill->file], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        give_up(NOT_FILLED, fill->file, errno);
    for (uint64_t at = 0; at < fill->size;) {
        uint64_t size = fill->size - at < WINDOW ? fill->size - at : WINDOW;
        ssize_t put = write(fd, data(size, at / WINDOW), size);
        if (put <= 0 && errno != EINTR)
            give_up(NOT_FILLED, fill->file, put ? errno : ENOSPC);
        at += put > 0 ? put : 0;
    }
    if (fsync(fd) || close(fd))
        give_up(NOT_FILLED, fill->file, errno);
}

/* Returns when it is time; the moment. */
static uint64_t wait_until(uint64_t due) {
    uint64_t at = now();
    if (due > at + AWAKE) {
        uint64_t wake = due - AWAKE;
        struct timespec t = {wake / 1000000000, wake % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
            ;
        at = now();
    }
    while (at < due)
        at = now();
    return at;
}

/* A child that did not end by itself: no memory, most likely. */
static void reap(void) {
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0)
        if (status)
            give_up(LOST, 0, status);
}

/* Waits for another process, which may die instead. */
static void await(sem_t *semaphore) {
    for (;;) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_sec++;
        if (!sem_timedwait(semaphore, &t))
            return;
        reap();
    }
}

/* Until a thread has passed one of its steps. Most often it has. */
static void order(uint32_t thread, uint64_t step) {
    _Atomic uint64_t *passed = &gates[thread].passed;
    for (unsigned turn = 0; atomic_load_explicit(passed, memory_order_acquire) <= step; turn++) {
        struct timespec t = {0, AWAKE / 2};
        if (turn < 100)
            sched_yield();
        else
            nanosleep(&t, NULL);
    }
}

static int open_file(const struct step *s) {
    if (!(s->flags & NAMELESS))
        return open(names[s->file], s->arg, 0600);
    int fd = open(".", (s->arg & ~(O_CREAT | O_TRUNC)) | O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0 || errno != EOPNOTSUPP)
        return fd;
    fd = open(names[s->file], s->arg | O_CREAT | O_EXCL, 0600);
    return fd >= 0 && unlink(names[s->file]) ? -1 : fd;
}

static FILE *open_stream(const struct step *s) {
    char mode[4] = "r+";
    if (s->arg & (O_APPEND | O_TRUNC))
        strcpy(mode, s->arg & O_APPEND ? "a" : "w");
    if (s->arg & O_CLOEXEC)
        strcat(mode, "e");
    if (s->flags & ON_DESCRIPTOR)
        return fdopen(fds[s->slot], mode);
    /* fopen has no such flags. */
    if (!(s->flags & NAMELESS) && !(s->arg & (O_SYNC | O_DSYNC | O_DIRECT)))
        return fopen(names[s->file], mode);
    int fd = open_file(s);
    return fd < 0 ? NULL : fdopen(fd, mode);
}

/* `arg`: where the last end of line is, from 1; 0 if there is none that matters. */
static const char *stream_data(const struct step *s, char *from, char **own, uint64_t *room) {
    if (!s->arg)
        return from;
    if (*room < s->size) {
        need(*own = realloc(*own, s->size));
        *room = s->size;
    }
    memcpy(*own, from, s->size);
    (*own)[s->arg - 1] = '\n';
    return *own;
}

static ssize_t copy(const struct step *s, uint64_t done) {
    off_t at = done % header.source;
    uint64_t size = s->size - done < header.source - at ? s->size - done : header.source - at;
    return s->op == SENDFILE ? sendfile(fds[s->slot], source, &at, size)
                             : copy_file_range(source, &at, fds[s->slot], NULL, size, 0);
}

static ssize_t put(const struct step *s, char *from, uint64_t done) {
    int fd = fds[s->slot];
    struct iovec piece = {from + done, s->size - done};
    switch (s->op) {
    case WRITE: return write(fd, piece.iov_base, piece.iov_len);
    case PWRITE: return pwrite(fd, piece.iov_base, piece.iov_len, s->offset + done);
    case WRITEV: return writev(fd, &piece, 1);
    case PWRITEV:
        return s->arg ? pwritev2(fd, &piece, 1, s->offset + done, s->arg) : pwritev(fd, &piece, 1, s->offset + done);
    default: return copy(s, done);
    }
}

/* Until all is written. */
static int put_all(const struct step *s, char *from) {
    uint64_t done = 0;
    do {
        ssize_t wrote = put(s, from, done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        if (!wrote && s->size)
            return errno = ENOSPC, -1;
        done += wrote;
    } while (done < s->size);
    return 0;
}

static int allocate(const struct step *s) {
    int failed = fallocate(fds[s->slot], s->arg, s->offset, s->size);
    if (!failed || errno != EOPNOTSUPP || s->arg)
        return failed;
    /* As the C library does it where the filesystem cannot. */
    errno = posix_fallocate(fds[s->slot], s->offset, s->size);
    return errno ? -1 : 0;
}

static int perform(const struct step *s, char *from, const char *text) {
    int fd = s->slot == NONE ? -1 : fds[s->slot];
    FILE *stream = s->slot == NONE ? NULL : streams[s->slot].file;
    switch (s->op) {
    case OPEN: return (fds[s->slot] = open_file(s)) < 0 ? -1 : 0;
    case CLOSE: return close(fd);
    case DUP: return (fds[s->arg] = s->flags & ON_DESCRIPTOR ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : dup(fd)) < 0 ? -1 : 0;
    case SEEK: return lseek(fd, s->offset, SEEK_SET) < 0 ? -1 : 0;
    case WRITE: case PWRITE: case WRITEV: case PWRITEV: case COPY_RANGE: case SENDFILE: return put_all(s, from);
    case TRUNCATE: return s->flags & BY_NAME ? truncate(names[s->file], s->offset) : ftruncate(fd, s->offset);
    case ALLOCATE: return allocate(s);
    case UNLINK: return unlink(names[s->file]);
    case RENAME: return rename(names[s->file], names[s->arg]);
    case FSYNC: return fsync(fd);
    case FDATASYNC: return fdatasync(fd);
    case SYNC: return sync(), 0;
    case SYNCFS: return syncfs(fd);
    case SYNC_RANGE: return sync_file_range(fd, s->offset, s->size, s->arg);
    case ADVISE: return (errno = posix_fadvise(fd, s->offset, s->size, s->arg)) ? -1 : 0;
    case STREAM_WRITE: return fwrite(text, 1, s->size, stream) == s->size ? 0 : -1;
    case STREAM_FLUSH: return fflush(stream);
    case STREAM_SEEK: return fseeko(stream, s->offset, SEEK_SET);
    case STREAM_CLOSE: return fclose(stream);
    case STREAM_OPEN:
        stream = streams[s->slot].file = open_stream(s);
        if (stream)
            fds[s->slot] = fileno(stream);
        return stream ? 0 : -1;
    case SET_FLAGS: return fcntl(fd, F_SETFL, s->arg);
    default: return errno = ENOSYS, -1;
    }
}

/* What belongs to a call but is not part of it. `size` is a new stream's kind of buffer, `offset` its size. */
static void settle(const struct step *s, uint64_t offset) {
    struct stream *stream = &streams[s->slot];
    if (s->op == STREAM_CLOSE) {
        free(stream->buffer);
        *stream = (struct stream){0};
    } else if (s->op == STREAM_OPEN) {
        static const int kinds[] = {-1, _IOFBF, _IOLBF, _IONBF};
        int kind = kinds[s->size & 3];
        if (kind < 0)
            return;
        if (kind != _IONBF)
            need(stream->buffer = malloc(offset));
        setvbuf(stream->file, stream->buffer, kind, offset);
    }
}

static void run_process(uint32_t process, uint64_t base) __attribute__((noreturn));
static void *run_thread(void *at);

static void start(const struct step *s, uint64_t base) {
    struct gate *gate = &gates[s->arg];
    gate->base = base;
    if (threads[s->arg].process != current) {
        sem_post(&gate->open);
        return;
    }
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, run_thread, &threads[s->arg]);
    if (error)
        fail(s, error);
    pthread_attr_destroy(&attributes);
}

static void run(uint32_t index) {
    uint64_t end = gates[index].base, turn = index, room = 0;
    char *own = NULL;
    struct step *s = steps + threads[index].first;
    _Atomic uint64_t *passed = &gates[index].passed;
    struct step *first = s, *last = s + threads[index].count;
    for (; s < last; s++, turn++) {
        atomic_store_explicit(passed, s - first, memory_order_release);
        uint64_t due = end + (s->think > 0 ? s->think : 0), offset = s->offset;
        switch (s->op) {
        case START: start(s, end); continue;
        case PAUSE: end = due; continue;
        case ORDER: order(s->arg, offset); continue;
        case WAIT: {
            struct life *life = &lives[s->arg];
            await(&life->ended);
            sem_post(&life->ended);
            /* A child of this process has also emptied its streams then. */
            int status = 0;
            while (waitpid(life->pid, &status, 0) < 0 && errno == EINTR)
                ;
            if (status)
                give_up(LOST, 0, status);
            uint64_t over = atomic_load(&life->end);
            end = over > end ? over : end;
            continue;
        }
        default: break;
        }
        if (s->flags & POSITION && lseek(fds[s->slot], offset, SEEK_SET) < 0)
            fail(s, errno);
        struct stat stamps;
        if (s->flags & STAMPS_READ && fstat(fds[s->slot], &stamps))
            fail(s, errno);
        char *from = data(s->size, turn);
        const char *text = s->op == STREAM_WRITE ? stream_data(s, from, &own, &room) : NULL;
        if (s->op == FORK) {
            uint64_t began = wait_until(due);
            pid_t pid = fork();
            if (pid < 0)
                fail(s, errno);
            if (!pid)
                run_process(s->arg, s->flags & SILENT ? began : now());
            end = s->flags & SILENT ? due : now();
            s->late = began - due, s->duration = end > began ? end - began : 0;
            reap();
            continue;
        }
        if (s->flags & SILENT) {
            if (perform(s, from, text))
                fail(s, errno);
            if (s->op == STREAM_OPEN)
                settle(s, offset);
            continue;
        }
        uint64_t began = wait_until(due);
        int failed = perform(s, from, text);
        end = now();
        if (failed)
            fail(s, errno);
        if (s->op == STREAM_OPEN || s->op == STREAM_CLOSE)
            settle(s, offset);
        s->late = began - due, s->duration = end - began;
    }
    atomic_store_explicit(passed, s - first, memory_order_release);
    free(own);
    struct life *life = &lives[threads[index].process];
    uint64_t latest = atomic_load(&life->end);
    wait_until(end);
    while (latest < end && !atomic_compare_exchange_weak(&life->end, &latest, end))
        ;
    if (atomic_fetch_sub(&life->left, 1) == 1)
        sem_post(&life->done);
}

static void *run_thread(void *at) {
    run((struct thread_info *)at - threads);
    return NULL;
}

/* In the process: its first thread, then the wait for the others. */
static void run_process(uint32_t process, uint64_t base) {
    current = process;
    struct process_info *info = &processes[process];
    struct life *life = &lives[process];
    life->pid = getpid();
    if (info->first_thread == NONE) {
        atomic_store(&life->end, base);
    } else {
        if (info->is_root)
            await(&gates[info->first_thread].open);
        else
            gates[info->first_thread].base = base;
        run(info->first_thread);
        while (sem_wait(&life->done))
            ;
    }
    sem_post(&life->ended);
    if (info->flushes)
        exit(0);
    _exit(0);
}

static void read_script(void) {
    take(&header, sizeof header);
    steps = shared(header.steps * sizeof *steps);
    gates = shared(header.threads * sizeof *gates);
    lives = shared(header.processes * sizeof *lives);
    need(threads = calloc(header.threads + 1, sizeof *threads));
    need(processes = calloc(header.processes + 1, sizeof *processes));
    need(fills = calloc(header.fills + 1, sizeof *fills));
    need(names = calloc(header.names + 1, sizeof *names));
    need(fds = calloc(header.slots + 1, sizeof *fds));
    need(streams = calloc(header.slots + 1, sizeof *streams));
    char *text = malloc(header.names_size + 1);
    need(text);
    take(threads, header.threads * sizeof *threads);
    take(processes, header.processes * sizeof *processes);
    take(fills, header.fills * sizeof *fills);
    take(text, header.names_size);
    for (uint32_t at = 0; at < header.names; at++, text += strlen(text) + 1)
        names[at] = text;
    take(steps, header.steps * sizeof *steps);
    for (uint32_t at = 0; at < header.threads; at++)
        sem_init(&gates[at].open, 1, 0);
    for (uint32_t at = 0; at < header.processes; at++) {
        sem_init(&lives[at].done, 1, 0);
        sem_init(&lives[at].ended, 1, 0);
        lives[at].left = processes[at].threads;
    }
}

int main(void) {
    out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    signal(SIGTERM, end_all);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_TIMERSLACK, 1);
    struct rlimit limit;
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    read_script();
    fill_pool();
    for (uint32_t at = 0; at < header.fills; at++)
        make(&fills[at]);
    if (header.fills) {
        int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (here < 0 || syncfs(here) || close(here))
            give_up(NOT_FILLED, 0, errno);
    }
    /* The source of copies is the first file. */
    if (header.source && header.processes && (source = open(names[1], O_RDONLY | O_CLOEXEC)) < 0)
        give_up(NOT_FILLED, 1, errno);
    for (uint32_t at = 0; at < header.processes; at++)
        if (processes[at].is_root) {
            pid_t pid = fork();
            if (pid < 0)
                give_up(LOST, 0, errno);
            if (!pid)
                run_process(at, 0);
        }
    uint64_t began = now(), end = began;
    /* Of a root that nobody starts. */
    for (uint32_t at = 0; at < header.processes; at++)
        if (processes[at].is_root == 2) {
            gates[processes[at].first_thread].base = began;
            sem_post(&gates[processes[at].first_thread].open);
        }
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR;)
        if (pid > 0 && status)
            give_up(LOST, 0, status);
    for (uint32_t at = 0; at < header.processes; at++)
        end = lives[at].end > end ? lives[at].end : end;
    say(RESULTS, end - began, 0, NULL);
    hand(steps, header.steps * sizeof *steps);
    return 0;
}
