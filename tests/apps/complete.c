/* One mode for each group of functions that the first tests left out. */
#include <aio.h>
#include <assert.h>
#include <err.h>
#include <errno.h>
#include <error.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <mntent.h>
#include <netdb.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef WITH_LIBAIO
#include <libaio.h>
#else
#include <linux/aio_abi.h>
#endif

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(99);
    }
}

static void messages(void) {
    printf("pending");
    errno = ENOENT;
    error(0, ENOENT, "one %d %s %f", 1, "two", 2.5);
    error_at_line(0, 0, "file.c", 7, "%d %d %d %d %d %d %s", 1, 2, 3, 4, 5, 6, "many");
    warn("a warning %d", 1);
    warnx("no errno %s", "here");
    psignal(SIGUSR1, "signal");
    siginfo_t info = {.si_signo = SIGINT};
    psiginfo(&info, "info");
    h_errno = HOST_NOT_FOUND;
    herror("host");
    perror("perror");
    FILE *file = fopen("passwd", "w");
    struct passwd entry = {"name", "x", 1, 2, "gecos", "/", "/bin/sh"};
    check(putpwent(&entry, file) == 0, "putpwent");
    struct mntent mount = {"dev", "/dir", "type", "opts", 0, 0};
    check(addmntent(file, &mount) == 0, "addmntent");
    fclose(file);
    file = fopen("/dev/null", "w");
    malloc_info(0, file);
    fclose(file);
    void *frames[1] = {0};
    int fd = open("frames", O_WRONLY | O_CREAT, 0644);
    backtrace_symbols_fd(frames, 1, fd);
    close(fd);
    fd = eventfd(0, 0);
    check(eventfd_write(fd, 3) == 0, "eventfd_write");
    close(fd);
    for (int end = 0; end < 4; end++) {
        pid_t child = fork();
        if (child == 0) {
            printf("child %d", end);
            switch (end) {
            case 0: err(10, "err %d", end);
            case 1: errx(11, "errx %d", end);
            case 2: error(12, 0, "error %d", end); break;
            default: error_at_line(13, EPERM, "f", 1, "at line %d", end);
            }
            abort();
        }
        int status;
        waitpid(child, &status, 0);
        check(WIFEXITED(status) && WEXITSTATUS(status) == 10 + end, "status");
    }
}

static void raw(void) {
    int fd = syscall(SYS_openat, AT_FDCWD, "raw", O_RDWR | O_CREAT, 0644);
    check(fd >= 0, "openat");
    char text[100];
    memset(text, 'x', sizeof text);
    struct iovec parts[2] = {{text, 10}, {text, 20}};
    check(syscall(SYS_write, fd, text, 100L) == 100, "write");
    check(syscall(SYS_pwrite64, fd, text, 50L, 200L) == 50, "pwrite");
    check(syscall(SYS_writev, fd, parts, 2L) == 30, "writev");
    check(syscall(SYS_pwritev, fd, parts, 2L, 400L, 0L) == 30, "pwritev");
    check(syscall(SYS_pwritev2, fd, parts, 2L, -1L, 0L, 0L) == 30, "pwritev2");
    check(syscall(SYS_lseek, fd, 0L, SEEK_CUR) == 160, "lseek");
    check(syscall(SYS_fsync, fd) == 0, "fsync");
    check(syscall(SYS_fdatasync, fd) == 0, "fdatasync");
    check(syscall(SYS_ftruncate, fd, 300L) == 0, "ftruncate");
    check(syscall(SYS_truncate, "raw", 250L) == 0, "truncate");
    syscall(SYS_fallocate, fd, 0L, 0L, 8192L);
    int copy = syscall(SYS_dup, fd);
    check(syscall(SYS_write, copy, text, 5L) == 5, "write to a duplicate");
    loff_t from = 0, to = 1000;
    long copied = syscall(SYS_copy_file_range, fd, &from, copy, &to, 60L, 0L);
    check(copied == 60 || copied < 0, "copy_file_range");
    int other = open("other", O_WRONLY | O_CREAT, 0644);
    check(syscall(SYS_sendfile, other, fd, &from, 70L) == 70, "sendfile");
    check(syscall(SYS_close, other) == 0, "close");
    check(syscall(SYS_unlinkat, AT_FDCWD, "other", 0L) == 0, "unlink");
    check(syscall(SYS_write, -1, text, 1L) == -1 && errno == EBADF, "errno");
    check(syscall(SYS_gettid) == getpid(), "gettid");
    syscall(SYS_close_range, 3L, ~0U, 0L);
    check(write(fd, "", 1) == -1, "closed");
    syscall(SYS_exit_group, 5);
}

/* Results and errno of all advice, right and wrong, as the program finds them. */
static void advice(void) {
    int ends[2], fd = open("advised", O_RDWR | O_CREAT, 0644), other = open("advised", O_RDONLY);
    check(fd >= 0 && other >= 0 && pipe(ends) == 0, "open");
    check(write(fd, "text", 4) == 4, "write");
    errno = E2BIG;
    for (int kind = 0; kind < 6; kind++)
        printf("%d %d\n", posix_fadvise(fd, 0, 0, kind), errno);
    printf("%d %d\n", posix_fadvise(other, 1, 2, POSIX_FADV_DONTNEED), errno);
    printf("%d %d\n", posix_fadvise64(fd, 4096, 8192, POSIX_FADV_DONTNEED), errno);
    printf("%d %d\n", posix_fadvise(fd, 0, 0, 77), errno);
    printf("%d %d\n", posix_fadvise(fd, -1, -1, POSIX_FADV_DONTNEED), errno);
    printf("%d %d\n", posix_fadvise(ends[1], 0, 0, POSIX_FADV_DONTNEED), errno);
    printf("%d %d\n", posix_fadvise(-1, 0, 0, POSIX_FADV_DONTNEED), errno);
    printf("%ld %d\n", syscall(SYS_fadvise64, fd, 0L, 4L, (long)POSIX_FADV_DONTNEED), errno);
    printf("%ld %d\n", syscall(SYS_fadvise64, fd, 0L, 4L, 77L), errno);
}

/* Results and errno of locks of each kind, got, refused and given back. */
static void locks(void) {
    int fd = open("locked", O_RDWR | O_CREAT, 0644), other = open("locked", O_RDONLY), none = -1;
    check(fd >= 0 && other >= 0, "open");
    check(write(fd, "0123456789", 10) == 10, "write");
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 50};
    errno = E2BIG;
    printf("%d %d\n", fcntl(fd, F_SETLK, &lock), errno);
    lock = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_CUR, .l_start = 5, .l_len = -3};
    printf("%d %d\n", fcntl(fd, F_SETLKW, &lock), errno);
    lock = (struct flock){.l_type = F_UNLCK, .l_whence = SEEK_END, .l_start = 0, .l_len = 0};
    printf("%d %d\n", fcntl(fd, F_SETLK, &lock), errno);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1000, .l_len = 1};
    printf("%d %d\n", fcntl(fd, F_OFD_SETLK, &lock), errno);
    lock.l_type = F_RDLCK;
    printf("%d %d\n", fcntl(other, F_OFD_SETLK, &lock), errno);
    printf("%d %d\n", fcntl(other, F_GETLK, &lock), errno);
    printf("%d %d\n", lockf(fd, F_TLOCK, 7), errno);
    printf("%d %d\n", lockf(fd, F_TEST, 7), errno);
    printf("%d %d\n", lockf(fd, F_ULOCK, 0), errno);
    printf("%d %d\n", flock(fd, LOCK_EX), errno);
    printf("%d %d\n", flock(other, LOCK_SH | LOCK_NB), errno);
    printf("%d %d\n", flock(fd, LOCK_UN), errno);
    printf("%d %d\n", flock(other, LOCK_SH), errno);
    printf("%d %d\n", flock(none, LOCK_SH), errno);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 3};
    printf("%ld %d\n", syscall(SYS_fcntl, fd, F_SETLK, &lock), errno);
    printf("%ld %d\n", syscall(SYS_flock, other, LOCK_UN), errno);
    printf("%ld %d\n", syscall(SYS_fcntl, fd, F_GETFD), errno);
}

static void pipes(void) {
    int one[2], two[2];
    check(pipe(one) == 0 && pipe(two) == 0, "pipe");
    char text[64] = "text";
    struct iovec part = {text, sizeof text};
    check(vmsplice(one[1], &part, 1, 0) == 64, "vmsplice");
    check(tee(one[0], two[1], 64, 0) == 64, "tee");
    int fd = open("spliced", O_WRONLY | O_CREAT, 0644);
    check(splice(two[0], NULL, fd, NULL, 64, 0) == 64, "splice");
    close(fd);
}

static void asynchronous(void) {
    static char text[8192];
    int fd = open("aio", O_WRONLY | O_CREAT, 0644);
    struct aiocb blocks[3];
    memset(blocks, 0, sizeof blocks);
    struct aiocb *list[3];
    for (int at = 0; at < 3; at++) {
        blocks[at].aio_fildes = fd;
        blocks[at].aio_buf = text;
        blocks[at].aio_nbytes = 1000 * (at + 1);
        blocks[at].aio_offset = 10000 * at;
        blocks[at].aio_lio_opcode = LIO_WRITE;
        list[at] = &blocks[at];
    }
    check(aio_write(&blocks[0]) == 0, "aio_write");
    while (aio_error(&blocks[0]) == EINPROGRESS)
        usleep(100);
    check(aio_return(&blocks[0]) == 1000, "aio_return");
    check(lio_listio(LIO_WAIT, list + 1, 2, NULL) == 0, "lio_listio");
    check(aio_fsync(O_SYNC, &blocks[0]) == 0, "aio_fsync");
    while (aio_error(&blocks[0]) == EINPROGRESS)
        usleep(100);
    close(fd);
}

#ifdef WITH_LIBAIO
static void by_kernel(void) {
    static char text[4096];
    int fd = open("kernel", O_RDWR | O_CREAT, 0644);
    io_context_t context = 0;
    check(io_setup(8, &context) == 0, "io_setup");
    struct iocb blocks[3], *list[3] = {&blocks[0], &blocks[1], &blocks[2]};
    struct iovec parts[2] = {{text, 100}, {text, 200}};
    io_prep_pwrite(&blocks[0], fd, text, 4096, 0);
    io_prep_pread(&blocks[1], fd, text, 4096, 0);
    io_prep_pwritev(&blocks[2], fd, parts, 2, 8192);
    check(io_submit(context, 3, list) == 3, "io_submit");
    struct io_event events[3];
    check(io_getevents(context, 3, 3, events, NULL) == 3, "io_getevents");
    io_destroy(context);
    close(fd);
}
#endif

static void mapped(void) {
    int fd = open("mapped", O_RDWR | O_CREAT, 0644);
    check(ftruncate(fd, 1 << 20) == 0, "ftruncate");
    char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    check(at != MAP_FAILED, "mmap");
    memset(at, 'a', 64 << 10);
    check(msync(at, 1 << 20, MS_SYNC) == 0, "msync");
    memset(at + (128 << 10), 'b', 32 << 10);
    struct flock lock = {.l_type = F_WRLCK};
    check(fcntl(fd, F_SETLK, &lock) == 0, "lock");
    check(munmap(at, 1 << 20) == 0, "munmap");
    /* The program's record lock must still be there. */
    if (fork() == 0) {
        struct flock there = {.l_type = F_WRLCK};
        fcntl(fd, F_GETLK, &there);
        _exit(there.l_type == F_UNLCK);
    }
    int status;
    wait(&status);
    check(status == 0, "lock is gone");
    /* Without a descriptor, only the mapping itself tells. */
    at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    memset(at + (512 << 10), 'c', 16 << 10);
    check(munmap(at, 1 << 20) == 0, "munmap");
}

/* Read-only at first: what write() makes dirty until then is no store. */
static void protected(void) {
    static char text[256 << 10];
    int fd = open("protected", O_RDWR | O_CREAT, 0644);
    check(ftruncate(fd, sizeof text) == 0, "ftruncate");
    char *at = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, fd, 0);
    check(at != MAP_FAILED, "mmap");
    char *other = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, fd, 0);
    check(other != MAP_FAILED, "mmap");
    check(pwrite(fd, text, 64 << 10, 0) == 64 << 10, "pwrite");
    check(munmap(other, sizeof text) == 0 && fsync(fd) == 0, "munmap");
    check(mprotect(at, sizeof text, PROT_READ | PROT_WRITE) == 0, "mprotect");
    memset(at + (128 << 10), 'p', 32 << 10);
    check(munmap(at, sizeof text) == 0, "munmap");
}

#ifndef WITH_LIBAIO
/* More control blocks than fit in one look, of which every third reads, and one writes from several places. */
static void submit(void) {
    static char text[64];
    struct iovec parts[6];
    struct iocb blocks[11], *list[12] = {NULL};
    aio_context_t context = 0;
    int fd = open("submitted", O_RDWR | O_CREAT, 0600);
    check(syscall(SYS_io_setup, 16, &context) == 0, "io_setup");
    for (int i = 0; i < 6; i++)
        parts[i] = (struct iovec){text, i + 1};
    for (int i = 0; i < 11; i++) {
        blocks[i] = (struct iocb){.aio_lio_opcode = i % 3 ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD, .aio_fildes = fd,
                                  .aio_buf = (long)text, .aio_nbytes = i + 1, .aio_offset = 100 * i};
        list[i] = blocks + i;
    }
    blocks[10].aio_lio_opcode = IOCB_CMD_PWRITEV;
    blocks[10].aio_buf = (long)parts, blocks[10].aio_nbytes = 6;
    check(syscall(SYS_io_submit, context, 11, list) == 11, "io_submit");
    check(syscall(SYS_io_destroy, context) == 0, "io_destroy");
    close(fd);
}
#endif

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "messages"))
        messages();
    else if (!strcmp(mode, "raw"))
        raw();
    else if (!strcmp(mode, "advice"))
        advice();
    else if (!strcmp(mode, "locks"))
        locks();
    else if (!strcmp(mode, "pipes"))
        pipes();
    else if (!strcmp(mode, "aio"))
        asynchronous();
#ifdef WITH_LIBAIO
    else if (!strcmp(mode, "libaio"))
        by_kernel();
#endif
    else if (!strcmp(mode, "mapped"))
        mapped();
    else if (!strcmp(mode, "protected"))
        protected();
#ifndef WITH_LIBAIO
    else if (!strcmp(mode, "submit"))
        submit();
#endif
    else if (!strcmp(mode, "assert"))
        assert(argc < 0);
    return 0;
}
