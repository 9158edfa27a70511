// worker_writer: all writing is done by a second thread, which also has a child write and waits for it.
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *none) {
    int fd = open("worker", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int i = 0; i < 1000; i++) if (write(fd, "0123456789", 10) != 10) _exit(1);
    pid_t child = fork();
    if (child == 0) _exit(write(fd, "child", 5) != 5);
    waitpid(child, NULL, 0);
    close(fd);
    return none;
}
int main(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL);
}
