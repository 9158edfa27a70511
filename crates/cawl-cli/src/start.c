/* The inherited state, read before Rust's runtime starts: the runtime ignores SIGPIPE, and opens
   /dev/null in the place of closed standard descriptors. The started program must get neither. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* SIGPIPE and glibc's two internal signals: its posix_spawn leaves those ignored in the process that it
   starts, unless told otherwise (spawni.c, 2.36), and its functions on signals refuse them. */
static const int changed[] = {SIGPIPE, 32, 33};

static uint64_t usual;
static int closed;

__attribute__((constructor)) static void look(void) {
    for (size_t at = 0; at < sizeof changed / sizeof *changed; at++) {
        /* The kernel's struct sigaction: handler, flags, restorer, mask. */
        uint64_t now[4] = {0};
        if (syscall(SYS_rt_sigaction, changed[at], NULL, now, sizeof(uint64_t)) == 0 &&
            now[0] != (uint64_t)(uintptr_t)SIG_IGN)
            usual |= UINT64_C(1) << (changed[at] - 1);
    }
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            closed |= 1 << fd;
}

/* Those of these signals that were not ignored. */
sigset_t cawl_start_usual(void) {
    sigset_t set;
    sigemptyset(&set);
    memcpy(&set, &usual, sizeof usual);
    return set;
}

int cawl_start_closed(void) {
    return closed;
}

/* Starts a process that waits for a byte from the socket `own`, then becomes the program at `path`. The number of the
   error, if it cannot, is its answer; it ends when the other end, `other`, is closed. Its number; -1 if there is none.
   As posix_spawn does, it shields what runs here from the signals of that process, and the other way round. */
pid_t cawl_start_waiting(const char *path, char *const *arguments, char *const *environment, int own, int other) {
    const uint64_t all = ~UINT64_C(0);
    uint64_t before = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof all);
    pid_t child = fork();
    if (child == 0) {
        for (int signal = 1; signal <= 64; signal++) {
            uint64_t now[4] = {0}, none[4] = {0};
            int is_known = syscall(SYS_rt_sigaction, signal, NULL, now, sizeof all) == 0;
            if (is_known && (now[0] != (uint64_t)(uintptr_t)SIG_IGN || usual >> (signal - 1) & 1))
                syscall(SYS_rt_sigaction, signal, none, NULL, sizeof all);
        }
        for (int fd = 0; fd < 3; fd++)
            if (closed >> fd & 1)
                close(fd);
        close(other);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
        char go;
        ssize_t got;
        do
            got = read(own, &go, 1);
        while (got < 0 && errno == EINTR);
        if (got == 1) {
            execve(path, arguments, environment);
            int error = errno;
            (void)!write(own, &error, sizeof error);
        }
        _exit(127);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
    return child;
}

/* The tracer's own system calls, by their names in service.rs; cachestat is 451 on every processor. */
static const long calls[] = {
    451, SYS_clock_gettime, SYS_close, SYS_connect, SYS_faccessat, SYS_fcntl, SYS_fstat, SYS_fstatfs, SYS_ftruncate, SYS_getcwd,
    SYS_getdents64, SYS_geteuid, SYS_getpid, SYS_getppid, SYS_getrusage, SYS_getsockopt, SYS_gettid, SYS_getuid, SYS_lseek,
    SYS_madvise, SYS_memfd_create, SYS_mincore, SYS_mlock2, SYS_mlockall, SYS_mmap, SYS_mprotect, SYS_mremap, SYS_munlock, SYS_munmap,
    SYS_name_to_handle_at, SYS_nanosleep, SYS_newfstatat, SYS_openat, SYS_ppoll, SYS_prctl, SYS_pread64,
    SYS_prlimit64, SYS_process_vm_readv, SYS_process_vm_writev, SYS_read, SYS_readlinkat, SYS_recvfrom,
    SYS_rt_sigprocmask, SYS_sendmsg, SYS_setsockopt, SYS_sigaltstack, SYS_socket, SYS_statx, SYS_tgkill, SYS_write,
};

/* 1 if a child process outlives all of them, with arguments that make no sense, else 0. */
int cawl_start_outlives_calls(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_DUMPABLE, 0);
        for (size_t at = 0; at < sizeof calls / sizeof *calls; at++)
            syscall(calls[at], -1L, -1L, -1L, -1L, -1L, -1L);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}
