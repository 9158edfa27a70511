/* Threads that write: each to a file of its own, all to one descriptor, each to a stream of its own. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, WRITES = 2000 };

static int shared;
static FILE *common;

static void *work(void *argument) {
    char name[32];
    long number = (long)argument;
    snprintf(name, sizeof name, "file%ld", number);
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    snprintf(name, sizeof name, "stream%ld", number);
    FILE *stream = fopen(name, "w");
    for (int i = 0; i < WRITES; i++) {
        if (write(fd, "own", 3) != 3 || write(shared, "x", 1) != 1)
            abort();
        fputs("stream", stream);
        putc_unlocked('\n', stream);
        fprintf(common, "%ld %d\n", number, i);
    }
    fclose(stream);
    close(fd);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    shared = open("shared", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    common = fopen("/dev/null", "w");
    for (int round = 0; round < 3; round++) {
        for (long i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, work, (void *)i))
                abort();
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    fputs("last", common);
    fclose(common);
    return 0;
}
