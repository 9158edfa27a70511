/* Treats descriptors roughly. The first argument picks how; every way writes the same file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(fd, "first ", 6) != 6)
        abort();
    if (!strcmp(way, "close")) {
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
            syscall(SYS_close, i);
        for (int i = fd + 1; i < 1024; i++)
            if (syscall(SYS_dup2, fd, i) != i)
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
