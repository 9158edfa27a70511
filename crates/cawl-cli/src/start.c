/* The inherited state, read before Rust's runtime starts: the runtime ignores SIGPIPE, and opens
   /dev/null in the place of closed standard descriptors. The started program must get neither. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
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
