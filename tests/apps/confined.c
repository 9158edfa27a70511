/* Confines itself by a filter of system calls, or asks whether it could, and goes on. Whatever the filter does
 * not allow kills, so that no call may be made that this program does not make itself.
 *
 * As HOW, "dispatch" is no filter: system calls are signals (Syscall User Dispatch).
 *
 * confined HOW WHAT; "child" before WHAT has it done by a fork child; as HOW, "print" only prints the filter
 * under which programs can be started. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *how;
static volatile int go_on = 1;
static int begun;
static unsigned long code_start, code_length;

static void check(int good, int status) {
    if (!good)
        syscall(SYS_exit_group, status);
}

/* What this program calls under a filter, and the C library for it. */
static const int allowed[] = {
    SYS_read,    SYS_write,  SYS_openat,   SYS_close,          SYS_munmap, SYS_mremap, SYS_mmap,
    SYS_mprotect, SYS_brk,   SYS_exit,     SYS_exit_group,     SYS_futex,  SYS_clone,  SYS_clone3,
    SYS_wait4,   SYS_rseq,   SYS_madvise,  SYS_set_robust_list, SYS_rt_sigprocmask,    SYS_rt_sigreturn,
};
/* What no shell needs to start and to copy files. */
static const int denied[] = {
    SYS_statx, SYS_name_to_handle_at, SYS_memfd_create, SYS_process_vm_readv, SYS_process_vm_writev, 451, SYS_socket,
    SYS_connect, SYS_sendmsg, SYS_recvfrom, SYS_getsockopt, SYS_setsockopt, SYS_sigaltstack, SYS_fstatfs,
    SYS_ppoll, SYS_getrusage, SYS_mincore, SYS_getdents64, SYS_nanosleep, SYS_sched_yield,
};

/* Where the C library's code is. */
static int code_of_libc(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(object->dlpi_name, "libc.so"))
        return 0;
    for (int at = 0; at < object->dlpi_phnum; at++)
        if (object->dlpi_phdr[at].p_type == PT_LOAD && object->dlpi_phdr[at].p_flags & PF_X) {
            code_start = object->dlpi_addr + object->dlpi_phdr[at].p_vaddr;
            code_length = object->dlpi_phdr[at].p_memsz;
        }
    return 1;
}

/* From now on every system call from outside of the C library is a signal, which kills. */
static void dispatch(int by_prctl) {
    static char selector = 1;
    long failed;
    dl_iterate_phdr(code_of_libc, NULL);
    if (by_prctl)
        failed = prctl(59, 1L, code_start, code_length, &selector);
    else
        failed = syscall(SYS_prctl, 59L, 1L, code_start, code_length, &selector);
    check(failed == 0, 77);
}

static void confine(int starts) {
    static struct sock_filter code[128];
    const int *list = starts ? denied : allowed;
    size_t count = starts ? sizeof denied / sizeof *denied : sizeof allowed / sizeof *allowed, at = 0;
    unsigned listed = starts ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW;
    unsigned others = starts ? SECCOMP_RET_ALLOW : SECCOMP_RET_KILL_PROCESS;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t number = 0; number < count; number++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, list[number], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    struct sock_fprog program = {at, code};
    if (!strcmp(how, "print")) {
        check(write(1, code, at * sizeof *code) == (ssize_t)(at * sizeof *code), 90);
        exit(0);
    }
    if (!strcmp(how, "strict")) {
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, 90);
        return;
    }
    if (!strcmp(how, "probe")) {
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1, 91);
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL) == -1, 91);
        return;
    }
    if (!strcmp(how, "dispatch") || !strcmp(how, "dispatch by syscall")) {
        dispatch(!strcmp(how, "dispatch"));
        return;
    }
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, 92);
    long failed = 0;
    if (!strcmp(how, "prctl"))
        failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    else if (!strcmp(how, "seccomp"))
        failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    else if (!strcmp(how, "tsync"))
        failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    else if (!strcmp(how, "inline")) {
#ifdef __x86_64__
        __asm__ volatile("syscall"
                         : "=a"(failed)
                         : "0"((long)SYS_seccomp), "D"((long)SECCOMP_SET_MODE_FILTER), "S"(0L), "d"(&program)
                         : "rcx", "r11", "memory");
#else
        failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
#endif
    }
    check(failed == 0, 93);
}

static void *writes(void *number) {
    char name[] = "thread.";
    name[6] = (char)('0' + (long)number);
    for (int times = 0; go_on; times++) {
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        check(fd >= 0 && write(fd, "abc\n", 4) == 4, 94);
        close(fd);
        if (times == 0)
            __atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Puts the environment into memory that cannot be written. */
static void seal_environment(void) {
    size_t length = 1 << 20, count = 0, at;
    char *place = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(place != MAP_FAILED, 79);
    while (environ[count])
        count++;
    char **list = (char **)place;
    at = (count + 1) * sizeof *list;
    for (size_t number = 0; number < count; number++) {
        list[number] = strcpy(place + at, environ[number]);
        at += strlen(environ[number]) + 1;
    }
    check(mprotect(place, length, PROT_READ) == 0, 79);
    environ = list;
}

static void act(const char *what) {
    char text[] = "after\n";
    int known = open("known", O_RDWR | O_CREAT | O_TRUNC, 0644);
    check(write(known, "before\n", 7) == 7, 80);
    if (!strcmp(what, "sealed"))
        seal_environment();
    if (!strcmp(what, "write") || !strcmp(what, "sealed")) {
        confine(0);
        for (int times = 0; times < 1000; times++)
            check(write(known, text, 6) == 6, 81);
        if (strcmp(how, "strict")) {
            int fd = open("unknown", O_WRONLY | O_CREAT | O_TRUNC, 0644);
            check(fd >= 0 && write(fd, text, 6) == 6 && close(fd) == 0 && close(known) == 0, 82);
            exit(0);
        }
        syscall(SYS_exit, 0);
    } else if (!strcmp(what, "exec")) {
        confine(1);
        execl("/bin/cat", "cat", "known", (char *)NULL);
    } else if (!strcmp(what, "copied")) {
        /* Nothing of the environment that was there is changed any more. */
        char *environment[256];
        size_t count = 0;
        for (; environ[count] && count < 255; count++)
            environment[count] = strdup(environ[count]);
        environment[count] = NULL;
        confine(1);
        execve("/bin/cat", (char *[]){"cat", "known", NULL}, environment);
    } else if (!strcmp(what, "map")) {
        check(ftruncate(known, 65536) == 0, 83);
        char *first = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, known, 0);
        char *second = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, known, 0);
        check(first != MAP_FAILED && second != MAP_FAILED, 84);
        first[0] = second[4096] = 1;
        confine(0);
        check(munmap(first, 65536) == 0 && mremap(second, 65536, 32768, 0) != MAP_FAILED, 85);
        _exit(0);
    } else if (!strcmp(what, "fork")) {
        confine(0);
        pid_t child = fork();
        if (child == 0) {
            check(write(known, text, 6) == 6, 86);
            _exit(7);
        }
        int status;
        check(wait4(child, &status, 0, NULL) == child && status == 7 << 8, 87);
        _exit(0);
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[3];
        for (long number = 0; number < 3; number++)
            pthread_create(&threads[number], NULL, writes, (void *)number);
        while (__atomic_load_n(&begun, __ATOMIC_RELAXED) < 3)
            usleep(1000);
        confine(0);
        for (int times = 0; times < 20000; times++)
            check(write(known, text, 6) == 6, 88);
        go_on = 0;
        for (int number = 0; number < 3; number++)
            pthread_join(threads[number], NULL);
        exit(0);
    }
    check(0, 89);
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    how = arguments[1];
    if (!strcmp(how, "print"))
        confine(1);
    int of_child = !strcmp(arguments[2], "child") && count > 3;
    if (!of_child)
        act(arguments[2]);
    pid_t child = fork();
    if (child == 0)
        act(arguments[3]);
    int status;
    check(waitpid(child, &status, 0) == child, 3);
    printf("%x\n", status);
    return 0;
}
