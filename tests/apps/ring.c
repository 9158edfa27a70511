/* Makes many small calls, in the way that the first argument names. The count is the second, the third how to
 * read with the way "reads". */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static long count;
static int null;
static pthread_barrier_t barrier;

static void *calls(void *unused) {
    for (long i = 0; i < count; i++)
        if (write(null, "x", 1) != 1) _exit(1);
    return unused;
}

/* Through two descriptors in turn, so that no call is coalesced. */
static void alternating(void) {
    int other = open("/dev/null", O_WRONLY);
    for (long i = 0; i < count; i++)
        if (write(i % 2 ? other : null, "x", 1) != 1) _exit(1);
}

/* A byte at a time, from the begin of a file to its end. */
static void reads(const char *how) {
    int fd = open("in", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char byte[2];
    struct iovec parts[2] = {{byte, 1}, {byte + 1, 1}};
    if (fd < 0 || ftruncate(fd, 2 * count)) _exit(1);
    for (long i = 0; i < count; i++)
        if (!strcmp(how, "read") ? read(fd, byte, 1) != 1
            : !strcmp(how, "pread") ? pread(fd, byte, 1, i) != 1
            : !strcmp(how, "backwards") ? pread(fd, byte, 1, count - i) != 1
                                        : readv(fd, parts, 2) != 2)
            _exit(1);
}

static void *calls_at_once(void *unused) {
    pthread_barrier_wait(&barrier);
    calls(unused);
    /* No slot is freed before all threads have one. */
    pthread_barrier_wait(&barrier);
    return unused;
}

static void threads(int number, void *(*what)(void *)) {
    pthread_t ids[number];
    pthread_barrier_init(&barrier, NULL, number);
    for (int i = 0; i < number; i++)
        if (pthread_create(&ids[i], NULL, what, NULL)) _exit(1);
    for (int i = 0; i < number; i++) pthread_join(ids[i], NULL);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *way = argv[1];
    count = atol(argv[2]);
    /* Until the daemon has said how much memory the ring may have, that is little. */
    if (count > 100000) usleep(200000);
    null = open("/dev/null", O_WRONLY);
    if (!strcmp(way, "refuse")) {
        /* Programs from here on cannot make memory to share. This one is not traced, the next one is. */
        setenv("LD_PRELOAD", getenv("PRELOAD_NEXT"), 1);
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
        execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
        return 1;
    }
    if (!strcmp(way, "calls")) calls(NULL);
    if (!strcmp(way, "alternating")) alternating();
    if (argc > 3) reads(argv[3]);
    if (!strcmp(way, "killed")) {
        calls(NULL);
        raise(SIGKILL);
    }
    if (!strcmp(way, "locked")) {
        if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 77;
        calls(NULL);
        /* The rings' address space must not have become memory: 100 MB are plenty for this program. */
        long resident = 0, size;
        FILE *statm = fopen("/proc/self/statm", "r");
        if (!statm || fscanf(statm, "%ld %ld", &size, &resident) != 2) return 1;
        return resident > 25000 ? 3 : 0;
    }
    if (!strcmp(way, "many threads")) {
        threads(200, calls_at_once);
        threads(200, calls_at_once);
    }
    if (!strcmp(way, "more threads")) threads(300, calls_at_once);
    if (!strcmp(way, "thread after thread"))
        for (int i = 0; i < 300; i++) threads(1, calls);
    if (!strcmp(way, "forks")) {
        /* Each child is born while another thread of its parent records. */
        pthread_t other;
        pthread_create(&other, NULL, calls, NULL);
        for (int i = 0; i < 20; i++) {
            pid_t pid = i % 2 ? fork() : (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
            if (pid == 0) {
                for (int n = 0; n < 100; n++)
                    if (write(null, "y", 1) != 1) _exit(1);
                _exit(0);
            }
            int status;
            if (waitpid(pid, &status, 0) != pid || status) return 1;
        }
        pthread_join(other, NULL);
    }
    return 0;
}
