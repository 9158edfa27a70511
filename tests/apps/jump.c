/* Many processes, each of which leaves a write by a jump out of a signal handler, at any point, writes a
 * hundred times more, and then ends. With "names": each leaves calls on new files in this way, thirty times,
 * and then another thread writes to a hundred more files. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static sigjmp_buf back;

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

/* Opens, writes to and closes files with different names, unless stopped before. */
static void *files(void *kind) {
    static int number;
    for (int count = *(char *)kind == 'z' ? 100 : 100000; count-- > 0;) {
        char name[32];
        snprintf(name, sizeof name, "%s-%d-%d", (char *)kind, (int)getpid(), number++);
        int fd = open(name, O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || write(fd, "x", 1) != 1)
            abort();
        close(fd);
    }
    return NULL;
}

static int names(void) {
    for (int at = 0; at < 20; at++) {
        pid_t child = fork();
        if (child == 0) {
            struct sigaction action = {.sa_handler = jump};
            sigaction(SIGALRM, &action, NULL);
            for (volatile int left = 30; left-- > 0;) {
                struct itimerval soon = {{0, 0}, {0, 300 + 14 * at + 13 * left}};
                if (!sigsetjmp(back, 1)) {
                    setitimer(ITIMER_REAL, &soon, NULL);
                    files("a");
                }
            }
            /* A half-open session can be completed by no other thread while this one lives. */
            if (write(open("/dev/null", O_WRONLY), "x", 1) != 1)
                abort();
            pthread_t other;
            if (pthread_create(&other, NULL, files, "z") || pthread_join(other, NULL))
                abort();
            exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            abort();
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "names"))
        return names();
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
