// fsync in a function of a known name, called in different ways: stacks MODE FILE.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static int file;
static volatile int after;

__attribute__((noinline)) void save_all(void) {
    fsync(file); // line 18
    after++;     // no tail call
}

static inline __attribute__((always_inline)) void save_inlined(void) {
    fdatasync(file); // line 23
    after++;
}

__attribute__((noinline)) void commit(void) {
    save_all();
    after++;
}

__attribute__((noinline)) void commit_inlined(void) {
    save_inlined();
    after++;
}

// A secret lies on the stack when the call is made.
__attribute__((noinline)) void with_secret(void) {
    volatile char secret[64];
    // Never as a whole in the program's file.
    for (int at = 0; at < 40; at++) secret[at] = (char)("zyxwvutsrq"[at % 10] ^ (at % 3));
    commit();
    after += secret[7];
}

static void *thread(void *unused) {
    commit();
    return unused;
}

static ucontext_t home, away;

static void coroutine(void) {
    commit();
    swapcontext(&away, &home);
}

static void handler(int number) {
    commit();
    after += number;
}

__attribute__((noinline)) int deep(int left) {
    volatile char room[512];
    room[left % 512] = 1;
    if (left == 0) commit();
    else deep(left - 1);
    return room[left % 512] + ++after;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    file = open(argc > 2 ? argv[2] : "file", O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (file < 0 || write(file, "data", 4) != 4) return 1;
    if (!strcmp(mode, "plain")) commit();
    if (!strcmp(mode, "inlined")) commit_inlined();
    if (!strcmp(mode, "secret")) with_secret();
    if (!strcmp(mode, "deep")) deep(40);
    if (!strcmp(mode, "killed")) {
        commit();
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(mode, "fork")) {
        commit();
        pid_t child = fork();
        if (child == 0) {
            commit();
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    if (!strcmp(mode, "thread")) {
        // The least that there may be, and what the C library takes of it for the thread's own data.
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        if (pthread_attr_setstacksize(&attributes, 16384 + 4096) != 0) return 2;
        pthread_t id;
        if (pthread_create(&id, &attributes, thread, NULL) != 0) return 3;
        pthread_join(id, NULL);
    }
    if (!strcmp(mode, "coroutine")) {
        // At the end of mapped memory, and behind a page that cannot be read.
        char *stack = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(stack + 4 * 4096, 4096);
        getcontext(&away);
        away.uc_stack.ss_sp = stack;
        away.uc_stack.ss_size = 4 * 4096;
        away.uc_link = &home;
        makecontext(&away, coroutine, 0);
        swapcontext(&home, &away);
    }
    if (!strcmp(mode, "signal")) {
        stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
        if (sigaltstack(&other, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return 4;
        raise(SIGUSR1);
    }
    if (!strcmp(mode, "many")) {
        for (int at = 0; at < 20000; at++) {
            if (pwrite(file, "data", 4, 4 * at) != 4) return 5;
        }
    }
    if (!strcmp(mode, "asked")) {
        // A write for each byte that comes.
        char byte;
        while (read(0, &byte, 1) == 1) {
            if (pwrite(file, "data", 4, 0) != 4) return 6;
        }
    }
    close(file);
    return 0;
}
