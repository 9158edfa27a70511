/* A timer's handler writes to the descriptor that the program writes to, as often as it can: `handler_writes MODE`.
 * Records of the program begin with 'm' and have 10 bytes, those of the handler 'h' and 7, so that the file tells
 * where each went. In mode "jump", some handlers leave by siglongjmp. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static int out, jumps;
static volatile sig_atomic_t handled;
static sigjmp_buf back;

static void tick(int signal) {
    (void)signal;
    if (write(out, "hhhhhh\n", 7) != 7)
        abort();
    if (++handled % 16 == 0 && jumps)
        siglongjmp(back, 1);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    int append = !strcmp(mode, "append"), seek = !strcmp(mode, "seek"), stream = !strcmp(mode, "stream");
    jumps = !strcmp(mode, "jump");
    out = open("out", O_WRONLY | O_CREAT | O_TRUNC | (append ? O_APPEND : 0), 0600);
    FILE *file = fdopen(out, "w");
    if (!file)
        abort();
    setvbuf(file, NULL, _IONBF, 0);
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 30}, {0, 30}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    sigsetjmp(back, 1);
    setitimer(ITIMER_REAL, &often, NULL);
    while (handled < 3000) {
        if (seek && lseek(out, 0, SEEK_CUR) < 0)
            abort();
        if (stream ? fputs("mmmmmmmmm\n", file) < 0 : write(out, "mmmmmmmmm\n", 10) != 10)
            abort();
    }
    setitimer(ITIMER_REAL, &never, NULL);
    _exit(0);
}
