/* Starts other programs in every way; each writes one line. The first argument names the way. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The most bytes of arguments with which a program can be started. */
static size_t longest(int spawns, char *self, char **environment) {
    enum { PIECE = 100000 };
    static char piece[PIECE + 1], rest[PIECE + 1], *words[100];
    size_t fits = 0, most = 8000000;
    memset(piece, 'x', PIECE);
    while (most - fits > 1) {
        size_t length = (fits + most) / 2;
        int status = 1, at = 0;
        pid_t pid;
        words[at++] = "process";
        words[at++] = "quiet";
        for (size_t left = length; at < 99; left -= PIECE, at++) {
            words[at] = piece;
            if (left <= PIECE) {
                memcpy(words[at++] = rest, piece, left);
                rest[left] = 0;
                break;
            }
        }
        words[at] = NULL;
        if (spawns) {
            if (posix_spawn(&pid, self, NULL, NULL, words, environment))
                pid = -1;
        } else if ((pid = vfork()) == 0) {
            execve(self, words, environment);
            _exit(1);
        }
        if (pid > 0)
            waitpid(pid, &status, 0);
        *(status == 0 ? &fits : &most) = length;
    }
    return fits;
}

int main(int count, char **arguments) {
    char *nothing[] = {NULL};
    char *words[] = {"process", "child", NULL};
    const char *way = count > 1 ? arguments[1] : "";
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        abort();
    self[length] = 0;
    if (!strcmp(way, "child")) {
        puts("child");
        return 0;
    }
    if (!strcmp(way, "quiet"))
        return 0;
    printf("parent\n");
    fflush(stdout);
    if (!strcmp(way, "execve"))
        execve(self, words, nothing);
    if (!strcmp(way, "execl"))
        execl(self, "process", "child", NULL);
    if (!strcmp(way, "execle"))
        execle(self, "process", "child", NULL, nothing);
    if (!strcmp(way, "execlp"))
        execlp(self, "process", "child", NULL);
    if (!strcmp(way, "execvp")) {
        clearenv();
        execvp(self, words);
    }
    if (!strcmp(way, "fexecve"))
        fexecve(open(self, O_RDONLY), words, nothing);
    if (!strcmp(way, "failing")) {
        execl("/nonexistent/program", "program", NULL);
        puts("still here");
        return 0;
    }
    pid_t pid = 0;
    /* Any other program. */
    if (!strcmp(way, "start") && posix_spawn(&pid, arguments[2], NULL, NULL, arguments + 2, environ))
        abort();
    if (!strcmp(way, "posix_spawn") && posix_spawn(&pid, self, NULL, NULL, words, nothing))
        abort();
    if (!strcmp(way, "posix_spawnp") && posix_spawnp(&pid, self, NULL, NULL, words, environ))
        abort();
    if (!strcmp(way, "vfork")) {
        pid = vfork();
        if (pid == 0) {
            int fd = open("vforked", O_WRONLY | O_CREAT, 0600);
            dup2(fd, 9);
            close(fd);
            execve(self, words, nothing);
            _exit(1);
        }
    }
    if (!strcmp(way, "fork")) {
        pid = fork();
        if (pid == 0) {
            puts("forked");
            exit(0);
        }
    }
    if (!strcmp(way, "raw fork")) {
        pid = syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
        if (pid == 0) {
            int fd = open("raw", O_WRONLY | O_CREAT, 0600);
            _exit(write(fd, "raw", 3) != 3);
        }
    }
    if (!strcmp(way, "_Fork")) {
        pid = _Fork();
        if (pid == 0) {
            int fd = open("raw", O_WRONLY | O_CREAT, 0600);
            _exit(write(fd, "raw", 3) != 3);
        }
    }
    if (!strcmp(way, "system")) {
        strcat(self, " child");
        return system(self);
    }
    if (!strcmp(way, "popen")) {
        strcat(self, " child; cat");
        FILE *pipe = popen(self, "w");
        fputs("through the pipe\n", pipe);
        return pclose(pipe);
    }
    if (!strcmp(way, "daemon")) {
        if (daemon(1, 0))
            abort();
        int fd = open("daemon", O_WRONLY | O_CREAT, 0600);
        return write(fd, "daemon", 6) != 6;
    }
    if (!strcmp(way, "longest")) {
        char *one[] = {"A=1", NULL};
        /* What the test was given. */
        unsetenv("CAWL_TRANSPORT");
        unsetenv("CAWL_CLOCK");
        for (int by = 0; by < 4; by++)
            printf("%zu\n", longest(by % 2, self, by / 2 ? environ : one));
        return 0;
    }
    if (!strcmp(way, "lists")) {
        char line[4096];
        setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
        FILE *pipe = popen("exit", "r");
        while (fgets(line, sizeof line, pipe))
            printf("%.*s\n", (int)strcspn(line, "("), line);
        return pclose(pipe);
    }
    waitpid(pid, NULL, 0);
    puts("done");
    return 0;
}
