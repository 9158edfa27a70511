/* eyes: calls for both eyes to see. eyes calls|threads|uring|skip|aio|reaped|stored|confined|rows FOLDER; prints the bytes that
 * it wrote to files. Exits with 77 where the kernel has none of it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#ifndef IOSQE_CQE_SKIP_SUCCESS
#define IOSQE_CQE_SKIP_SUCCESS (1 << 6)
#endif
#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

static char data[65536] __attribute__((aligned(4096)));
static long written;

static void must(int held, const char *what) {
    if (held) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}
#define MUST(call) must((call) >= 0, #call)

static void wrote(long got, long wanted, const char *what) {
    must(got == wanted, what);
    __atomic_fetch_add(&written, got, __ATOMIC_RELAXED);
}
#define WRITE(call, wanted) wrote(call, wanted, #call)

static int made(const char *name, int flags) {
    int fd = open(name, O_CREAT | O_RDWR | flags, 0644);
    MUST(fd);
    return fd;
}

static void lock(int fd, int command, int kind, off_t from, off_t length) {
    struct flock lock = { .l_type = kind, .l_whence = SEEK_SET, .l_start = from, .l_len = length };
    MUST(fcntl(fd, command, &lock));
}

static void calls(void) {
    struct iovec parts[2] = { { data, 1000 }, { data, 3000 } };
    int fd = made("a", O_TRUNC), other, pipes[2];
    WRITE(write(fd, data, 10000), 10000);
    WRITE(pwrite(fd, data, 5000, 20000), 5000);
    WRITE(writev(fd, parts, 2), 4000);
    WRITE(pwritev(fd, parts, 2, 40000), 4000);
    long got = syscall(SYS_pwritev2, fd, parts, 2, 50000L, 0L, RWF_DSYNC);
    if (got >= 0) WRITE(got, 4000);
    got = syscall(SYS_pwritev2, fd, parts, 2, -1L, -1L, 0);
    if (got >= 0) WRITE(got, 4000);
    MUST(lseek(fd, 100, SEEK_SET));
    WRITE(write(fd, data, 100), 100);
    MUST(lseek(fd, -50, SEEK_END));
    WRITE(write(fd, data, 200), 200);
    MUST(lseek(fd, 0, SEEK_CUR));
    MUST(fsync(fd));
    MUST(fdatasync(fd));
    MUST(sync_file_range(fd, 0, 4096, SYNC_FILE_RANGE_WRITE));
    MUST(fallocate(fd, 0, 0, 200000));
    MUST(fallocate(fd, FALLOC_FL_KEEP_SIZE, 300000, 100000));
    MUST(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    MUST(ftruncate(fd, 150000));
    MUST(truncate("a", 100000));
    MUST(pread(fd, data, 5000, 100));
    MUST(lseek(fd, 0, SEEK_SET));
    MUST(read(fd, data, 3000));
    MUST(readv(fd, parts, 2));
    MUST(preadv(fd, parts, 2, 500));
    MUST(write(fd, data, 0));
    MUST(close(fd) == 0 && write(-1, data, 5) < 0 ? 0 : -1);

    // Descriptors and positions.
    fd = made("b", O_APPEND | O_TRUNC);
    WRITE(write(fd, data, 3000), 3000);
    other = dup(fd);
    WRITE(write(other, data, 3000), 3000);
    MUST(dup2(other, 40));
    MUST(close(other));
    WRITE(write(40, data, 1000), 1000);
    MUST(dup3(fd, 41, O_CLOEXEC));
    WRITE(pwrite(41, data, 500, 0), 500);
    other = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    WRITE(writev(other, parts, 2), 4000);
    MUST(dup2(40, 41));
    lock(fd, F_SETLK, F_WRLCK, 10, 20);
    lock(fd, F_SETLK, F_UNLCK, 10, 20);
    MUST(flock(fd, LOCK_EX));
    MUST(flock(fd, LOCK_UN));
    MUST(close(40));
    MUST(close(41));
    MUST(close(other));

    // Between files.
    int from = open("a", O_RDONLY);
    MUST(from);
    loff_t at = 1000, to = 70000;
    WRITE(copy_file_range(from, &at, made("c", O_TRUNC), &to, 20000, 0), 20000);
    int copy = open("c", O_RDWR);
    MUST(copy);
    WRITE(copy_file_range(from, NULL, copy, NULL, 5000, 0), 5000);
    WRITE(sendfile(copy, from, NULL, 6000), 6000);
    MUST(pipe(pipes));
    // What is spliced into a pipe is written to no file.
    MUST(splice(from, NULL, pipes[1], NULL, 3000, 0));
    WRITE(splice(pipes[0], NULL, copy, NULL, 3000, 0), 3000);
    MUST(splice(from, NULL, pipes[1], NULL, 2000, 0));
    to = 90000;
    WRITE(splice(pipes[0], NULL, copy, &to, 2000, 0), 2000);
    MUST(close(copy));
    MUST(close(from));

    // Names.
    MUST(mkdir("d", 0755));
    MUST(link("b", "d/link"));
    MUST(symlink("link", "d/soft"));
    MUST(rename("d/link", "d/moved"));
    WRITE(pwrite(fd, data, 700, 0), 700);
    MUST(rename("c", "d/moved"));
    MUST(unlink("d/soft"));
    int folder = open("d", O_RDONLY | O_DIRECTORY);
    MUST(folder);
    other = openat(folder, "at", O_CREAT | O_WRONLY | O_DSYNC, 0600);
    MUST(other);
    WRITE(write(other, data, 4096), 4096);
    MUST(close(other));
    MUST(renameat(folder, "at", folder, "at2"));
    MUST(unlinkat(folder, "at2", 0));
    MUST(unlinkat(folder, "moved", 0));
    MUST(close(folder));
    MUST(rmdir("d"));
    MUST(close(fd));
    MUST(unlink("b"));
    struct open_how how = { .flags = O_CREAT | O_WRONLY | O_TRUNC, .mode = 0644 };
    fd = syscall(SYS_openat2, AT_FDCWD, "e", &how, sizeof how);
    if (fd >= 0) {
        WRITE(write(fd, data, 4000), 4000);
        MUST(close(fd));
    }
    fd = open("a", O_WRONLY | O_TRUNC);
    MUST(fd);
    MUST(unlink("a"));
    WRITE(write(fd, data, 8000), 8000);
    MUST(close(fd));
    fd = open(".", O_TMPFILE | O_RDWR, 0600);
    if (fd >= 0) {
        WRITE(write(fd, data, 9000), 9000);
        MUST(close(fd));
    }
    fd = creat("e", 0600);
    MUST(fd);
    WRITE(write(fd, data, 100), 100);
    MUST(close(fd));
    fd = memfd_create("m", 0);
    MUST(fd);
    WRITE(write(fd, data, 6000), 6000);
    MUST(close(fd));
    must(open("missing", O_RDONLY) < 0, "missing");
    fd = made("range", O_TRUNC);
    WRITE(write(fd, data, 300), 300);
    MUST(dup2(fd, 60));
#ifdef SYS_close_range
    syscall(SYS_close_range, 60L, 70L, 0L);
#endif
    MUST(close(fd));
}

static int shared, appended, placed;

static void *append(void *unused) {
    for (int i = 0; i < 500; i++) WRITE(write(appended, data, 1000), 1000);
    return unused;
}
static void *place(void *which) {
    for (int i = 0; i < 500; i++) WRITE(pwrite(placed, data, 3000, ((long)which * 500 + i) * 3000), 3000);
    return NULL;
}
static void *share(void *unused) {
    for (int i = 0; i < 500; i++) WRITE(write(shared, data, 700), 700);
    return unused;
}
static int done;
static void *append_and_wait(void *unused) {
    append(unused);
    __atomic_add_fetch(&done, 1, __ATOMIC_RELEASE);
    pause();
    return unused;
}
static void threads(void) {
    pthread_t all[16];
    appended = made("appended", O_APPEND | O_TRUNC), placed = made("placed", 0), shared = made("shared", O_TRUNC);
    for (long i = 0; i < 16; i++) pthread_create(&all[i], NULL, i < 8 ? append : i < 12 ? place : share, (void *)i);
    for (int i = 0; i < 16; i++) pthread_join(all[i], NULL);
    MUST(fsync(appended));
    // They end with the process, all at once.
    for (int i = 0; i < 8; i++) pthread_create(&all[i], NULL, append_and_wait, NULL);
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < 8) usleep(1000);
}

/* Requests through a ring that is mapped here, as liburing does it: without completions if it skips; syncs that the
 * kernel refuses, since they name a buffer. */
static void uring(int skips, int refused) {
    struct io_uring_params params = {};
    int ring = syscall(SYS_io_uring_setup, 8, &params);
    if (ring < 0) exit(77);
    long length = params.sq_off.array + params.sq_entries * 4 + params.cq_off.cqes + params.cq_entries * 16;
    char *rings = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entries = mmap(NULL, 8 * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                                        IORING_OFF_SQES);
    must(rings != MAP_FAILED && entries != MAP_FAILED, "mmap");
    unsigned *tail = (unsigned *)(rings + params.sq_off.tail), *head = (unsigned *)(rings + params.cq_off.head);
    unsigned mask = params.sq_entries - 1, completed = params.cq_entries - 1;
    unsigned *array = (unsigned *)(rings + params.sq_off.array);
    struct io_uring_cqe *done = (struct io_uring_cqe *)(rings + params.cq_off.cqes);
    struct iovec parts[2] = { { data, 1000 }, { data, 3000 } };
    int fd = made("ring", O_TRUNC);
    for (long i = 0; i < 400; i++) {
        struct io_uring_sqe *entry = &entries[*tail & mask];
        memset(entry, 0, sizeof *entry);
        entry->fd = fd;
        long wanted = 4000;
        if (refused) {
            entry->opcode = IORING_OP_FSYNC, entry->buf_index = 1, wanted = -EINVAL;
        } else if (i % 10 == 9) {
            entry->opcode = IORING_OP_FSYNC, wanted = 0;
            entry->fsync_flags = i % 20 == 9 ? IORING_FSYNC_DATASYNC : 0;
        } else if (i % 2) {
            entry->opcode = IORING_OP_WRITE, entry->addr = (unsigned long)data, entry->len = 4000;
            entry->off = i * 4000;
        } else {
            entry->opcode = IORING_OP_WRITEV, entry->addr = (unsigned long)parts, entry->len = 2;
            entry->off = i * 4000;
        }
        if (skips) entry->flags = IOSQE_CQE_SKIP_SUCCESS;
        array[*tail & mask] = *tail & mask;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        MUST(syscall(SYS_io_uring_enter, ring, 1, !skips, IORING_ENTER_GETEVENTS, NULL, 0));
        // No completion is told of those that succeed.
        if (skips) continue;
        long got = done[*head & completed].res;
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        if (refused) must(got == wanted, "a refusal");
        else WRITE(got, wanted);
    }
}

static void aio(void) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 64, &context)) exit(77);
    int fd = made("aio", O_DIRECT);
    struct iovec parts[2] = { { data, 4096 }, { data + 4096, 12288 } };
    struct iocb requests[40] = {}, *list[40];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 40; i++) {
            struct iocb *request = list[i] = &requests[i];
            request->aio_lio_opcode = i % 2 ? IOCB_CMD_PWRITE : IOCB_CMD_PWRITEV;
            request->aio_fildes = fd;
            request->aio_buf = i % 2 ? (unsigned long)data : (unsigned long)parts;
            request->aio_nbytes = i % 2 ? 16384 : 2;
            request->aio_offset = (round * 40L + i) * 16384;
        }
        MUST(syscall(SYS_io_submit, context, 40, list) == 40 ? 0 : -1);
        struct io_event events[40];
        long got = syscall(SYS_io_getevents, context, 40, 40, events, NULL);
        for (int i = 0; i < got; i++) WRITE((long)events[i].res, 16384);
    }
    struct iocb sync = { .aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = fd }, *one = &sync;
    struct io_event event;
    if (syscall(SYS_io_submit, context, 1, &one) == 1) syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
}

static aio_context_t reaped_context;
static void *reap(void *unused) {
    struct io_event events[600];
    for (int left = 600 * 20; left > 0;) {
        long got = syscall(SYS_io_getevents, reaped_context, 1, 600, events, NULL);
        MUST(got);
        for (int i = 0; i < got; i++) {
            // Each second request is a read.
            if (events[i].data) must((long)events[i].res == 1000, "read");
            else WRITE((long)events[i].res, 1000);
        }
        left -= got;
    }
    return unused;
}
/* One thread hands requests over, another is told of their ends, many at once. */
static void reaped(void) {
    pthread_t reaper;
    static struct iocb requests[20][600], *list[600];
    if (syscall(SYS_io_setup, 12000, &reaped_context)) exit(77);
    int fd = made("reaped", O_TRUNC);
    struct iovec parts[2] = { { data, 400 }, { data + 400, 600 } };
    MUST(ftruncate(fd, 600000));
    pthread_create(&reaper, NULL, reap, NULL);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 600; i++) {
            struct iocb *request = list[i] = &requests[round][i];
            request->aio_lio_opcode = i % 2 ? IOCB_CMD_PREADV : IOCB_CMD_PWRITE;
            request->aio_data = i % 2;
            request->aio_fildes = fd;
            request->aio_buf = i % 2 ? (unsigned long)parts : (unsigned long)data;
            request->aio_nbytes = i % 2 ? 2 : 1000;
            request->aio_offset = i / 2 * 1000L;
        }
        MUST(syscall(SYS_io_submit, reaped_context, 600, list) == 600 ? 0 : -1);
    }
    pthread_join(reaper, NULL);
}

/* Stores to each page of a mapping, which is gone at once. */
static void stored(void) {
    enum { LENGTH = 4 << 20 };
    int fd = made("stored", O_TRUNC);
    MUST(ftruncate(fd, LENGTH));
    char *pages = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(pages != MAP_FAILED, "mmap");
    for (int at = 0; at < LENGTH; at += 4096) pages[at] = 1;
    written += LENGTH;
    MUST(msync(pages, LENGTH, MS_SYNC));
    MUST(munmap(pages, LENGTH));
    MUST(close(fd));
}

/* Whatever is not named here kills. */
static void confined(void) {
    int fd = made("confined", O_TRUNC);
    static const int allowed[] = {
        SYS_write, SYS_pwrite64, SYS_fsync, SYS_close, SYS_exit_group, SYS_fstat,
#ifdef SYS_newfstatat
        SYS_newfstatat,
#endif
    };
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter program[COUNT + 3] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
    for (int i = 0; i < COUNT; i++)
        program[1 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], COUNT - i, 0);
    program[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    program[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = { COUNT + 3, program };
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    for (int i = 0; i < 100; i++) WRITE(write(fd, data, 5000), 5000);
    WRITE(pwrite(fd, data, 100, 0), 100);
    MUST(fsync(fd));
    MUST(close(fd));
}

/* What is told by name, by device, and of what was open before. */
static void rows(void) {
    MUST(close(3));
    int fd = made("file", O_TRUNC), null = open("/dev/null", O_WRONLY);
    MUST(null);
    for (int i = 0; i < 3; i++) MUST(write(null, data, 100));
    MUST(close(null));
    WRITE(write(fd, data, 5000), 5000);
    MUST(lseek(fd, 100, SEEK_SET));
    MUST(lseek(fd, 0, SEEK_CUR));
    must(lseek(fd, -1, SEEK_SET) < 0, "before the begin");
    MUST(close(fd));
    fd = open("file", O_RDONLY);
    MUST(fd);
    MUST(lseek(fd, 1000, SEEK_SET));
    MUST(read(fd, data, 1000));
    MUST(close(fd));
    MUST(mkdir("folder", 0755));
    MUST(rename("folder", "moved"));
    MUST(symlink("file", "moved/soft"));
    MUST(rename("moved/soft", "moved/other"));
    MUST(unlink("moved/other"));
    MUST(rmdir("moved"));
}

int main(int count, char **words) {
    if (count < 3) return 2;
    MUST(chdir(words[2]));
    umask(022);
    if (!strcmp(words[1], "calls")) calls();
    else if (!strcmp(words[1], "threads")) threads();
    else if (!strcmp(words[1], "uring")) uring(0, 0);
    else if (!strcmp(words[1], "skip")) uring(1, 0);
    else if (!strcmp(words[1], "refused")) uring(0, 1);
    else if (!strcmp(words[1], "aio")) aio();
    else if (!strcmp(words[1], "reaped")) reaped();
    else if (!strcmp(words[1], "stored")) stored();
    else if (!strcmp(words[1], "confined")) confined();
    else if (!strcmp(words[1], "rows")) rows();
    else return 2;
    char line[32];
    int length = snprintf(line, sizeof line, "%ld\n", written);
    return write(1, line, length) == length ? 0 : 1;
}
