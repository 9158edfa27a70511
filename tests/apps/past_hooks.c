/*
 * Changes a descriptor past the C library, as runtimes with system calls of their own do: past_hooks WAY BEFORE
 * AFTER. Writes BEFORE times to a descriptor of the file "a", changes it, and writes AFTER times; each time
 * 1000 bytes. Prints nothing: the files have the truth.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((always_inline)) static inline long raw(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
#endif
}

static long open_raw(const char *name) {
    return raw(SYS_openat, AT_FDCWD, (long)name, O_WRONLY | O_CREAT, 0600);
}

static char data[1000];

static void wrote(int fd, int times) {
    while (times-- > 0)
        if (write(fd, data, sizeof data) != sizeof data)
            abort();
}

/* Sends a descriptor to itself: it comes back at the lowest free number, that of `closed`. */
static int sent(int fd, int closed) {
    int ends[2];
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        abort();
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    if (raw(SYS_sendmsg, ends[0], (long)&message, 0, 0) != 1)
        abort();
    raw(SYS_close, closed, 0, 0, 0);
    if (raw(SYS_recvmsg, ends[1], (long)&message, 0, 0) != 1)
        abort();
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    const char *way = arguments[1];
    int before = atoi(arguments[2]), after = atoi(arguments[3]);
    int other = open("b", O_WRONLY | O_CREAT, 0600), fd = open("a", O_WRONLY | O_CREAT, 0600), now = fd;
    wrote(fd, before);
    if (!strcmp(way, "close")) {
        raw(SYS_close, fd, 0, 0, 0);
        now = open_raw("b");
    } else if (!strcmp(way, "close_range")) {
        raw(SYS_close_range, fd, fd, 0, 0);
        now = open_raw("b");
    } else if (!strcmp(way, "dup")) {
        raw(SYS_dup3, other, fd, 0, 0);
    } else if (!strcmp(way, "F_DUPFD")) {
        raw(SYS_close, fd, 0, 0, 0);
        now = raw(SYS_fcntl, other, F_DUPFD, fd, 0);
    } else if (!strcmp(way, "lseek")) {
        raw(SYS_lseek, fd, 1 << 20, SEEK_SET, 0);
    } else if (!strcmp(way, "write")) {
        /* Moves the position, too. */
        raw(SYS_write, fd, (long)data, 500, 0);
    } else if (!strcmp(way, "rights")) {
        now = sent(other, fd);
    } else if (!strcmp(way, "pidfd")) {
        long own = raw(SYS_pidfd_open, getpid(), 0, 0, 0);
        raw(SYS_close, fd, 0, 0, 0);
        now = raw(SYS_pidfd_getfd, own, other, 0, 0);
    } else if (!strcmp(way, "clone")) {
        /* A process with this one's descriptors, but memory of its own. */
        long child = raw(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0);
        if (child == 0) {
            raw(SYS_dup3, other, fd, 0, 0);
            raw(SYS_exit_group, 0, 0, 0, 0);
        }
        waitpid(child, NULL, 0);
    } else {
        return 2;
    }
    if (now != fd)
        abort();
    wrote(fd, after);
    close(fd);
    return 0;
}
