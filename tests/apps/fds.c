/* Closes and replaces descriptors. The first argument names the mode; every mode writes the same file. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

/* Notes down the limits, and every descriptor below the soft one that any of the usual questions finds. */
static void look(FILE *to) {
    struct rlimit limit;
    struct stat status;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        abort();
    fprintf(to, "limits %ld %ld\n", (long)limit.rlim_cur, (long)limit.rlim_max);
    for (int fd = 0; fd < (int)limit.rlim_cur; fd++) {
        int found = fstat(fd, &status) == 0, flags = fcntl(fd, F_GETFD) >= 0, copy = dup(fd);
        if (found || flags || copy >= 0)
            fprintf(to, "%d: %d %d %d\n", fd, found, flags, copy);
        if (copy >= 0)
            close(copy);
    }
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "first ", 6) != 6)
        abort();
    if (!strcmp(way, "close")) {
        /* The first time, the parent may have left some open. */
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
        /* Unseen by the tracer; then every number is a file of the program. */
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
    if (!strcmp(way, "look")) {
        FILE *to = fopen("seen", "w");
        struct rlimit limit;
        look(to);
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit))
            abort();
        look(to);
        fclose(to);
    } else if (!strcmp(way, "all")) {
        /* Every number that the limit allows is the program's, in the child too. */
        FILE *to = fopen("seen", "w");
        int last = fd, count = 0;
        pid_t child = fork();
        for (int next; (next = dup(fd)) >= 0; count++)
            last = next;
        fprintf(to, "%d more, up to %d\n", count, last);
        for (; last > fileno(to); last--)
            close(last);
        fclose(to);
        if (child && waitpid(child, NULL, 0) != child)
            abort();
    }
    for (int i = 0; i < 1000; i++)
        if (write(fd, "third ", 6) != 6)
            abort();
    return 0;
}
