/* What `run --try` is to change, and what it must not: results, errno, contents and times go to standard output, what
 * the kernel counted goes into the file "counts". */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1L << 20)

static int counts;

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(99);
    }
}

static void count(const char *name, long value) {
    dprintf(counts, "%s %ld\n", name, value);
}

/* Write calls that the kernel has counted. */
static long writes(void) {
    char text[512] = "";
    int fd = open("/proc/self/io", O_RDONLY);
    check(fd >= 0 && read(fd, text, sizeof text - 1) > 0, "/proc/self/io");
    close(fd);
    return atol(strstr(text, "syscw: ") + 7);
}

/* Cached and dirty pages of a file; -1 where the kernel does not tell. */
static void pages(const char *name, int fd) {
    struct { unsigned long offset, length; } range = {0, 0};
    struct { unsigned long cached, dirty, writeback, evicted, recently; } found;
    char words[64];
    int told = syscall(451 /* cachestat */, fd, &range, &found, 0) == 0;
    snprintf(words, sizeof words, "%s-cached", name);
    count(words, told ? (long)found.cached : -1);
    snprintf(words, sizeof words, "%s-dirty", name);
    count(words, told ? (long)found.dirty : -1);
}

static void told(const char *what, long result) {
    printf("%s: %ld, errno %d\n", what, result, errno);
    errno = E2BIG;
}

static void lines(const char *name, const char *mode, int how, int own) {
    errno = E2BIG;
    FILE *file = fopen(name, mode);
    check(file != NULL, name);
    static char room[64];
    if (own)
        told("setvbuf", setvbuf(file, how == _IOFBF ? room : NULL, how, sizeof room));
    long before = writes();
    for (int at = 0; at < 20000; at++)
        check(fprintf(file, "line %d\n", at) > 0, name);
    told("fflush", fflush(file));
    told("ftell", ftell(file));
    told("fputs", fputs("the last one\n", file));
    told("fclose", fclose(file));
    count(name, writes() - before);
}

static void streams(void) {
    lines("plain", "w", 0, 0);
    lines("again", "a", 0, 0);
    lines("both", "w+", 0, 0);
    lines("own", "w", _IOFBF, 1);
    lines("by-line", "w", _IOLBF, 1);
    lines("unbuffered", "w", _IONBF, 1);
    long before = writes();
    FILE *file = fopen("first", "w");
    check(file && fputs("text\n", file) > 0 && (file = freopen("second", "w", file)), "freopen");
    for (int at = 0; at < 20000; at++)
        fputs("text of the second\n", file);
    told("fclose", fclose(file));
    int fd = open("third", O_WRONLY | O_CREAT, 0644);
    check(fd >= 0 && (file = fdopen(fd, "w")), "fdopen");
    for (int at = 0; at < 20000; at++)
        fputs("text of the third\n", file);
    told("fclose", fclose(file));
    count("others", writes() - before);
    /* More than there are buffers, and all addresses used again. */
    for (int round = 0; round < 3; round++) {
        static FILE *all[300];
        for (int at = 0; at < 300; at++)
            check((all[at] = fopen("many", "a")) != NULL, "many");
        for (int at = 0; at < 300; at++)
            check(fprintf(all[at], "%d\n", at) > 0 && fclose(all[at]) == 0, "many");
    }
    /* Left open: the C library writes it out at the end. */
    file = fopen("open", "w");
    check(file && fputs("never closed\n", file) > 0, "open");
}

/* 32 MiB, which are on the device every 8 MiB if `synced`. */
static void big(const char *name, int flags, int synced) {
    static char data[64 << 10];
    memset(data, 'x', sizeof data);
    int fd = open(name, flags | O_CREAT | O_TRUNC, 0644);
    check(fd >= 0, name);
    errno = E2BIG;
    for (long at = 0; at < 32 * MIB; at += sizeof data) {
        check(write(fd, data, sizeof data) == sizeof data && errno == E2BIG, name);
        if (synced && (at + (long)sizeof data) % (8 * MIB) == 0)
            check(sync_file_range(fd, 0, 0, 7) == 0, "sync_file_range");
    }
    pages(name, fd);
    told(name, lseek(fd, 0, SEEK_CUR));
    close(fd);
}

static void syncs(void) {
    int fd = open("synced", O_RDWR | O_CREAT, 0644), ends[2], folder = open(".", O_RDONLY);
    int path = open("synced", O_PATH);
    check(fd >= 0 && folder >= 0 && path >= 0 && pipe(ends) == 0, "open");
    errno = E2BIG;
    told("write", write(fd, "text", 4));
    told("fsync", fsync(fd));
    pages("fsync", fd);
    told("write", write(fd, "text", 4));
    told("fdatasync", fdatasync(fd));
    pages("fdatasync", fd);
    told("syscall", syscall(SYS_fsync, fd));
    told("folder", fsync(folder));
    told("pipe", fsync(ends[1]));
    told("path", fsync(path));
    told("none", fsync(-1));
    told("closed", fdatasync(999));
    told("raw", syscall(SYS_fdatasync, 999));
    /* A vfork child is not the process that is traced. */
    pid_t child = vfork();
    if (child == 0)
        _exit(fsync(fd));
    int status = -1;
    waitpid(child, &status, 0);
    told("vfork", status);
    pages("vfork", fd);
    close(fd);
}

static void space_of(const char *name, int flags, int twice) {
    static char data[MIB];
    struct stat found;
    int fd = open(name, O_CREAT | flags, 0644), other = twice ? dup(fd) : -1;
    check(fd >= 0, name);
    errno = E2BIG;
    for (int at = 0; at < 3; at++)
        check(write(fd, data, sizeof data) == sizeof data && errno == E2BIG, name);
    check(fstat(fd, &found) == 0, "fstat");
    count(name, found.st_blocks * 512);
    told("size", found.st_size);
    struct timespec times[2] = {{1000000000, 5}, {1000000001, 7}};
    check(futimens(fd, times) == 0, "futimens");
    check((other < 0 || close(other) == 0) && close(fd) == 0, "close");
    check(stat(name, &found) == 0, "stat");
    printf("%s: %ld bytes, changed at %ld.%ld\n", name, (long)found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec);
    char closed[64];
    snprintf(closed, sizeof closed, "%s-closed", name);
    count(closed, found.st_blocks * 512);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "exec")) {
        /* Without an environment. */
        char *list[] = {argv[0], "streams", NULL}, *none[] = {NULL};
        execve(argv[0], list, none);
        return 99;
    }
    counts = open("counts", O_WRONLY | O_CREAT | O_APPEND, 0644);
    struct statfs where;
    check(counts >= 0 && fstatfs(counts, &where) == 0, "counts");
    count("tmpfs", where.f_type == 0x01021994);
    if (!strcmp(mode, "streams")) {
        streams();
    } else if (!strcmp(mode, "big")) {
        big("dirty", O_WRONLY, 0);
        big("clean", O_WRONLY, 1);
        big("both", O_RDWR, 1);
    } else if (!strcmp(mode, "syncs")) {
        syncs();
    } else if (!strcmp(mode, "space")) {
        space_of("alone", O_WRONLY, 0);
        space_of("twice", O_WRONLY, 1);
        space_of("appended", O_WRONLY | O_APPEND, 0);
        space_of("read-too", O_RDWR, 0);
    } else {
        return 98;
    }
    return 7;
}
