// kernel KIND CALLS ROUNDS [FILE]: ns a call, the least of the rounds: `getppid`, or `pwrite` of a byte to FILE.
// With `follow` as the last argument it prints its pid, and begins when its input ends.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int count, char **arguments)
{
    int writes = !strcmp(arguments[1], "pwrite"), rounds = atoi(arguments[3]);
    long calls = atol(arguments[2]);
    double least = 1e18;
    char byte;
    if (!strcmp(arguments[count - 1], "follow")) {
        fprintf(stderr, "%d\n", getpid());
        while (read(0, &byte, 1) > 0)
            ;
    }
    int file = writes ? open(arguments[4], O_WRONLY | O_CREAT, 0644) : -1;
    if (writes && file < 0)
        return 1;
    while (rounds-- > 0) {
        double begin = now();
        for (long call = 0; call < calls; call++)
            if ((writes ? pwrite(file, "x", 1, 0) : syscall(SYS_getppid)) < 0)
                return 1;
        double took = (now() - begin) / calls;
        least = took < least ? took : least;
    }
    printf("%.1f\n", least);
    return 0;
}
