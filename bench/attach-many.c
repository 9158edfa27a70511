// attach-many FILE: a program under load that counts by itself. Two threads write blocks to FILE, one is woken by a pipe
// every ms, one makes processes. At SIGTERM it prints what it did, and what the kernel counted: calls, bytes, bytes that
// the kernel counted, calls that were interrupted, calls that did less than they were asked, processes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 4096, BLOCKS = 1024 };
static atomic_long calls, bytes, interrupted, less, processes;
static atomic_int over;
static int file, ends[2];

static void count(long done, long asked)
{
    calls++;
    if (done > 0)
        bytes += done;
    if (done < 0 && errno == EINTR)
        interrupted++;
    else if (done != asked)
        less++;
}

static void *writes(void *first)
{
    static char block[BLOCK];
    for (long at = (long)first; !over; at++) {
        count(pwrite(file, block, BLOCK, at % BLOCKS * BLOCK), BLOCK);
        if (at % 64 == 0)
            usleep(1000);
    }
    return 0;
}

static void *reads(void *unused)
{
    char byte;
    long done;
    while ((done = read(ends[0], &byte, 1)) != 0)
        if (done < 0)
            errno == EINTR ? interrupted++ : less++;
    return unused;
}

static void *makes(void *unused)
{
    while (!over) {
        pid_t child = fork();
        int status = 1;
        if (!child)
            _exit(0);
        if (waitpid(child, &status, 0) != child)
            errno == EINTR ? interrupted++ : less++;
        else if (!WIFEXITED(status) || WEXITSTATUS(status))
            less++;
        processes++;
        usleep(20000);
    }
    return unused;
}

// Bytes that the kernel counted of this process's calls.
static long counted(void)
{
    char text[512] = "", *line;
    int io = open("/proc/self/io", O_RDONLY);
    long size = read(io, text, sizeof text - 1);
    close(io);
    return size > 0 && (line = strstr(text, "wchar: ")) ? atol(line + 7) : -1;
}

int main(int argc, char **argv)
{
    pthread_t threads[4];
    sigset_t end;
    int signal;
    file = open(argc > 1 ? argv[1] : "file", O_WRONLY | O_CREAT, 0644);
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, 0);
    if (file < 0 || pipe(ends))
        return 1;
    long before = counted();
    pthread_create(&threads[0], 0, writes, (void *)0);
    pthread_create(&threads[1], 0, writes, (void *)(BLOCKS / 2));
    pthread_create(&threads[2], 0, makes, 0);
    pthread_create(&threads[3], 0, reads, 0);
    struct timespec tick = { 0, 1000000 };
    while ((signal = sigtimedwait(&end, 0, &tick)) != SIGTERM) {
        if (signal < 0 && errno == EINTR)
            interrupted++;
        count(write(ends[1], "x", 1), 1);
    }
    over = 1;
    for (int at = 0; at < 3; at++)
        pthread_join(threads[at], 0);
    long after = counted();
    close(ends[1]);
    pthread_join(threads[3], 0);
    printf("%ld %ld %ld %ld %ld %ld\n", calls, bytes, after - before, interrupted, less, processes);
    return 0;
}
