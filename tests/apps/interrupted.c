// interrupted FILE: writes, says "ready", waits for SIGINT, writes again and exits with 5.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
static void handler(int number) { (void)number; }
int main(int argc, char **argv) {
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGINT, &action, NULL);
    if (write(fd, "before ", 7) != 7 || write(1, "ready\n", 6) != 6) return 1;
    sigsuspend(&before);
    return write(fd, "after", 5) == 5 ? 5 : 2;
}
