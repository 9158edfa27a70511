/* Forbids itself the processor's counter, by prctl or by syscall(), before its first write or after, and writes: itself,
 * in a child, and in a thread. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;

static void *writes(void *text) {
    for (int i = 0; i < 100; i++)
        if (write(fd, text, strlen(text)) < 0)
            exit(2);
    return NULL;
}

int main(int count, char **arguments) {
    fd = open("out", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (count > 2)
        writes("early ");
    long done = strcmp(arguments[1], "prctl") ? syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0)
                                              : prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (done)
        return 1;
    writes("late ");
    pid_t child = fork();
    if (!child) {
        writes("child ");
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, writes, "thread ");
    pthread_join(thread, NULL);
    FILE *stream = fopen("stream", "w");
    fprintf(stream, "%d\n", status);
    fclose(stream);
    return status != 0;
}
