/* The cost of starting a traced program: each way with and without the tracer's environment, in turn.
 * This program is linked statically, so that it is never traced.
 * Usage: start ROUNDS SELF       SELF: the same program, linked dynamically
 *        start chain COUNT       executes itself COUNT times more, then ends */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHAIN = 20, COMMANDS = 20, WAYS = 3 };

extern char **environ;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double took(char **command, char **environment) {
    double start = now_us();
    pid_t pid = vfork();
    if (pid == 0) {
        execve(command[0], command, environment);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
        perror(command[0]);
        exit(1);
    }
    return now_us() - start;
}

static int chain(char **arguments) {
    int left = atoi(arguments[2]);
    if (left == 0)
        return 0;
    char number[16];
    snprintf(number, sizeof number, "%d", left - 1);
    char *next[] = {arguments[0], arguments[1], number, NULL};
    execv(arguments[0], next);
    return 1;
}

int main(int count, char **arguments) {
    if (count != 3)
        return 2;
    if (!strcmp(arguments[1], "chain"))
        return chain(arguments);
    int rounds = atoi(arguments[1]);
    char number[16], loop[64];
    snprintf(number, sizeof number, "%d", CHAIN);
    snprintf(loop, sizeof loop, "for n in $(seq %d); do /bin/true; done", COMMANDS);
    char *true_[] = {"/bin/true", NULL};
    char *chain_[] = {arguments[2], "chain", number, NULL};
    char *shell[] = {"/bin/sh", "-c", loop, NULL};
    char **ways[WAYS] = {true_, chain_, shell};
    /* The chain starts one process and replaces it; the shell starts itself and seq as well. */
    const char *names[WAYS] = {"a process", "an exec in its place", "a command of a shell"};
    int times[WAYS] = {1, CHAIN + 1, COMMANDS + 2};
    char **bare = calloc(4096, sizeof *bare), **to = bare;
    for (char **variable = environ; *variable && to < bare + 4095; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) && strncmp(*variable, "CAWL_", 5))
            *to++ = *variable;
    if (rounds < 1 || bare + 4095 == to || !getenv("CAWL_SOCKET"))
        return 2;
    double *of[WAYS][2];
    for (int way = 0; way < WAYS; way++)
        for (int traced = 0; traced < 2; traced++)
            of[way][traced] = calloc(rounds, sizeof(double));
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < WAYS; way++)
            for (int turn = 0; turn < 2; turn++) {
                int traced = (turn + round) % 2;
                of[way][traced][round] = took(ways[way], traced ? environ : bare) / times[way];
            }
    puts("| | untraced, µs | traced, µs | added, µs | 90 % of rounds below: untraced, traced |\n|---|---|---|---|---|");
    for (int way = 0; way < WAYS; way++) {
        for (int traced = 0; traced < 2; traced++)
            qsort(of[way][traced], rounds, sizeof(double), ascending);
        double *without = of[way][0], *with = of[way][1];
        printf("| %s | %.0f | %.0f | %.0f | %.0f, %.0f |\n", names[way], without[rounds / 2], with[rounds / 2],
               with[rounds / 2] - without[rounds / 2], without[rounds * 9 / 10], with[rounds * 9 / 10]);
    }
    return 0;
}
