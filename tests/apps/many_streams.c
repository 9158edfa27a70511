/* Has more streams open at once than the tracer can remember, each of which holds something, and then closes them,
 * or `many_streams leave`s that to the end. Ends with 77 where a process may not have so many. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { COUNT = 4200 };

int main(int count, char **arguments) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_cur < COUNT + 100 || setrlimit(RLIMIT_NOFILE, &limit))
        return 77;
    static FILE *streams[COUNT];
    int fd = open("out", O_WRONLY | O_CREAT, 0600);
    for (int at = 0; at < COUNT; at++) {
        streams[at] = fdopen(dup(fd), "w");
        if (!streams[at])
            abort();
        fputs("x", streams[at]);
    }
    for (int at = 0; at < COUNT && count < 2; at++)
        if (fclose(streams[at]))
            abort();
    return 0;
}
