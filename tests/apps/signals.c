/* A timer's handler writes while the program writes; then a thread is cancelled in write, and a handler
 * jumps out of one. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int out, ends[2];
static volatile sig_atomic_t handled;
static sigjmp_buf back;
static char block[65536];

static void tick(int signal) {
    (void)signal;
    handled++;
    if (write(out, "tick\n", 5) != 5)
        abort();
}

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void *block_in_write(void *argument) {
    for (;;)
        if (write(ends[1], block, sizeof block) < 0)
            return argument;
}

int main(void) {
    static char stack[16384];
    stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&small, NULL);
    out = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    FILE *stream = fopen("stream", "w");
    for (int i = 0; handled < 200; i++) {
        if (write(out, "x", 1) != 1)
            abort();
        fprintf(stream, "%d\n", i);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    fclose(stream);

    if (pipe(ends))
        abort();
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, block_in_write, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED)
        abort();

    action.sa_handler = jump;
    sigaction(SIGALRM, &action, NULL);
    if (!sigsetjmp(back, 1)) {
        struct itimerval soon = {{0, 0}, {0, 1000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        for (;;)
            if (write(ends[1], block, sizeof block) < 0)
                abort();
    }
    if (write(out, "end\n", 4) != 4)
        abort();
    return 0;
}
