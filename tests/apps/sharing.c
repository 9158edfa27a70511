/* Two processes that write one file, or each its own, in the way that the first argument names; both have all
 * open before one writes, and the second one writes after the first. Files: `data`, `data0`, `data1`. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, RECORD = 47008 };
static char bytes[2 * RECORD];
static const char *way;
static int fd, turns[2][2];

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        _exit(99);
    }
}

static int is(const char *name) {
    return !strcmp(way, name);
}

static void put(size_t length, off_t at) {
    check(pwrite(fd, bytes, length, at) == (ssize_t)length, "pwrite");
}

static void lock(int type) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET};
    check(fcntl(fd, F_SETLKW, &range) == 0, "lock");
}

/* What process `which` writes in its turn. */
static void turn(int which) {
    if (is("halves") || is("files"))
        put(PAGE / 2, which * PAGE / 2);
    else if (is("pages"))
        put(PAGE, which * PAGE);
    else if (is("whole"))
        put(PAGE, 0);
    else if (is("same"))
        put(100, 50);
    else if (is("records"))
        for (int at = 0; at < 8; at++)
            put(RECORD, (off_t)(2 * at + which) * RECORD);
    else if (is("append"))
        check(write(fd, "a line\n", 7) == 7, "write");
    else if (is("locked") || is("lock only")) {
        lock(F_WRLCK);
        put(PAGE / 2, which * PAGE / 2);
        if (is("locked"))
            check(fsync(fd) == 0, "fsync");
        lock(F_UNLCK);
    } else if (is("synced")) {
        put(PAGE / 2, which * PAGE / 2);
        check(fsync(fd) == 0, "fsync");
    } else if (is("advised")) {
        if (which)
            check(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0, "posix_fadvise");
        put(PAGE / 2, which * PAGE / 2);
        check(fsync(fd) == 0, "fsync");
    } else if (is("mapped")) {
        check(ftruncate(fd, PAGE) == 0, "ftruncate");
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        check(page != MAP_FAILED, "mmap");
        page[which * PAGE / 2] = 1;
        check(munmap(page, PAGE) == 0, "munmap");
    } else {
        fprintf(stderr, "%s: unknown way\n", way);
        _exit(99);
    }
}

static void *thread(void *which) {
    put(PAGE / 2, which ? PAGE / 2 : 0);
    return NULL;
}

static void tell(int to) {
    check(write(turns[to][1], "", 1) == 1, "tell");
}

static void wait_for(int whose) {
    char none;
    check(read(turns[whose][0], &none, 1) == 1, "wait");
}

int main(int count, char **arguments) {
    way = count > 1 ? arguments[1] : "";
    if (is("threads")) {
        check((fd = open("data", O_RDWR | O_CREAT, 0644)) >= 0, "open");
        pthread_t other;
        check(pthread_create(&other, NULL, thread, turns) == 0, "pthread_create");
        thread(NULL);
        return pthread_join(other, NULL);
    }
    if (is("killed")) {
        check((fd = open("data", O_RDWR | O_CREAT, 0644)) >= 0, "open");
        put(PAGE, 0);
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        check(page != MAP_FAILED, "mmap");
        page[0] = 1;
        return kill(getpid(), SIGKILL);
    }
    check(pipe(turns[0]) == 0 && pipe(turns[1]) == 0, "pipe");
    pid_t child = fork();
    check(child >= 0, "fork");
    int which = child == 0;
    char name[16] = "data";
    if (is("files"))
        snprintf(name, sizeof name, "data%d", which);
    fd = open(name, O_RDWR | O_CREAT | (is("append") ? O_APPEND : 0), 0644);
    check(fd >= 0, "open");
    tell(!which);
    wait_for(which);
    if (which)
        wait_for(which);
    turn(which);
    if (!which)
        tell(1);
    else
        tell(0);
    /* Nobody closes a file before both have written. */
    if (!which) {
        wait_for(0);
        int status;
        check(waitpid(child, &status, 0) == child && status == 0, "child");
    }
    return 0;
}
