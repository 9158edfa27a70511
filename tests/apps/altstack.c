/* Starts programs from a signal handler that has 8 KiB of stack, as crash reporters do ("crash"); with a long
 * environment ("long"); and many, by vfork and with no environment at all ("many"). The program that is started is this
 * one, with "report". */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 8192, GUARD = 65536, VARIABLES = 5000, STARTS = 300 };

static char *report[] = {"/proc/self/exe", "report", NULL}, *nothing[] = {NULL};
extern char **environ;

static void ended(pid_t child) {
    int status;
    if (child <= 0 || waitpid(child, &status, 0) != child || status)
        _exit(3);
}

static void crashed(int number) {
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        execve(report[0], report, nothing);
        _exit(4);
    }
    ended(child);
    if ((child = vfork()) == 0) {
        execvp(report[0], report);
        _exit(4);
    }
    ended(child);
    if (posix_spawn(&child, report[0], NULL, NULL, report, environ))
        _exit(4);
    ended(child);
    if (posix_spawnp(&child, report[0], NULL, NULL, report, nothing))
        _exit(4);
    ended(child);
    _exit(write(1, "reported\n", 9) != 9);
}

/* Mappings of this process. */
static int mappings(void) {
    static char text[1 << 16];
    int fd = open("/proc/self/maps", O_RDONLY), count = 0;
    for (ssize_t length; (length = read(fd, text, sizeof text)) > 0;)
        for (ssize_t at = 0; at < length; at++)
            count += text[at] == '\n';
    close(fd);
    return count;
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    if (!strcmp(way, "report")) {
        int fd = open("report", O_WRONLY | O_CREAT | O_APPEND, 0600);
        return write(fd, "report\n", 7) != 7;
    }
    if (!strcmp(way, "crash")) {
        char *place = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t stack = {.ss_sp = place + GUARD, .ss_size = STACK};
        struct sigaction action = {.sa_handler = crashed, .sa_flags = SA_ONSTACK};
        if (place == MAP_FAILED || mprotect(place, GUARD, PROT_NONE) || sigaltstack(&stack, NULL)
            || sigaction(SIGSEGV, &action, NULL))
            return 2;
        static int *volatile nowhere;
        *nowhere = 1;
    }
    if (!strcmp(way, "long")) {
        static char *variables[VARIABLES + 1];
        for (int i = 0; i < VARIABLES; i++)
            if (asprintf(&variables[i], "V%d=%d", i, i) < 0)
                return 2;
        execve(report[0], report, variables);
    }
    if (!strcmp(way, "many")) {
        int before = 0;
        for (int i = 0; i < STARTS; i++) {
            pid_t child = vfork();
            if (child == 0) {
                execve(report[0], report, nothing);
                _exit(4);
            }
            ended(child);
            if (i == 0)
                before = mappings();
        }
        /* What the children took of this process's memory and could not give back has not piled up. */
        return mappings() > before + 2 ? 5 : 0;
    }
    return 1;
}
