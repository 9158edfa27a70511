/* Treats descriptors roughly. The first argument picks how; every way writes the same file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A system call that no library sees. */
static long raw(long number, long a, long b) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
    return result;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "first ", 6) != 6)
        abort();
    if (!strcmp(way, "close")) {
        /* The first time, there may be some that whoever started us left open. */
        for (int i = fd + 1; i < 4096; i++)
            close(i);
        for (int i = fd + 1; i < 4096; i++)
            if (close(i) == 0 || errno != EBADF)
                abort();
    } else if (!strcmp(way, "close_range")) {
        if (close_range(fd + 1, ~0U, 0))
            abort();
    } else if (!strcmp(way, "closefrom")) {
        closefrom(fd + 1);
    } else if (!strcmp(way, "dup2")) {
        for (int i = fd + 1; i < 1024; i++)
            if (dup2(fd, i) != i)
                abort();
        if (write(1023, "second ", 7) != 7)
            abort();
        for (int i = fd + 1; i < 1024; i++)
            if (i != 700 && close(i) && errno != EBADF)
                abort();
    } else if (!strcmp(way, "raw")) {
        /* Behind the tracer's back; then every number leads to a file of the program's. */
        for (int i = fd + 1; i < 4096; i++)
            raw(SYS_close, i, 0);
        for (int i = fd + 1; i < 1024; i++)
#if defined(SYS_dup2)
            if (raw(SYS_dup2, fd, i) != i)
#else
            if (raw(SYS_dup3, fd, i) != i)
#endif
                abort();
    } else if (!strcmp(way, "limit")) {
        struct rlimit limit = {16, 16};
        if (setrlimit(RLIMIT_NOFILE, &limit))
            abort();
        int last = fd;
        for (int next; (next = dup(fd)) >= 0;)
            last = next;
        if (last < 10 || close(last))
            abort();
    }
    for (int i = 0; i < 1000; i++)
        if (write(fd, "third ", 6) != 6)
            abort();
    return 0;
}
