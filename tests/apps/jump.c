/* Many processes, each of which leaves a write by a jump out of a signal handler, at whatever point, writes a
 * hundred times more, and then ends. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

int main(void) {
    for (int at = 0; at < 200; at++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open("/dev/null", O_WRONLY);
            struct sigaction action = {.sa_handler = jump};
            sigaction(SIGALRM, &action, NULL);
            struct itimerval soon = {{0, 0}, {0, 1000 + at}};
            if (!sigsetjmp(back, 1)) {
                setitimer(ITIMER_REAL, &soon, NULL);
                for (;;)
                    if (write(fd, "x", 1) != 1)
                        abort();
            }
            int after = open("after", O_WRONLY | O_CREAT | O_APPEND, 0600);
            for (int more = 0; more < 100; more++)
                if (write(after, "y", 1) != 1)
                    abort();
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            abort();
    }
    return 0;
}
