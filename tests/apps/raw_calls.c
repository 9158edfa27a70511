/* Calls by syscall(), which is no cancellation point, in a process with a library that makes its own calls by it: with
 * -DLIBRARY that library, linked or preloaded; with -DOTHER_NAME it uses other names of the same functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#ifdef LIBRARY
#define open open_of_fcntl
#define openat openat_of_fcntl
#define fcntl fcntl_of_fcntl
#endif
#include <fcntl.h>
#undef open
#undef openat
#undef fcntl
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef LIBRARY
/* How often they were called. */
int wrapper_calls;
#define WRAP(type, name, parameters, call) \
    type name parameters {                 \
        wrapper_calls++;                   \
        return call;                       \
    }
#ifdef OTHER_NAME
int open64(const char *, int, ...), openat64(int, const char *, int, ...), creat64(const char *, mode_t), __close(int),
    __dup2(int, int), fcntl64(int, int, ...);
ssize_t __read(int, void *, size_t), pread64(int, void *, size_t, off_t), __write(int, const void *, size_t),
    pwrite64(int, const void *, size_t, off_t);
off_t lseek64(int, off_t, int);
#define CALL(number, other, ...) other(__VA_ARGS__)
#else
#define CALL(number, other, ...) syscall(number, __VA_ARGS__)
#endif
WRAP(int, open, (const char *path, int flags, int mode), CALL(SYS_open, open64, path, flags, mode))
WRAP(int, openat, (int at, const char *path, int flags, int mode), CALL(SYS_openat, openat64, at, path, flags, mode))
WRAP(int, creat, (const char *path, mode_t mode), CALL(SYS_creat, creat64, path, mode))
WRAP(int, close, (int fd), CALL(SYS_close, __close, fd))
WRAP(int, dup2, (int fd, int to), CALL(SYS_dup2, __dup2, fd, to))
WRAP(int, fcntl, (int fd, int command, long argument), CALL(SYS_fcntl, fcntl64, fd, command, argument))
WRAP(ssize_t, read, (int fd, void *data, size_t length), CALL(SYS_read, __read, fd, data, length))
WRAP(ssize_t, pread, (int fd, void *data, size_t length, off_t at), CALL(SYS_pread64, pread64, fd, data, length, at))
WRAP(ssize_t, write, (int fd, const void *data, size_t length), CALL(SYS_write, __write, fd, data, length))
WRAP(ssize_t, pwrite, (int fd, const void *data, size_t length, off_t at),
     CALL(SYS_pwrite64, pwrite64, fd, data, length, at))
WRAP(off_t, lseek, (int fd, off_t at, int whence), CALL(SYS_lseek, lseek64, fd, at, whence))
WRAP(int, memfd_create, (const char *name, unsigned flags), syscall(SYS_memfd_create, name, flags))
WRAP(int, close_range, (unsigned first, unsigned last, int flags), syscall(SYS_close_range, first, last, flags))
WRAP(int, dup, (int fd), syscall(SYS_dup, fd))
WRAP(int, dup3, (int fd, int to, int flags), syscall(SYS_dup3, fd, to, flags))
WRAP(ssize_t, readv, (int fd, const struct iovec *parts, int count), syscall(SYS_readv, fd, parts, count))
WRAP(int, fsync, (int fd), syscall(SYS_fsync, fd))
WRAP(int, unlink, (const char *path), syscall(SYS_unlink, path))
WRAP(int, rename, (const char *from, const char *to), syscall(SYS_rename, from, to))
WRAP(int, chdir, (const char *path), syscall(SYS_chdir, path))
WRAP(int, fchdir, (int fd), syscall(SYS_fchdir, fd))
WRAP(int, execve, (const char *path, char *const *argv, char *const *envp), syscall(SYS_execve, path, argv, envp))

#else
static char data[100];
static struct iovec part = {data, 5};
static int fd;

#define TELL(...)                                                      \
    do {                                                               \
        errno = 0;                                                     \
        long returned = (__VA_ARGS__);                                 \
        printf("%s: %ld %s\n", #__VA_ARGS__, returned, strerror(errno)); \
    } while (0)

static void by_name(void) {
    TELL(fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0644));
    TELL(write(fd, data, 100));
    TELL(lseek(fd, 10, SEEK_SET));
    TELL(write(fd, data, 7));
    TELL(pwrite(fd, data, 9, 300));
    TELL(lseek(fd, 0, SEEK_SET));
    TELL(read(fd, data, 50));
    TELL(pread(fd, data, 20, 5));
    TELL(readv(fd, &part, 1));
    TELL(fsync(fd));
    TELL(dup(fd));
    TELL(dup2(fd, 20));
    TELL(write(20, data, 11));
    TELL(dup3(fd, 21, O_CLOEXEC));
    TELL(fcntl(fd, F_DUPFD, 22));
    TELL(write(22, data, 13));
    TELL(close(fd));
    TELL(close(fd));
    TELL(close_range(20, 30, 0));
    TELL(write(20, data, 11));
    TELL(fd = openat(AT_FDCWD, "nothing", O_RDONLY, 0));
    TELL(fd = creat("other", 0600));
    TELL(write(fd, data, 17));
    TELL(rename("other", "renamed"));
    TELL(unlink("file"));
    TELL(unlink("file"));
    TELL(fd = memfd_create("memory", 0));
    TELL(fd = openat(AT_FDCWD, ".", O_RDONLY | O_DIRECTORY, 0));
    TELL(chdir("/"));
    TELL(fchdir(fd));
}

static void raw(void) {
    TELL(fd = syscall(SYS_open, "file", O_RDWR | O_CREAT | O_TRUNC, 0644));
    TELL(syscall(SYS_write, fd, data, 100L));
    TELL(syscall(SYS_lseek, fd, 10L, SEEK_SET));
    TELL(syscall(SYS_write, fd, data, 7L));
    TELL(syscall(SYS_pwrite64, fd, data, 9L, 300L));
    TELL(syscall(SYS_lseek, fd, 0L, SEEK_SET));
    TELL(syscall(SYS_read, fd, data, 50L));
    TELL(syscall(SYS_pread64, fd, data, 20L, 5L));
    TELL(syscall(SYS_readv, fd, &part, 1L));
    TELL(syscall(SYS_preadv, fd, &part, 1L, 3L, 0L));
    TELL(syscall(SYS_preadv2, fd, &part, 1L, -1L, 0L, 0L));
    TELL(syscall(SYS_fsync, fd));
    TELL(syscall(SYS_dup, fd));
    TELL(syscall(SYS_dup2, fd, 20L));
    TELL(syscall(SYS_write, 20L, data, 11L));
    TELL(syscall(SYS_dup3, fd, 21L, O_CLOEXEC));
    TELL(syscall(SYS_fcntl, fd, F_DUPFD, 22L));
    TELL(syscall(SYS_write, 22L, data, 13L));
    TELL(syscall(SYS_close, fd));
    TELL(syscall(SYS_close, fd));
    TELL(syscall(SYS_close_range, 20L, 30L, 0L));
    TELL(syscall(SYS_write, 20L, data, 11L));
    TELL(fd = syscall(SYS_openat, AT_FDCWD, "nothing", O_RDONLY, 0));
    TELL(fd = syscall(SYS_creat, "other", 0600));
    TELL(syscall(SYS_write, fd, data, 17L));
    TELL(syscall(SYS_rename, "other", "renamed"));
    TELL(syscall(SYS_renameat, AT_FDCWD, "renamed", AT_FDCWD, "other"));
    TELL(syscall(SYS_renameat2, AT_FDCWD, "other", AT_FDCWD, "renamed", 0L));
    TELL(syscall(SYS_link, "renamed", "linked"));
    TELL(syscall(SYS_linkat, AT_FDCWD, "renamed", AT_FDCWD, "linked too", 0L));
    TELL(syscall(SYS_symlink, "renamed", "symlink"));
    TELL(syscall(SYS_symlinkat, "renamed", AT_FDCWD, "symlink too"));
    TELL(syscall(SYS_mkdir, "folder", 0700));
    TELL(syscall(SYS_mkdirat, AT_FDCWD, "folder too", 0700));
    TELL(syscall(SYS_rmdir, "folder"));
    TELL(syscall(SYS_unlinkat, AT_FDCWD, "folder too", (long)AT_REMOVEDIR));
    TELL(syscall(SYS_unlink, "file"));
    TELL(syscall(SYS_unlinkat, AT_FDCWD, "file", 0L));
    TELL(fd = syscall(SYS_memfd_create, "memory", 0L));
    TELL(fd = syscall(SYS_openat, AT_FDCWD, ".", O_RDONLY | O_DIRECTORY, 0));
    TELL(syscall(SYS_chdir, "/"));
    TELL(syscall(SYS_fchdir, fd));
    TELL(syscall(SYS_execve, "nothing", NULL, NULL));
    TELL(syscall(SYS_execveat, AT_FDCWD, "nothing", NULL, NULL, 0L));
}

/* A cancellation is waiting: where it may act, the thread says nothing more. */
static void *cancelled(void *nothing) {
    (void)nothing;
    pthread_cancel(pthread_self());
    raw();
    pthread_testcancel();
    return NULL;
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    int *calls = dlsym(RTLD_DEFAULT, "wrapper_calls"), before = calls ? *calls : 0;
    if (!strcmp(way, "cancel")) {
        pthread_t thread;
        void *end;
        pthread_create(&thread, NULL, cancelled, NULL);
        pthread_join(thread, &end);
        printf("%s\n", end == PTHREAD_CANCELED ? "cancelled" : "returned");
    } else if (!strcmp(way, "raw")) {
        raw();
    } else if (!strcmp(way, "name")) {
        by_name();
    }
    printf("%d calls of wrappers\n", calls ? *calls - before : 0);
    fflush(stdout);
    char *const next[] = {arguments[0], NULL};
    if (!strcmp(way, "name"))
        execve(arguments[0], next, environ);
    else if (*way)
        syscall(SYS_execve, arguments[0], next, environ);
    return 0;
}
#endif
