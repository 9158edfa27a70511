/* Calls functions of the C library by name, one after the other: every NAME.
 *
 * A descriptor of the file "marker" is moved to N before the Nth call, so that a tracer's events can be
 * assigned to calls. The kernel's byte count of each call, with children that were waited for, goes to the
 * file "counts", read by raw system calls. A call that does not return, or that leaves the process unfit for
 * the next one, is made in a child.
 *
 *     every --stack WAY SIZES NAME...
 *
 * makes each call in a child on a stack of its own above pages without access, and writes the stack used by
 * the call, NAME BYTES, to the file "stacks". The stack has 1 KiB more than the call takes by the file SIZES
 * of an earlier run, at least 4 KiB; plenty, if SIZES is "-". WAY is "warm": a child with a session; "cold":
 * a copy of the process made unseen; or "vfork": a vfork child, in which only few calls are possible. */
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <gshadow.h>
#include <linux/fs.h>
#include <mntent.h>
#include <pwd.h>
#include <semaphore.h>
#include <shadow.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define MARKER 100

static const char *self, *name;
static int number;
static char text[8192];

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", name, what, strerror(errno));
    _exit(99);
}
#define check(right) ((right) ? (void)0 : fail(#right))

static long unseen4(long which, long a, long b, long c, long d);

/* A raw system call, which no hook sees. */
static long unseen(long which, long a, long b, long c) {
#if defined __x86_64__
    long returned;
    __asm__ volatile("syscall" : "=a"(returned) : "a"(which), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return returned;
#elif defined __aarch64__
    return unseen4(which, a, b, c, 0);
#endif
}

static long unseen4(long which, long a, long b, long c, long d) {
#if defined __x86_64__
    long returned;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(returned) : "a"(which), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return returned;
#elif defined __aarch64__
    register long x8 __asm__("x8") = which, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

static long unseen_open(const char *path) {
#if defined __x86_64__
    return unseen(SYS_open, (long)path, O_RDONLY, 0);
#else
    return unseen(SYS_openat, AT_FDCWD, (long)path, O_RDONLY);
#endif
}

static long counted(void) {
    char found[512] = "";
    long fd = unseen_open("/proc/self/io");
    unseen(SYS_read, fd, (long)found, sizeof found - 1);
    unseen(SYS_close, fd, 0, 0);
    const char *at = strstr(found, "wchar: ");
    return at ? atol(at + 7) : -1;
}

static void mark(int which) { lseek(MARKER, which, SEEK_SET); }

static int is(const char *names) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return 1;
    return 0;
}

/* A file for this call alone. */
static const char *fresh(void) {
    static char path[64];
    snprintf(path, sizeof path, "f-%s", name);
    return path;
}

static int file(void) {
    int fd = open(fresh(), O_RDWR | O_CREAT, 0644);
    check(fd >= 0);
    return fd;
}

static FILE *stream(void) {
    FILE *made = fopen(fresh(), "w+");
    check(made != NULL);
    return made;
}

static FILE *source(void) {
    FILE *made = fopen("source", "r");
    check(made != NULL);
    return made;
}

#define F(type, ...) ((type(*)(__VA_ARGS__))function)
#define V(type, ...) ((type(*)(__VA_ARGS__, ...))function)

static long listed(void *function, int form, FILE *to, int fd, ...) {
    va_list list;
    va_start(list, fd);
    long returned = -1;
    const wchar_t *wide = L"%d and %ls\n";
    const char *plain = "%d and %s\n";
    switch (form) {
    case 0: returned = F(int, const char *, va_list)(plain, list); break;
    case 1: returned = F(int, FILE *, const char *, va_list)(to, plain, list); break;
    case 2: returned = F(int, int, const char *, va_list)(fd, plain, list); break;
    case 3: returned = F(int, int, const char *, va_list)(1, plain, list); break;
    case 4: returned = F(int, FILE *, int, const char *, va_list)(to, 1, plain, list); break;
    case 5: returned = F(int, int, int, const char *, va_list)(fd, 1, plain, list); break;
    case 6: returned = F(int, const wchar_t *, va_list)(wide, list); break;
    case 7: returned = F(int, FILE *, const wchar_t *, va_list)(to, wide, list); break;
    case 8: returned = F(int, int, const wchar_t *, va_list)(1, wide, list); break;
    case 9: returned = F(int, FILE *, int, const wchar_t *, va_list)(to, 1, wide, list); break;
    case 10: F(void, const char *, va_list)(plain, list); returned = 0; break;
    case 11: F(void, int, const char *, va_list)(7, plain, list); break;
    case 12: returned = F(int, FILE *, const char *, va_list)(to, "%*8c%c", list); break;
    case 13: returned = F(int, FILE *, const wchar_t *, va_list)(to, L"%*8c%c", list); break;
    case 14: returned = F(int, const char *, va_list)("%*8c%c", list); break;
    case 15: returned = F(int, const wchar_t *, va_list)(L"%*8c%c", list); break;
    }
    va_end(list);
    return returned;
}

/* Descriptors, files, names. 1 if the function is among them. */
static int descriptors(void *function) {
    struct iovec parts[2] = {{text, 5}, {text, 6}};
    int fd, other, ends[2], mode = O_RDWR | O_CREAT | O_TRUNC;
    char path[64];
    off_t place = 3;
    struct stat status;
    if (is("open open64 __open __open64")) {
        check((fd = V(int, const char *, int)(fresh(), mode, 0644)) >= 0 && close(fd) == 0);
    } else if (is("openat openat64")) {
        check((fd = V(int, int, const char *, int)(AT_FDCWD, fresh(), mode, 0644)) >= 0 && close(fd) == 0);
    } else if (is("__open_2 __open64_2")) {
        close(file());
        check((fd = F(int, const char *, int)(fresh(), O_WRONLY)) >= 0 && close(fd) == 0);
    } else if (is("__openat_2 __openat64_2")) {
        close(file());
        check((fd = F(int, int, const char *, int)(AT_FDCWD, fresh(), O_WRONLY)) >= 0 && close(fd) == 0);
    } else if (is("creat creat64")) {
        check((fd = F(int, const char *, mode_t)(fresh(), 0644)) >= 0 && close(fd) == 0);
    } else if (is("mkstemp mkstemp64 mkostemp mkostemp64 mkstemps mkstemps64 mkostemps mkostemps64")) {
        strcpy(path, "temp-XXXXXX");
        int o = strstr(name, "mkos") != NULL, s = strstr(name, "temps") != NULL;
        if (s)
            strcat(path, ".c");
        fd = o && s ? F(int, char *, int, int)(path, 2, O_APPEND)
             : o    ? F(int, char *, int)(path, O_APPEND)
             : s    ? F(int, char *, int)(path, 2)
                    : F(int, char *)(path);
        check(fd >= 0 && close(fd) == 0 && unlink(path) == 0);
    } else if (is("memfd_create")) {
        check((fd = F(int, const char *, unsigned)("memory", 0)) >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    } else if (is("shm_open")) {
        snprintf(path, sizeof path, "/every-%d", getpid());
        check((fd = F(int, const char *, int, mode_t)(path, O_RDWR | O_CREAT, 0600)) >= 0);
        check(close(fd) == 0 && shm_unlink(path) == 0);
    } else if (is("sem_open")) {
        snprintf(path, sizeof path, "/every-%d", getpid());
        sem_t *made = V(sem_t *, const char *, int)(path, O_CREAT, 0600, 1);
        check(made != SEM_FAILED && sem_close(made) == 0 && sem_unlink(path) == 0);
    } else if (is("close __close")) {
        check(F(int, int)(file()) == 0);
    } else if (is("closedir")) {
        check(F(int, DIR *)(opendir(".")) == 0);
    } else if (is("dup")) {
        check((other = F(int, int)(fd = file())) >= 0 && write(other, "x", 1) == 1 && close(fd) == 0 && close(other) == 0);
    } else if (is("dup2 __dup2 dup3")) {
        fd = file();
        other = is("dup3") ? F(int, int, int, int)(fd, 50, O_CLOEXEC) : F(int, int, int)(fd, 50);
        check(other == 50 && write(50, "x", 1) == 1 && close(fd) == 0 && close(50) == 0);
    } else if (is("fcntl fcntl64 __fcntl")) {
        check((other = V(int, int, int)(fd = file(), F_DUPFD, 40)) >= 40 && close(fd) == 0 && close(other) == 0);
    } else if (is("fstat fstat64")) {
        check(F(int, int, struct stat *)(fd = file(), &status) == 0 && close(fd) == 0);
    } else if (is("__fxstat __fxstat64")) {
#if defined __x86_64__
        check(F(int, int, int, struct stat *)(1, fd = file(), &status) == 0 && close(fd) == 0);
#else
        check(F(int, int, int, struct stat *)(0, fd = file(), &status) == 0 && close(fd) == 0);
#endif
    } else if (is("stat stat64 lstat lstat64")) {
        check(F(int, const char *, struct stat *)("source", &status) == 0 && S_ISREG(status.st_mode));
    } else if (is("fstatat fstatat64")) {
        check(F(int, int, const char *, struct stat *, int)(AT_FDCWD, "source", &status, 0) == 0);
    } else if (is("statx")) {
        check(F(int, int, const char *, int, unsigned, void *)(AT_FDCWD, "source", 0, 1, text) == 0);
    } else if (is("__xstat __xstat64 __lxstat __lxstat64")) {
#if defined __x86_64__
        check(F(int, int, const char *, struct stat *)(1, "source", &status) == 0);
#else
        check(F(int, int, const char *, struct stat *)(0, "source", &status) == 0);
#endif
    } else if (is("__fxstatat __fxstatat64")) {
#if defined __x86_64__
        check(F(int, int, int, const char *, struct stat *, int)(1, AT_FDCWD, "source", &status, 0) == 0);
#else
        check(F(int, int, int, const char *, struct stat *, int)(0, AT_FDCWD, "source", &status, 0) == 0);
#endif
    } else if (is("readdir readdir64")) {
        DIR *folder = opendir(".");
        check(folder != NULL && F(void *, DIR *)(folder) != NULL && closedir(folder) == 0);
    } else if (is("lseek lseek64 __lseek llseek")) {
        check(F(off_t, int, off_t, int)(fd = file(), 7, SEEK_SET) == 7 && close(fd) == 0);
    } else if (is("write __write")) {
        check(F(ssize_t, int, const void *, size_t)(fd = file(), text, 5) == 5 && close(fd) == 0);
    } else if (is("pwrite pwrite64 __pwrite64")) {
        check(F(ssize_t, int, const void *, size_t, off_t)(fd = file(), text, 5, 9) == 5 && close(fd) == 0);
    } else if (is("writev")) {
        check(F(ssize_t, int, const struct iovec *, int)(fd = file(), parts, 2) == 11 && close(fd) == 0);
    } else if (is("pwritev pwritev64")) {
        check(F(ssize_t, int, const struct iovec *, int, off_t)(fd = file(), parts, 2, 9) == 11 && close(fd) == 0);
    } else if (is("pwritev2 pwritev64v2")) {
        check(F(ssize_t, int, const struct iovec *, int, off_t, int)(fd = file(), parts, 2, 9, 0) == 11 && close(fd) == 0);
    } else if (is("eventfd_write")) {
        check((fd = syscall(SYS_eventfd2, 0, 0)) >= 0 && F(int, int, unsigned long)(fd, 3) == 0 && close(fd) == 0);
    } else if (is("copy_file_range")) {
        check((fd = open("source", O_RDONLY)) >= 0);
        check(F(ssize_t, int, off_t *, int, off_t *, size_t, unsigned)(fd, NULL, other = file(), &place, 20, 0) == 20);
        close(fd), close(other);
    } else if (is("sendfile sendfile64")) {
        check((fd = open("source", O_RDONLY)) >= 0);
        check(F(ssize_t, int, int, off_t *, size_t)(other = file(), fd, &place, 20) == 20);
        close(fd), close(other);
    } else if (is("splice tee vmsplice")) {
        int two[2];
        check(pipe(ends) == 0 && pipe(two) == 0);
        if (is("vmsplice")) {
            check(F(ssize_t, int, const struct iovec *, size_t, unsigned)(ends[1], parts, 2, 0) == 11);
        } else {
            check(write(ends[1], text, 8) == 8);
            if (is("tee"))
                check(F(ssize_t, int, int, size_t, unsigned)(ends[0], two[1], 8, 0) == 8);
            else
                check(F(ssize_t, int, off_t *, int, off_t *, size_t, unsigned)(ends[0], NULL, fd = file(), NULL, 8, 0) == 8 && close(fd) == 0);
        }
        close(ends[0]), close(ends[1]), close(two[0]), close(two[1]);
    } else if (is("ioctl")) {
        check((fd = open("source", O_RDONLY)) >= 0);
        /* Few filesystems support it; all answer. */
        V(int, int, unsigned long)(other = file(), FICLONE, fd);
        close(fd), close(other);
    } else if (is("ftruncate ftruncate64")) {
        check(F(int, int, off_t)(fd = file(), 70) == 0 && close(fd) == 0);
    } else if (is("truncate truncate64")) {
        check(close(file()) == 0 && F(int, const char *, off_t)(fresh(), 70) == 0);
    } else if (is("fallocate fallocate64")) {
        F(int, int, int, off_t, off_t)(fd = file(), 0, 0, 8192);
        close(fd);
    } else if (is("posix_fallocate posix_fallocate64")) {
        check(F(int, int, off_t, off_t)(fd = file(), 0, 8192) == 0 && close(fd) == 0);
    } else if (is("fsync fdatasync syncfs")) {
        check(F(int, int)(fd = file()) == 0 && close(fd) == 0);
    } else if (is("sync")) {
        F(void, void)();
    } else if (is("sync_file_range")) {
        check(F(int, int, off_t, off_t, unsigned)(fd = file(), 0, 0, 2) == 0 && close(fd) == 0);
    } else if (is("posix_fadvise posix_fadvise64")) {
        check(F(int, int, off_t, off_t, int)(fd = file(), 0, 0, POSIX_FADV_DONTNEED) == 0 && close(fd) == 0);
    } else if (is("readahead")) {
        check((fd = open("source", O_RDONLY)) >= 0 && F(ssize_t, int, off_t, size_t)(fd, 0, 4096) == 0 && close(fd) == 0);
    } else if (is("flock")) {
        check(F(int, int, int)(fd = file(), LOCK_EX) == 0 && close(fd) == 0);
    } else if (is("lockf lockf64")) {
        check(F(int, int, int, off_t)(fd = file(), F_LOCK, 10) == 0 && close(fd) == 0);
    } else if (is("unlink remove")) {
        check(close(file()) == 0 && F(int, const char *)(fresh()) == 0);
    } else if (is("unlinkat")) {
        check(close(file()) == 0 && F(int, int, const char *, int)(AT_FDCWD, fresh(), 0) == 0);
    } else if (is("rmdir")) {
        check(mkdir(fresh(), 0700) == 0 && F(int, const char *)(fresh()) == 0);
    } else if (is("mkdir")) {
        check(F(int, const char *, mode_t)(fresh(), 0700) == 0 && rmdir(fresh()) == 0);
    } else if (is("mkdirat")) {
        check(F(int, int, const char *, mode_t)(AT_FDCWD, fresh(), 0700) == 0 && rmdir(fresh()) == 0);
    } else if (is("symlink")) {
        check(F(int, const char *, const char *)("nowhere", fresh()) == 0 && unlink(fresh()) == 0);
    } else if (is("symlinkat")) {
        check(F(int, const char *, int, const char *)("nowhere", AT_FDCWD, fresh()) == 0 && unlink(fresh()) == 0);
    } else if (is("link")) {
        check(close(file()) == 0 && F(int, const char *, const char *)(fresh(), "linked") == 0 && unlink("linked") == 0);
    } else if (is("linkat")) {
        check(close(file()) == 0 && F(int, int, const char *, int, const char *, int)(AT_FDCWD, fresh(), AT_FDCWD, "linked", 0) == 0 && unlink("linked") == 0);
    } else if (is("chdir")) {
        check(F(int, const char *)(".") == 0);
    } else if (is("fchdir")) {
        int here = (int)unseen_open(".");
        check(F(int, int)(here) == 0 && unseen(SYS_close, here, 0, 0) == 0);
    } else if (is("rename")) {
        check(close(file()) == 0 && F(int, const char *, const char *)(fresh(), "renamed") == 0);
    } else if (is("renameat")) {
        check(close(file()) == 0 && F(int, int, const char *, int, const char *)(AT_FDCWD, fresh(), AT_FDCWD, "renamed") == 0);
    } else if (is("renameat2")) {
        check(close(file()) == 0 && F(int, int, const char *, int, const char *, unsigned)(AT_FDCWD, fresh(), AT_FDCWD, "renamed", 0) == 0);
    } else if (is("mmap mmap64 munmap mremap msync mprotect pkey_mprotect")) {
        fd = file();
        check(ftruncate(fd, 1 << 20) == 0);
        int late = strstr(name, "mprotect") != NULL, rights = PROT_READ | PROT_WRITE;
        char *at = strstr(name, "mmap") ? F(void *, void *, size_t, int, int, int, off_t)(NULL, 1 << 20, rights, MAP_SHARED, fd, 0)
                                        : mmap(NULL, 1 << 20, late ? PROT_READ : rights, MAP_SHARED, fd, 0);
        check(at != MAP_FAILED);
        if (is("mprotect"))
            check(F(int, void *, size_t, int)(at, 1 << 20, rights) == 0);
        else if (late)
            check(F(int, void *, size_t, int, int)(at, 1 << 20, rights, -1) == 0);
        memset(at, 'm', 64 << 10);
        if (is("mremap"))
            check((at = V(void *, void *, size_t, size_t, int)(at, 1 << 20, 2 << 20, MREMAP_MAYMOVE)) != MAP_FAILED);
        if (is("msync"))
            check(F(int, void *, size_t, int)(at, 1 << 20, MS_SYNC) == 0);
        check((is("munmap") ? F(int, void *, size_t)(at, 1 << 20) : munmap(at, is("mremap") ? 2 << 20 : 1 << 20)) == 0);
        close(fd);
    } else if (is("aio_write aio_write64 aio_fsync aio_fsync64 lio_listio lio_listio64")) {
        struct aiocb block = {.aio_fildes = fd = file(), .aio_buf = text, .aio_nbytes = 100, .aio_lio_opcode = LIO_WRITE}, *list = &block;
        if (strstr(name, "fsync"))
            check(F(int, int, struct aiocb *)(O_SYNC, &block) == 0);
        else if (strstr(name, "lio"))
            check(F(int, int, struct aiocb *const *, int, struct sigevent *)(LIO_WAIT, &list, 1, NULL) == 0);
        else
            check(F(int, struct aiocb *)(&block) == 0);
        const struct aiocb *const wait[] = {&block};
        while (aio_error(&block) == EINPROGRESS)
            aio_suspend(wait, 1, NULL);
        close(fd);
    } else if (is("syscall")) {
        check(V(long, long)(SYS_write, fd = file(), text, 5L) == 5 && close(fd) == 0);
    } else if (is("read __read __read_chk pread pread64 __pread64 __pread_chk __pread64_chk")) {
        int positioned = strstr(name, "pread") != NULL, checked = strstr(name, "_chk") != NULL;
        check((fd = open("source", O_RDONLY)) >= 0);
        ssize_t got = positioned && checked ? F(ssize_t, int, void *, size_t, off_t, size_t)(fd, text, 9, 1, sizeof text)
                      : positioned          ? F(ssize_t, int, void *, size_t, off_t)(fd, text, 9, 1)
                      : checked             ? F(ssize_t, int, void *, size_t, size_t)(fd, text, 9, sizeof text)
                                            : F(ssize_t, int, void *, size_t)(fd, text, 9);
        check(got == 9 && close(fd) == 0);
    } else if (is("readv preadv preadv64 preadv2 preadv64v2")) {
        check((fd = open("source", O_RDONLY)) >= 0);
        ssize_t got = is("readv")            ? F(ssize_t, int, const struct iovec *, int)(fd, parts, 2)
                      : strstr(name, "v2")   ? F(ssize_t, int, const struct iovec *, int, off_t, int)(fd, parts, 2, 0, 0)
                                             : F(ssize_t, int, const struct iovec *, int, off_t)(fd, parts, 2, 0);
        check(got == 11 && close(fd) == 0);
    } else if (is("prctl")) {
        check(V(int, int)(PR_SET_NAME, "every", 0, 0, 0) == 0);
    } else if (is("dlopen")) {
        check(F(void *, const char *, int)("libc.so.6", RTLD_NOW) != NULL);
    } else if (is("dlmopen")) {
        check(F(void *, Lmid_t, const char *, int)(LM_ID_BASE, "libc.so.6", RTLD_NOW) != NULL);
    } else if (is("dlsym")) {
        check(F(void *, void *, const char *)(dlopen("libc.so.6", RTLD_NOW), "write") != NULL);
    } else if (is("sendmsg")) {
        check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        check(F(ssize_t, int, const struct msghdr *, int)(ends[0], &message, 0) == 11);
        close(ends[0]), close(ends[1]);
    } else if (is("open_by_handle_at")) {
        struct { struct file_handle head; char room[MAX_HANDLE_SZ]; } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
        int mount;
        close(file());
        check(name_to_handle_at(AT_FDCWD, fresh(), &handle.head, &mount, 0) == 0 && (mount = open(".", O_RDONLY)) >= 0);
        fd = F(int, int, struct file_handle *, int)(mount, &handle.head, O_RDWR);
        check(fd < 0 || write(fd, "x", 1) == 1);
        close(fd), close(mount);
    } else
        return 0;
    return 1;
}

/* Streams and messages. */
static int streams(void *function) {
    FILE *to;
    if (is("fopen fopen64 _IO_fopen")) {
        check((to = F(FILE *, const char *, const char *)(fresh(), "w")) && fputs("text", to) >= 0 && fclose(to) == 0);
    } else if (is("fdopen _IO_fdopen")) {
        check((to = F(FILE *, int, const char *)(file(), "w")) && fputs("text", to) >= 0 && fclose(to) == 0);
    } else if (is("freopen freopen64")) {
        to = stream();
        fputs("first", to);
        check((to = F(FILE *, const char *, const char *, FILE *)("renamed", "w", to)) && fputs("text", to) >= 0 && fclose(to) == 0);
    } else if (is("tmpfile tmpfile64")) {
        check((to = F(FILE *, void)()) && fputs("text", to) >= 0 && fclose(to) == 0);
    } else if (is("fclose _IO_fclose")) {
        fputs("text", to = stream());
        check(F(int, FILE *)(to) == 0);
    } else if (is("endmntent")) {
        check((to = setmntent(fresh(), "w")) && fputs("text", to) >= 0 && F(int, FILE *)(to) == 1);
    } else if (is("popen _IO_popen pclose")) {
        char command[600];
        snprintf(command, sizeof command, "exec %s --mark %d read", self, number);
        to = is("pclose") ? popen(command, "w") : F(FILE *, const char *, const char *)(command, "w");
        check(to && fputs("text", to) >= 0 && (is("pclose") ? F(int, FILE *)(to) : pclose(to)) == 0);
    } else if (is("fflush _IO_fflush fflush_unlocked")) {
        fputs("text", to = stream());
        check(F(int, FILE *)(to) == 0 && fclose(to) == 0);
    } else if (is("fseek fseeko fseeko64")) {
        fputs("text", to = stream());
        check(F(int, FILE *, long, int)(to, 0, SEEK_SET) == 0 && fclose(to) == 0);
    } else if (is("rewind")) {
        fputs("text", to = stream());
        F(void, FILE *)(to);
        fclose(to);
    } else if (is("fsetpos fsetpos64 _IO_fsetpos _IO_fsetpos64")) {
        fpos_t place;
        check(fgetpos(to = stream(), &place) == 0);
        fputs("text", to);
        check(F(int, FILE *, const fpos_t *)(to, &place) == 0 && fclose(to) == 0);
    } else if (is("setvbuf _IO_setvbuf")) {
        check(F(int, FILE *, char *, int, size_t)(to = stream(), NULL, _IONBF, 0) == 0);
        fputs("text", to), fputs("more", to), fclose(to);
    } else if (is("setbuffer _IO_setbuffer")) {
        F(void, FILE *, char *, size_t)(to = stream(), NULL, 0);
        fputs("text", to), fclose(to);
    } else if (is("setbuf")) {
        F(void, FILE *, char *)(to = stream(), NULL);
        fputs("text", to), fclose(to);
    } else if (is("setlinebuf")) {
        F(void, FILE *)(to = stream());
        fputs("text\nmore", to), fclose(to);
    } else if (is("fwrite _IO_fwrite fwrite_unlocked")) {
        check(F(size_t, const void *, size_t, size_t, FILE *)(text, 2, 3000, to = stream()) == 3000 && fclose(to) == 0);
    } else if (is("fputs _IO_fputs fputs_unlocked")) {
        check(F(int, const char *, FILE *)("text", to = stream()) >= 0 && fclose(to) == 0);
    } else if (is("fputc fputc_unlocked putc _IO_putc putc_unlocked putw")) {
        check(F(int, int, FILE *)('x', to = stream()) != EOF && fclose(to) == 0);
    } else if (is("__overflow")) {
        check(F(int, FILE *, int)(to = stream(), 'x') == 'x' && fclose(to) == 0);
    } else if (is("putchar putchar_unlocked")) {
        check(F(int, int)('\n') == '\n');
    } else if (is("puts _IO_puts")) {
        check(F(int, const char *)("a line") >= 0);
    } else if (is("printf _IO_printf")) {
        check(V(int, const char *)("%d and %s\n", 5, "six") > 0);
    } else if (is("fprintf _IO_fprintf")) {
        check(V(int, FILE *, const char *)(to = stream(), "%d and %s\n", 5, "six") > 0 && fclose(to) == 0);
    } else if (is("dprintf")) {
        int fd = file();
        check(V(int, int, const char *)(fd, "%d and %s\n", 5, "six") > 0 && close(fd) == 0);
    } else if (is("__printf_chk")) {
        check(V(int, int, const char *)(1, "%d and %s\n", 5, "six") > 0);
    } else if (is("__fprintf_chk")) {
        check(V(int, FILE *, int, const char *)(to = stream(), 1, "%d and %s\n", 5, "six") > 0 && fclose(to) == 0);
    } else if (is("__dprintf_chk")) {
        int fd = file();
        check(V(int, int, int, const char *)(fd, 1, "%d and %s\n", 5, "six") > 0 && close(fd) == 0);
    } else if (is("vprintf vfprintf _IO_vfprintf vdprintf __vprintf_chk __vfprintf_chk __vdprintf_chk")) {
        int fd = file(), form = is("vprintf") ? 0 : is("vdprintf") ? 2 : is("__vprintf_chk") ? 3 : is("__vfprintf_chk") ? 4 : is("__vdprintf_chk") ? 5 : 1;
        check(listed(function, form, to = stream(), fd, 5, "six") > 0 && close(fd) == 0 && fclose(to) == 0);
    } else if (is("vwarn vwarnx")) {
        check(listed(function, 10, NULL, 0, 5, "six") == 0);
    } else if (is("fputwc fputwc_unlocked putwc putwc_unlocked")) {
        check(F(wint_t, wchar_t, FILE *)(L'x', to = stream()) == L'x' && fclose(to) == 0);
    } else if (is("fputws fputws_unlocked")) {
        check(F(int, const wchar_t *, FILE *)(L"text", to = stream()) >= 0 && fclose(to) == 0);
    } else if (is("__woverflow")) {
        fwide(to = stream(), 1);
        check(F(wint_t, FILE *, wint_t)(to, L'x') == L'x' && fclose(to) == 0);
    } else if (is("fwprintf")) {
        check(V(int, FILE *, const wchar_t *)(to = stream(), L"%d and %ls\n", 5, L"six") > 0 && fclose(to) == 0);
    } else if (is("__fwprintf_chk")) {
        check(V(int, FILE *, int, const wchar_t *)(to = stream(), 1, L"%d and %ls\n", 5, L"six") > 0 && fclose(to) == 0);
    } else if (is("vfwprintf __vfwprintf_chk")) {
        check(listed(function, is("vfwprintf") ? 7 : 9, to = stream(), 0, 5, L"six") > 0 && fclose(to) == 0);
    } else if (is("fread _IO_fread fread_unlocked __fread_chk __fread_unlocked_chk")) {
        check((to = fopen("source", "r")));
        check((strstr(name, "_chk") ? F(size_t, void *, size_t, size_t, size_t, FILE *)(text, sizeof text, 3, 4, to)
                                    : F(size_t, void *, size_t, size_t, FILE *)(text, 3, 4, to)) == 4);
        fclose(to);
    } else if (is("fgetc getc _IO_getc fgetc_unlocked getc_unlocked __uflow __underflow")) {
        check(F(int, FILE *)(to = source()) == 't' && fclose(to) == 0);
    } else if (is("getw")) {
        check(F(int, FILE *)(to = source()) == 0x74747474 && fclose(to) == 0);
    } else if (is("fgets _IO_fgets fgets_unlocked __fgets_chk __fgets_unlocked_chk")) {
        char line[20];
        check((strstr(name, "_chk") ? F(char *, char *, size_t, int, FILE *)(line, sizeof line, 9, to = source())
                                    : F(char *, char *, int, FILE *)(line, 9, to = source())) == line);
        fclose(to);
    } else if (is("getline getdelim __getdelim")) {
        char *line = NULL;
        size_t size = 0;
        check((is("getline") ? F(ssize_t, char **, size_t *, FILE *)(&line, &size, to = source())
                             : F(ssize_t, char **, size_t *, int, FILE *)(&line, &size, 'x', to = source())) == sizeof text);
        free(line), fclose(to);
    } else if (is("fscanf __isoc99_fscanf")) {
        check(V(int, FILE *, const char *)(to = source(), "%*8c%c", text) == 1 && fclose(to) == 0);
    } else if (is("vfscanf __vfscanf __isoc99_vfscanf")) {
        check(listed(function, 12, to = source(), 0, text) == 1 && fclose(to) == 0);
    } else if (is("fwscanf __isoc99_fwscanf")) {
        check(V(int, FILE *, const wchar_t *)(to = source(), L"%*8c%c", text) == 1 && fclose(to) == 0);
    } else if (is("vfwscanf __isoc99_vfwscanf")) {
        check(listed(function, 13, to = source(), 0, text) == 1 && fclose(to) == 0);
    } else if (is("fgetwc getwc fgetwc_unlocked getwc_unlocked __wuflow __wunderflow")) {
        fwide(to = source(), 1);
        check(F(wint_t, FILE *)(to) == L't' && fclose(to) == 0);
    } else if (is("fgetws fgetws_unlocked __fgetws_chk __fgetws_unlocked_chk")) {
        wchar_t line[20];
        check((strstr(name, "_chk") ? F(wchar_t *, wchar_t *, size_t, int, FILE *)(line, 20, 9, to = source())
                                    : F(wchar_t *, wchar_t *, int, FILE *)(line, 9, to = source())) == line);
        fclose(to);
    } else if (is("perror herror")) {
        F(void, const char *)("about");
    } else if (is("error")) {
        V(void, int, int, const char *)(0, ENOENT, "%d and %s", 5, "six");
    } else if (is("error_at_line")) {
        V(void, int, int, const char *, unsigned, const char *)(0, ENOENT, "file", 3, "%d and %s", 5, "six");
    } else if (is("warn warnx")) {
        V(void, const char *)("%d and %s", 5, "six");
    } else if (is("psignal")) {
        F(void, int, const char *)(SIGUSR1, "signal");
    } else if (is("psiginfo")) {
        siginfo_t info = {.si_signo = SIGINT};
        F(void, const siginfo_t *, const char *)(&info, "signal");
    } else if (is("malloc_info")) {
        to = fopen("/dev/null", "w");
        check(F(int, int, FILE *)(0, to) == 0 && fclose(to) == 0);
    } else if (is("putpwent")) {
        struct passwd entry = {"name", "x", 1, 2, "gecos", "/", "/bin/sh"};
        check(F(int, const struct passwd *, FILE *)(&entry, to = stream()) == 0 && fclose(to) == 0);
    } else if (is("putspent")) {
        struct spwd entry = {"name", "x", 1, 2, 3, 4, 5, 6, 7};
        check(F(int, const struct spwd *, FILE *)(&entry, to = stream()) == 0 && fclose(to) == 0);
    } else if (is("putgrent")) {
        char *members[] = {"one", "two", NULL};
        struct group entry = {"name", "x", 1, members};
        check(F(int, const struct group *, FILE *)(&entry, to = stream()) == 0 && fclose(to) == 0);
    } else if (is("putsgent")) {
        char *members[] = {"one", "two", NULL};
        struct sgrp entry = {"name", "x", members, members};
        check(F(int, const struct sgrp *, FILE *)(&entry, to = stream()) == 0 && fclose(to) == 0);
    } else if (is("addmntent")) {
        struct mntent entry = {"dev", "/dir", "type", "opts", 0, 0};
        check(F(int, FILE *, const struct mntent *)(to = stream(), &entry) == 0 && fclose(to) == 0);
    } else if (is("backtrace_symbols_fd")) {
        void *frames[1] = {0};
        int fd = file();
        F(void, void *const *, int, int)(frames, 1, fd);
        close(fd);
    } else if (is("getopt __posix_getopt getopt_long getopt_long_only")) {
        static char *wrong[] = {"every", "-x", NULL};
        optind = 0;
        check((strstr(name, "long") ? F(int, int, char **, const char *, const void *, int *)(2, wrong, "y", (long[4]){0}, NULL)
                                    : F(int, int, char **, const char *)(2, wrong, "y")) == '?');
    } else
        return 0;
    return 1;
}

/* Ways to start a program, from a process that lives on. */
static int starts(void *function) {
    char which[16], command[600], *arguments[] = {(char *)self, "--mark", which, NULL}, *empty[] = {NULL};
    snprintf(which, sizeof which, "%d", number);
    pid_t child;
    int status;
    if (is("fork __fork _Fork")) {
        if ((child = F(pid_t, void)()) == 0) {
            mark(number);
            _exit(write(file(), "child", 5) != 5);
        }
    } else if (is("posix_spawn posix_spawnp")) {
        check(F(int, pid_t *, const char *, const void *, const void *, char **, char **)(&child, self, NULL, NULL, arguments, empty) == 0);
    } else if (is("system")) {
        snprintf(command, sizeof command, "exec %s --mark %d", self, number);
        check(F(int, const char *)(command) == 0);
        return 1;
    } else if (is("forkpty")) {
        int terminal;
        if ((child = F(pid_t, int *, char *, void *, void *)(&terminal, NULL, NULL, NULL)) == 0) {
            mark(number);
            _exit(write(file(), "child", 5) != 5);
        }
        check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        close(terminal);
        return 1;
    } else {
        return 0;
    }
    check(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    return 1;
}

/* Standard output without an orientation. */
static void anew(void) { check(freopen(fresh(), "w", stdout) == stdout); }

/* Standard input from the file with text. */
static void from(void) { check(freopen("source", "r", stdin) == stdin); }

/* In a child: calls that end it, replace it, or leave it unfit. The status that the child is to have, or -1.
 * */
static int ends(void *function, int really) {
    char which[16], *arguments[] = {(char *)self, "--mark", which, NULL}, *empty[] = {NULL};
    snprintf(which, sizeof which, "%d", number);
    const int aborted = SIGABRT, seven = 7 << 8;
#define WAY(names, status, call)   \
    if (is(names)) {               \
        if (really) {              \
            call;                  \
        }                          \
        return status;             \
    }
    WAY("execve execvpe", 0, F(int, const char *, char **, char **)(self, arguments, empty))
    WAY("execv execvp", 0, F(int, const char *, char **)(self, arguments))
    WAY("execl execlp", 0, V(int, const char *, const char *)(self, self, "--mark", which, NULL))
    WAY("execle", 0, V(int, const char *, const char *)(self, self, "--mark", which, NULL, empty))
    WAY("fexecve", 0, F(int, int, char **, char **)(open(self, O_RDONLY | O_CLOEXEC), arguments, empty))
    WAY("execveat", 0, F(int, int, const char *, char **, char **, int)(AT_FDCWD, self, arguments, empty, 0))
    WAY("_exit _Exit", seven, F(void, int)(7))
    WAY("abort", aborted, F(void, void)())
    WAY("__assert_fail", aborted, F(void, const char *, const char *, unsigned, const char *)("all well", "file", 3, "here"))
    WAY("__assert_perror_fail", aborted, F(void, int, const char *, unsigned, const char *)(ENOENT, "file", 3, "here"))
    WAY("__stack_chk_fail", aborted, F(void, void)())
    WAY("err errx", seven, V(void, int, const char *)(7, "%d and %s", 5, "six"))
    WAY("verr verrx", seven, listed(function, 11, NULL, 0, 5, "six"))
    WAY("close_range", 0, check(F(int, unsigned, unsigned, int)(3, ~0U, 0) == 0); (void)!write(file(), "after", 5); _exit(0))
    WAY("closefrom", 0, F(void, int)(3); (void)!write(file(), "after", 5); _exit(0))
    WAY("fcloseall", 0, fputs("text", stream()); F(int, void)(); _exit(0))
    WAY("malloc_stats", 0, F(void, void)(); _exit(0))
    WAY("putwchar putwchar_unlocked", 0, anew(); F(wint_t, wchar_t)(L'\n'); fflush(stdout); _exit(0))
    WAY("wprintf", 0, anew(); V(int, const wchar_t *)(L"%d and %ls\n", 5, L"six"); fflush(stdout); _exit(0))
    WAY("__wprintf_chk", 0, anew(); V(int, int, const wchar_t *)(1, L"%d and %ls\n", 5, L"six"); fflush(stdout); _exit(0))
    WAY("vwprintf", 0, anew(); listed(function, 6, NULL, 0, 5, L"six"); fflush(stdout); _exit(0))
    WAY("__vwprintf_chk", 0, anew(); listed(function, 8, NULL, 0, 5, L"six"); fflush(stdout); _exit(0))
    WAY("getchar getchar_unlocked", 0, from(); _exit(F(int, void)() != 't'))
    WAY("getwchar getwchar_unlocked", 0, from(); _exit(F(wint_t, void)() != L't'))
    WAY("scanf __isoc99_scanf", 0, from(); _exit(V(int, const char *)("%*8c%c", text) != 1))
    WAY("vscanf __isoc99_vscanf", 0, from(); _exit(listed(function, 14, NULL, 0, text) != 1))
    WAY("wscanf __isoc99_wscanf", 0, from(); _exit(V(int, const wchar_t *)(L"%*8c%c", text) != 1))
    WAY("vwscanf __isoc99_vwscanf", 0, from(); _exit(listed(function, 15, NULL, 0, text) != 1))
    WAY("login_tty", 0, setsid(); int fd = open("/dev/ptmx", O_RDWR); check(fd >= 0 && unlockpt(fd) == 0);
        check(F(int, int)(open(ptsname(fd), O_RDWR | O_NOCTTY)) == 0 && write(1, "text\n", 5) == 5); _exit(0))
    WAY("daemon", 0, prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); pid_t us = fork(); if (us == 0) {
            check(F(int, int, int)(1, 1) == 0);
            mark(number);
            _exit(write(file(), "daemon", 6) != 6);
        } while (wait(NULL) > 0); _exit(us < 0))
    return -1;
}

/* The function of this name, which must be the tracer's where there is one. */
static void *found(void) {
    void *function = dlsym(RTLD_DEFAULT, name);
    const char *preload = getenv("LD_PRELOAD");
    Dl_info info;
    check(function != NULL);
    if (preload)
        check(dladdr(function, &info) != 0 && info.dli_fname && strstr(preload, info.dli_fname));
    return function;
}

#if defined __x86_64__
enum { PLENTY = 1 << 20, GUARD = 1 << 16, LEAST = 4096, MORE = 1024, PAINT = 0xA5, WORDS = 8 };

/* What a child tells of its call. */
static struct told {
    char *top;
    long used;
    int over;
} * told;
static char *stacks[2], *stack;
static const char *way;
static long room;
void *target;
long kept[10];

/* A process without handlers; this one then ends with its status. */
static void copy_process(void) {
    int status;
    long child = unseen(SYS_fork, 0, 0, 0);
    if (!child)
        return;
    unseen4(SYS_wait4, child, (long)&status, 0, 0);
    if (WIFSIGNALED(status))
        unseen(SYS_kill, unseen(SYS_getpid, 0, 0, 0), WTERMSIG(status), 0);
    unseen(SYS_exit_group, WEXITSTATUS(status), 0, 0);
}

/* Before the call: the painted top of its stack, with the arguments of the caller's stack. */
__attribute__((used)) char *measure_begin(char *caller) {
    char *end = stack + GUARD + PLENTY;
    told->top = stack + GUARD + room;
    if (!strcmp(way, "cold"))
        copy_process();
    if (!strcmp(way, "vfork")) {
        static int status;
        static long child;
        if ((child = unseen(SYS_vfork, 0, 0, 0))) {
            unseen4(SYS_wait4, child, (long)&status, 0, 0);
            unseen(SYS_exit_group, WIFEXITED(status) ? WEXITSTATUS(status) : 99, 0, 0);
        }
    }
    memset(stack + GUARD, PAINT, end - (stack + GUARD));
    memcpy(told->top, caller + 8, WORDS * 8);
    return told->top;
}

static long used(void) {
    const char *at = stack + GUARD;
    while (at < told->top && *at == (char)PAINT)
        at++;
    return told->top - at;
}

__attribute__((used)) void measure_end(void) {
    told->used = used();
    told->over = 1;
}

/* Before the call: changes the stack, and nothing else that is visible to the call. */
void measured(void);
__asm__(".text\n.type measured, @function\nmeasured:\n"
        "endbr64\n"
        "mov %rdi, kept(%rip)\n mov %rsi, kept+8(%rip)\n mov %rdx, kept+16(%rip)\n mov %rcx, kept+24(%rip)\n"
        "mov %r8, kept+32(%rip)\n mov %r9, kept+40(%rip)\n mov %rax, kept+48(%rip)\n mov %rsp, kept+56(%rip)\n"
        "mov %rsp, %rdi\n sub $8, %rsp\n call measure_begin\n mov %rax, %rsp\n"
        "mov kept(%rip), %rdi\n mov kept+8(%rip), %rsi\n mov kept+16(%rip), %rdx\n mov kept+24(%rip), %rcx\n"
        "mov kept+32(%rip), %r8\n mov kept+40(%rip), %r9\n mov kept+48(%rip), %rax\n"
        "call *target(%rip)\n"
        "mov %rax, kept(%rip)\n mov kept+56(%rip), %rsp\n sub $8, %rsp\n call measure_end\n"
        "add $8, %rsp\n mov kept(%rip), %rax\n ret\n");

/* The stack used by the call in an earlier run. */
static long size_of_other(const char *sizes) {
    char line[200];
    long size = -1, found;
    FILE *file = fopen(sizes, "r");
    check(file != NULL);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%*s %ld", &found) == 1 && !strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
            size = found;
    fclose(file);
    check(size >= 0);
    return size;
}

static void measure(const char *sizes, void *function) {
    pid_t child;
    int status, wanted = ends(function, 0);
    /* A call that does not return is examined by the parent. daemon() forks, and the two must not share a
     * stack. */
    stack = stacks[wanted >= 0 && !is("daemon")];
    room = PLENTY - 4096;
    if (strcmp(sizes, "-")) {
        long needed = size_of_other(sizes) + MORE;
        room = (needed < LEAST ? LEAST : needed + 15) & -16;
    }
    *told = (struct told){0};
    target = function;
    fflush(stdout);
    check((child = fork()) >= 0);
    if (child == 0) {
        if (wanted >= 0) {
            ends((void *)measured, 1);
            _exit(98);
        }
        int called = descriptors((void *)measured) || streams((void *)measured) || starts((void *)measured);
        unseen(SYS_exit_group, called ? 0 : 97, 0, 0);
    }
    check(waitpid(child, &status, 0) == child);
    /* A raw fork's end by abort has no core. */
    if ((status & ~0x80) != (wanted >= 0 ? wanted : 0)) {
        fprintf(stderr, "%s: %s, %ld bytes of stack: ended by %#x\n", name, way, room, status);
        told->used = room + 1;
    } else if (!told->over) {
        told->used = used();
    }
}

static int stacks_of(int count, char **arguments) {
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_ANONYMOUS;
    for (int shared = 0; shared < 2; shared++) {
        stacks[shared] = mmap(NULL, GUARD + PLENTY, prot, flags | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
        check(stacks[shared] != MAP_FAILED && mprotect(stacks[shared], GUARD, PROT_NONE) == 0);
    }
    told = mmap(NULL, 4096, prot, flags | MAP_SHARED, -1, 0);
    check(told != MAP_FAILED);
    way = arguments[0];
    int out = open("stacks", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (number = 1; number < count - 1; number++) {
        name = arguments[number + 1];
        measure(arguments[1], found());
        dprintf(out, "%s %ld\n", name, told->used);
    }
    return 0;
}
#else
static int stacks_of(int count, char **arguments) { return 77; }
#endif

int main(int count, char **arguments) {
    static char path[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    self = path;
    name = "every";
    check(length > 0);
    int marker = open("marker", O_RDWR | O_CREAT, 0644);
    check(marker >= 0 && dup2(marker, MARKER) == MARKER && close(marker) == 0);
    memset(text, 't', sizeof text - 1);
    if (count >= 3 && !strcmp(arguments[1], "--mark")) {
        /* Writers to this process must find it running. */
        while (count > 3 && unseen(SYS_read, 0, (long)text, sizeof text) > 0)
            ;
        mark(atoi(arguments[2]));
        int fd = open("started", O_WRONLY | O_CREAT | O_APPEND, 0644);
        return write(fd, "started", 7) != 7;
    }
    int fd = open("source", O_WRONLY | O_CREAT, 0644);
    check(write(fd, text, sizeof text) == sizeof text && close(fd) == 0);
    if (count >= 4 && !strcmp(arguments[1], "--stack"))
        return stacks_of(count - 2, arguments + 2);
    static long counts[1000];
    for (number = 1; number < count; number++) {
        name = arguments[number];
        void *function = found();
        fflush(stdout);
        long before = counted();
        mark(number);
        int status = ends(function, 0);
        if (status >= 0) {
            int really;
            pid_t child = fork();
            if (child == 0) {
                mark(number);
                ends(function, 1);
                _exit(98);
            }
            check(waitpid(child, &really, 0) == child);
            if ((really & ~0x80) != status)
                fail("the child ended otherwise");
        } else if (!descriptors(function) && !streams(function) && !starts(function)) {
            fail("there is no call of it here");
        }
        fflush(stdout);
        mark(0);
        counts[number] = counted() - before;
    }
    fd = open("counts", O_WRONLY | O_CREAT, 0644);
    for (number = 1; number < count; number++)
        dprintf(fd, "%s %ld\n", arguments[number], counts[number]);
    return 0;
}
