// thread_writer: four threads, each with a file of its own and a quarter of a common one.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int common;
static void *work(void *number) {
    long n = (long)number;
    char name[16], block[1000];
    snprintf(name, sizeof name, "own%ld", n);
    memset(block, 'a' + n, sizeof block);
    int own = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < 1000; i++)
        if (write(own, block, 1000) != 1000 || pwrite(common, block, 1000, (n * 1000 + i) * 1000) != 1000) _exit(1);
    close(own);
    return NULL;
}
int main(void) {
    pthread_t threads[4];
    common = open("common", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (long n = 0; n < 4; n++) pthread_create(&threads[n], NULL, work, (void *)n);
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
    return 0;
}
