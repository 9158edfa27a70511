// message_writer: messages that the C library puts together and writes to standard error by itself.
#include <err.h>
#include <errno.h>
#include <error.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    char *arguments[] = {"message_writer", "-x", NULL};
    (void)argc, (void)argv, errno = ENOENT;
    perror("perror");
    psignal(SIGTERM, "psignal");
    warn("%s", "warn");
    warnx("%s", "warnx");
    error(0, ENOSPC, "%s", "error");
    error_at_line(0, 0, "file.c", 7, "%s", "error_at_line");
    getopt(2, arguments, "a");
    errx(4, "%s", "errx");
}
