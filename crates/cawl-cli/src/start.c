/* What this process was given, looked at before Rust's runtime begins: that makes SIGPIPE ignored, and opens
   /dev/null in the place of standard descriptors that are closed. A program that is run must get neither. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>

static int ignored;
static int closed;

__attribute__((constructor)) static void look(void) {
    struct sigaction now;
    ignored = sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            closed |= 1 << fd;
}

int cawl_start_ignored_sigpipe(void) {
    return ignored;
}

int cawl_start_closed(void) {
    return closed;
}
