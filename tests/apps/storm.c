/* Threads that start processes as fast as they can, and write at the same time: storm WAY COUNT. The ways:
 * forks (the child writes a line), killed (it is killed while it writes), vforks and spawns (another program
 * writes the line). The files have the same content each time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, LINES = 20 };

extern char **environ;
static const char *way;
static char *self;
static int count;

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        _exit(99);
    }
}

static void line(int fd) { check(write(fd, "by a child\n", 11) == 11, "write"); }

/* A process that appends to this file, by the descriptor or the name, and says when it may be killed. */
static pid_t start(int fd, const char *name, int told[2]) {
    char *words[] = {self, "leaf", (char *)name, NULL};
    pid_t child;
    if (!strcmp(way, "spawns")) {
        check(posix_spawn(&child, self, NULL, NULL, words, environ) == 0, "posix_spawn");
        return child;
    }
    if (!strcmp(way, "vforks")) {
        child = vfork();
        if (child == 0) {
            execve(self, words, environ);
            _exit(98);
        }
        return child;
    }
    child = fork();
    if (child == 0 && !strcmp(way, "killed")) {
        for (int at = 0; at < LINES; at++)
            line(fd);
        check(write(told[1], "x", 1) == 1, "told");
        for (int null = open("/dev/null", O_WRONLY);;)
            line(null);
    }
    if (child == 0) {
        line(fd);
        _exit(0);
    }
    return child;
}

static void *storm(void *argument) {
    char streamed[32], childs[32];
    long number = (long)argument;
    int told[2], status;
    snprintf(streamed, sizeof streamed, "thread%ld", number);
    snprintf(childs, sizeof childs, "child%ld", number);
    FILE *stream = fopen(streamed, "w");
    int fd = open(childs, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    check(stream && fd >= 0 && pipe2(told, O_CLOEXEC) == 0, "files");
    for (int at = 0; at < count / THREADS; at++) {
        fprintf(stream, "%ld starts %d\n", number, at);
        pid_t child = start(fd, childs, told);
        check(child > 0, way);
        for (int more = 0; more < 5; more++)
            fprintf(stream, "%ld goes on %d\n", number, more);
        check(write(fileno(stream), "", 0) == 0, "write");
        int killed = !strcmp(way, "killed");
        char byte;
        if (killed)
            check(read(told[0], &byte, 1) == 1 && kill(child, SIGKILL) == 0, "kill");
        check(waitpid(child, &status, 0) == child, "waitpid");
        check(killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0, "status");
        if (at % 10 == 0)
            fflush(stream);
    }
    fclose(stream);
    close(fd);
    close(told[0]);
    close(told[1]);
    return NULL;
}

int main(int arguments, char **words) {
    if (arguments < 3)
        return 0;
    way = words[1];
    if (!strcmp(way, "leaf")) {
        FILE *file = fopen(words[2], "a");
        fputs("by a program\n", file);
        return fclose(file);
    }
    self = words[0];
    count = atoi(words[2]);
    pthread_t threads[THREADS];
    for (long at = 0; at < THREADS; at++)
        check(pthread_create(&threads[at], NULL, storm, (void *)at) == 0, "thread");
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    return 0;
}
