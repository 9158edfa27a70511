/* Writes a file as its arguments say, times each call, and prints the times at the end.
 *
 * Arguments: FILE -c bytes per call, -t bytes in all, -f d/s O_DIRECT/O_SYNC, -b part of a call to seek back
 * before each one, -d seconds to wait before each one, -l through a stream, -s fsync after calls, -r random
 * offsets.
 * Environment: SPIN=1 computes instead of sleeping; FSYNC_EVERY=n; REWRITE=1 writes and syncs the file first,
 * so that it is cached; IDLE_EVERY8=s waits after every eighth call; STEP=n makes each call n bytes larger
 * than the one before; WARM=n touches n bytes of memory first and frees them piece by piece as the growing
 * file needs page cache, so that a virtual machine's host cannot take them back before. HOLD=n writes
 * nothing: it occupies free memory that lies in pieces, at most n bytes, prints `ready`, and keeps it until
 * its input ends.
 *
 * Prints `ready`, waits a little, and when all calls are made prints `OP OFFSET SIZE START DURATION` for
 * each, in ns of CLOCK_MONOTONIC; durations are without the cost of reading the clock. It ends with its
 * parent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, ALIGNMENT = 64 << 10, LARGE = 256 << 10, HUGE = 2 << 20, SOURCE = 64 << 20, LEAD_NS = 100000000,
       LEAD = 4 * HUGE };

struct call {
    uint64_t offset, size, start, duration;
    const char *op;
};

static struct call *calls;
static size_t made;
/* Keeps the compiler from removing the computation. */
volatile uint64_t made_up;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The cost of reading the clock. */
static uint64_t clocks_own(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start = now(), span = now() - start;
        least = span < least ? span : least;
    }
    return least;
}

static uint64_t own;

/* Touched memory that is not freed yet, and the size of the pieces in which it is freed. */
static char *warm;
static size_t warm_left, piece;

/* Frees `size` bytes, in pieces of the size that the kernel allocates next: huge pages for large folios,
 * small pages for folios of one page, a few at a time, since the call after it is slower. Pieces of another
 * size would stay in the free lists, and the kernel would allocate cold memory instead. */
static void give_back(uint64_t size) {
    static uint64_t owed;
    owed += size;
    size_t length = owed / piece * piece;
    if (length > warm_left)
        length = warm_left;
    if (length)
        munmap(warm, length);
    warm += length, warm_left -= length, owed -= length;
}

static void fail(const char *what);

/* Free pages in pieces smaller than a huge page. The zones below Normal are used only when it is empty. */
static uint64_t pages_in_pieces(void) {
    enum { ORDERS = 9 };
    char line[1024], zone[16];
    uint64_t pages = 0;
    int at;
    FILE *file = fopen("/proc/buddyinfo", "r");
    if (!file)
        fail("cannot read /proc/buddyinfo");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "Node %*d, zone %15s%n", zone, &at) != 1 || !strncmp(zone, "DMA", 3))
            continue;
        char *rest = line + at;
        for (int order = 0; order < ORDERS; order++)
            pages += strtoull(rest, &rest, 10) << order;
    }
    fclose(file);
    return pages;
}

/* Occupies the free pieces page by page: the kernel splits small pieces first. After that, folios of any size
 * come from huge pages, those freed last first. Some pieces cannot be allocated, so it stops when there is no
 * progress. */
static void hold(uint64_t most) {
    uint64_t left = most / PAGE, before = UINT64_MAX;
    for (;;) {
        uint64_t pages = pages_in_pieces();
        if (pages > before / 2 || !left)
            break;
        before = pages;
        pages = pages < left ? pages : left;
        char *held = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (!pages || held == MAP_FAILED)
            break;
        madvise(held, pages * PAGE, MADV_NOHUGEPAGE);
        for (uint64_t page = 0; page < pages; page++)
            held[page * PAGE] = 1;
        left -= pages;
    }
}

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double number(const char *name) {
    const char *value = getenv(name);
    return value ? atof(value) : 0;
}

static void pass(double seconds, int computing) {
    if (seconds <= 0)
        return;
    if (!computing) {
        struct timespec t = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        while (nanosleep(&t, &t) && errno == EINTR)
            ;
        return;
    }
    /* Hashing, as the paper's program does. */
    uint64_t hash = 1469598103934665603u, end = now() + (uint64_t)(seconds * 1e9);
    while (now() < end)
        for (int i = 0; i < 1000; i++)
            hash = (hash ^ (hash >> 29 ^ i)) * 1099511628211u;
    made_up = hash;
}

static void note(const char *op, uint64_t offset, uint64_t size, uint64_t start) {
    struct call *call = &calls[made++];
    uint64_t duration = now() - start;
    call->duration = duration > own ? duration - own : 0;
    call->op = op, call->offset = offset, call->size = size, call->start = start;
}

static void put(int fd, const char *data, uint64_t size) {
    while (size) {
        ssize_t wrote = write(fd, data, size);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            fail("a write failed");
        data += wrote, size -= wrote;
    }
}

/* All bytes are equal and not zero, so that an emulated disk need not store them, wherever they end up in a
 * page. */
static char *content(size_t length) {
    char *data = aligned_alloc(ALIGNMENT, (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!data)
        fail("no memory");
    memset(data, 1, length);
    return data;
}

int main(int argc, char **argv) {
    uint64_t chunk = 0, total = 0;
    double back = 0, wait = 0;
    int flags = 0, stream = 0, sync = 0, shuffled = 0, option;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((option = getopt(argc, argv, "c:t:f:b:d:lsr")) != -1) {
        switch (option) {
        case 'c': chunk = strtoull(optarg, 0, 10); break;
        case 't': total = strtoull(optarg, 0, 10); break;
        case 'f': flags = (strchr(optarg, 'd') ? O_DIRECT : 0) | (strchr(optarg, 's') ? O_SYNC : 0); break;
        case 'b': back = atof(optarg); break;
        case 'd': wait = atof(optarg); break;
        case 'l': stream = 1; break;
        case 's': sync = 1; break;
        case 'r': shuffled = 1; break;
        default: return 2;
        }
    }
    if (number("HOLD") > 0) {
        char byte;
        hold((uint64_t)number("HOLD"));
        put(1, "ready\n", 6);
        while (read(0, &byte, 1) > 0)
            ;
        return 0;
    }
    if (optind + 1 != argc || !chunk || total < chunk) {
        fprintf(stderr, "wrong arguments\n");
        return 2;
    }
    uint64_t step = number("STEP"), every = number("FSYNC_EVERY");
    int computing = number("SPIN") > 0;
    double idle = number("IDLE_EVERY8");

    /* The number of calls and the largest size. */
    size_t count = 0;
    uint64_t largest = chunk, size = chunk;
    for (uint64_t sum = 0; sum + size <= total; sum += size, size += step)
        largest = size, count++;
    calls = calloc(2 * count + 1, sizeof *calls);
    size_t source = largest > SOURCE ? largest : SOURCE;
    char *data = content(source);
    if (!calls)
        fail("no memory");
    /* Touches the pages before anything is timed. */
    for (size_t at = 0; at < 2 * count + 1; at += 16)
        *(volatile uint64_t *)&calls[at].size = 0;
    own = clocks_own();
    warm_left = (size_t)number("WARM") / HUGE * HUGE;
    warm = aligned_alloc(HUGE, warm_left + HUGE);
    if (!warm)
        warm_left = 0;
    piece = largest > PAGE ? HUGE : 8 * PAGE;
    /* Without huge pages it helps less. */
    madvise(warm, warm_left, piece == HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t at = 0; at < warm_left; at += PAGE)
        warm[at] = 1;

    const char *path = argv[optind];
    if (number("REWRITE") > 0) {
        int before = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (before < 0)
            fail("cannot make the file");
        for (uint64_t at = 0; at < total; at += chunk)
            put(before, data, chunk);
        if (fsync(before))
            fail("fsync failed");
        close(before);
    }
    int make = number("REWRITE") > 0 ? 0 : O_CREAT | O_EXCL;
    int fd = open(path, O_WRONLY | O_CLOEXEC | make | flags, 0600);
    if (fd < 0)
        fail(errno == EINVAL ? "this filesystem has no O_DIRECT" : "cannot open the file");
    FILE *file = stream ? fdopen(fd, "w") : 0;
    if (stream && !file)
        fail("no stream");

    put(1, "ready\n", 6);
    pass(LEAD_NS / 1e9, 0);
    /* A reserve for the kernel's own allocations and its per-processor lists. No more, since a host may take
     * free memory back. */
    give_back(piece == HUGE ? LEAD : HUGE);

    uint64_t at = 0, end = 0, seed = 88172645463325252u;
    size = chunk;
    for (size_t i = 0; i < count; i++, size += step) {
        uint64_t offset = at;
        pass(wait, computing);
        if (shuffled) {
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            offset = seed % count * chunk;
        } else if (back > 0 && i) {
            offset = at - (uint64_t)(back * size);
        }
        if (offset != at && (stream ? fseeko(file, offset, SEEK_SET) != 0 : lseek(fd, offset, SEEK_SET) < 0))
            fail("a seek failed");
        /* Large calls take other data each time, from memory; small ones take the same data, from the
         * processor's cache, as in programs that have just produced them. */
        uint64_t reaches = offset + size;
        if (shuffled)
            give_back(size);
        else if (reaches > end)
            give_back(reaches - (offset > end ? offset : end));
        end = reaches > end ? reaches : end;
        const char *from = data;
        if (size >= LARGE)
            from += i * size % (source - size + 1) / PAGE * PAGE;
        uint64_t start = now();
        if (!stream)
            put(fd, from, size);
        else if (fwrite(from, 1, size, file) != size)
            fail("fwrite failed");
        note(stream ? "fwrite" : "write", offset, size, start);
        at = offset + size;
        if (sync && (i + 1) % (every ? every : 1) == 0) {
            start = now();
            if (stream ? fflush(file) || fsync(fd) : fsync(fd))
                fail("fsync failed");
            note("fsync", at, 0, start);
        }
        if (idle > 0 && i % 8 == 7)
            pass(idle, 0);
    }

    FILE *out = fdopen(1, "w");
    for (size_t i = 0; i < made; i++)
        fprintf(out, "%s %llu %llu %llu %llu\n", calls[i].op, (unsigned long long)calls[i].offset,
                (unsigned long long)calls[i].size, (unsigned long long)calls[i].start,
                (unsigned long long)calls[i].duration);
    return fflush(out) ? 1 : 0;
}
