/* Programs that are hard on a preloaded library; the first argument names one. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        _exit(99);
    }
}

static void put(const char *name, const char *text) {
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644);
    check(fd >= 0, name);
    check(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write");
    close(fd);
}

extern char **environ;

/* Where to, open from the start. */
static int looks;

/* What a process holds: its descriptors, but the tracer's, which is the only socket, and its environment, but
 * what is the tracer's (and PWD, which a shell sets). */
static void look(const char *who) {
    int sockets = 0;
    for (int fd = 0; fd < 4096; fd++) {
        struct stat stat;
        if (fstat(fd, &stat))
            continue;
        if (S_ISSOCK(stat.st_mode))
            sockets++;
        else
            dprintf(looks, "%s %d: %o %o %o\n", who, fd, stat.st_mode, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    }
    check(sockets <= 1, "sockets");
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "LD_PRELOAD=", 11) && strncmp(*variable, "CAWL_", 5) && strncmp(*variable, "PWD=", 4))
            dprintf(looks, "%s %s\n", who, *variable);
}

static void daemonize(void) {
    int done[2];
    check(pipe(done) == 0, "pipe");
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            for (int fd = 0; fd < 3; fd++)
                close(fd);
            open("/dev/null", O_RDWR);
            put("daemon", "written by the daemon\n");
            look("daemon");
            _exit(0);
        }
        _exit(0);
    }
    close(done[1]);
    char byte;
    check(read(done[0], &byte, 1) == 0, "the daemon's end");
    while (wait(NULL) > 0)
        ;
}

static void vforks(void) {
    for (int at = 0; at < 200; at++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status;
        check(waitpid(child, &status, 0) == child && status == 0, "child");
        put("vforks", "one more\n");
    }
}

static void limits(void) {
    put("limits", "before\n");
    struct rlimit limit = {16, 16};
    check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    put("limits", "after\n");
    if (fork() == 0) {
        put("limits", "child\n");
        look("child");
        exit(0);
    }
    wait(NULL);
    put("limits", "end\n");
}

/* Kills on socket() and connect(). */
static void seccomp(const char *self, int raw) {
    put("seccomp", "before\n");
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "prctl");
    if (raw)
        check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
    else
        check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0, "prctl");
    put("seccomp", "after\n");
    pid_t child = fork();
    if (child == 0) {
        put("seccomp", "child\n");
        look("child");
        execl("/bin/sh", "sh", "-c", "echo program >> seccomp; exec \"$0\" look", self, (char *)NULL);
        _exit(1);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "a confined child");
}

static void unprivileged(void) {
    put("setuid", "before\n");
    int fd = open("setuid", O_WRONLY | O_APPEND);
    check(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
    check(write(fd, "after\n", 6) == 6, "write");
    if (fork() == 0) {
        check(write(fd, "child\n", 6) == 6, "write");
        look("child");
        exit(0);
    }
    wait(NULL);
}

static void rooted(void) {
    check(mkdir("root", 0755) == 0 && chroot("root") == 0 && chdir("/") == 0, "chroot");
    put("/inside", "in a root of its own\n");
    if (fork() == 0) {
        put("/inside", "child\n");
        look("child");
        exit(0);
    }
    wait(NULL);
}

static void *writer(void *argument) {
    char name[32];
    sprintf(name, "thread%ld", (long)argument);
    FILE *file = fopen(name, "w");
    for (int line = 0; line < 100; line++)
        fprintf(file, "line %d\n", line);
    fclose(file);
    return NULL;
}

static void threads(void) {
    pthread_t all[200];
    for (long at = 0; at < 200; at++)
        check(pthread_create(&all[at], NULL, writer, (void *)at) == 0, "thread");
    for (int at = 0; at < 200; at++)
        pthread_join(all[at], NULL);
}

static void *forever(void *argument) {
    char text[4096] = {0};
    for (;;)
        if (write(*(int *)argument, text, sizeof text) < 0)
            return NULL;
}

static void cancelled(void) {
    for (int at = 0; at < 50; at++) {
        int ends[2];
        check(pipe(ends) == 0, "pipe");
        pthread_t thread;
        check(pthread_create(&thread, NULL, forever, &ends[1]) == 0, "thread");
        char byte[100000];
        check(read(ends[0], byte, sizeof byte) > 0, "read");
        pthread_cancel(thread);
        void *result;
        pthread_join(thread, &result);
        check(result == PTHREAD_CANCELED, "cancelled");
        close(ends[0]);
        close(ends[1]);
    }
}

static volatile sig_atomic_t ticks;

static void tick(int number) {
    (void)number;
    ticks++;
    int kept = errno;
    if (write(STDERR_FILENO, "", 0) < 0)
        _exit(98);
    errno = kept;
}

static void profiled(void) {
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
    struct itimerval often = {{0, 100}, {0, 100}};
    setitimer(ITIMER_PROF, &often, NULL);
    FILE *file = fopen("profiled", "w");
    int fd = open("direct", O_WRONLY | O_CREAT, 0644);
    for (int line = 0; line < 100000; line++) {
        fprintf(file, "line %d\n", line);
        check(write(fd, "x", 1) == 1, "write");
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &never, NULL);
    fclose(file);
}

static void forks(void) {
    for (int round = 0; round < 10; round++) {
        for (int at = 0; at < 50; at++)
            if (fork() == 0) {
                put("forks", "x");
                _exit(0);
            }
        while (wait(NULL) > 0)
            ;
    }
}

static void chain(char **arguments) {
    int left = atoi(arguments[2]);
    put("chain", "one image\n");
    if (left > 0) {
        char number[16];
        sprintf(number, "%d", left - 1);
        char *next[] = {arguments[0], arguments[1], number, NULL};
        execv(arguments[0], next);
    }
}

static void libraries(char **arguments) {
    for (int at = 0; at < 20; at++) {
        void *library = dlopen(arguments[2], RTLD_NOW);
        check(library != NULL, "dlopen");
        void (*function)(void) = (void (*)(void))dlsym(library, "work");
        function();
        dlclose(library);
    }
}

static long resident(void) {
    char line[256];
    long pages = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld", &pages);
    fclose(file);
    return pages;
}

/* KiB resident of what the tracer maps: its shared memory, or else its library with its statics. */
static long of_tracer(int shared) {
    char line[4096];
    long all = 0, kib;
    int ours = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2) {
            static unsigned long end;
            /* The zeroed statics of a library follow it without a name. */
            int follows = ours && from == end && !strchr(line, '/') && !strchr(line, '[');
            ours = follows || (strstr(line, "cawl") && !strstr(line, "memfd:") == !shared);
            end = to;
        } else if (ours && sscanf(line, "Rss: %ld", &kib) == 1) {
            all += kib;
        }
    }
    fclose(file);
    return all;
}

/* Each file is a new one, and there are at most a hundred: in memory where possible, where no
 * inode's number comes twice. */
static void many_files(char **arguments) {
    char folder[] = "/dev/shm/cawl-many-XXXXXX", name[64];
    const char *where = mkdtemp(folder) ? folder : ".";
    long count = atol(arguments[2]), own = 0, ring = 0;
    for (long at = 0; at < count + 100; at++) {
        if (at < count) {
            sprintf(name, "%s/many%ld", where, at);
            int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
            check(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0, "file");
        }
        if (at >= 100) {
            sprintf(name, "%s/many%ld", where, at - 100);
            check(unlink(name) == 0, "unlink");
        }
        if (at == count / 10) {
            own = of_tracer(0);
            ring = of_tracer(1);
        }
    }
    if (where == folder)
        check(rmdir(where) == 0, "rmdir");
    FILE *file = fopen("memory", "w");
    fprintf(file, "%ld %ld %ld %ld\n", own, of_tracer(0), ring, of_tracer(1));
    fclose(file);
}

static void memory(char **arguments) {
    long first = 0, own = 0, ring = 0, calls = atol(arguments[2]);
    int fd = open("/dev/null", O_WRONLY);
    for (long at = 0; at < calls; at++) {
        check(write(fd, "x", 1) == 1, "write");
        if (at % 100 == 0) {
            FILE *file = fopen("/dev/null", "w");
            fputs("text", file);
            fclose(file);
        }
        if (at == calls / 10) {
            first = resident();
            own = of_tracer(0);
            ring = of_tracer(1);
        }
    }
    if (arguments[3])
        printf("%ld %ld %ld %ld %ld\n", own, of_tracer(0), ring, of_tracer(1), resident() - first);
    else
        printf("%ld\n", resident() - first);
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    looks = open("look", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    check(looks >= 0, "look");
    if (!strcmp(way, "look"))
        ;
    else if (!strcmp(way, "daemonize"))
        daemonize();
    else if (!strcmp(way, "vforks"))
        vforks();
    else if (!strcmp(way, "limits"))
        limits();
    else if (!strcmp(way, "seccomp"))
        seccomp(arguments[0], 0);
    else if (!strcmp(way, "seccomp-raw"))
        seccomp(arguments[0], 1);
    else if (!strcmp(way, "setuid"))
        unprivileged();
    else if (!strcmp(way, "chroot"))
        rooted();
    else if (!strcmp(way, "threads"))
        threads();
    else if (!strcmp(way, "cancelled"))
        cancelled();
    else if (!strcmp(way, "profiled"))
        profiled();
    else if (!strcmp(way, "files"))
        many_files(arguments);
    else if (!strcmp(way, "forks"))
        forks();
    else if (!strcmp(way, "chain"))
        chain(arguments);
    else if (!strcmp(way, "libraries"))
        libraries(arguments);
    else if (!strcmp(way, "memory"))
        memory(arguments);
    else
        return 97;
    look(way);
    return 0;
}
