/* become UID HOW FILE [PROGRAM …]: takes another user, as servers do that were started by root, and writes 64 KiB to FILE.
 * HOW is stay (it writes and ends), fork (a child writes), or exec (PROGRAM goes on). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_all(const char *name)
{
    static char block[4096];
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0666);
    for (int i = 0; i < 16; i++)
        if (write(fd, block, sizeof block) != sizeof block)
            exit(3);
    close(fd);
}

int main(int argc, char **argv)
{
    int uid = atoi(argv[1]);
    if (setgid(uid) != 0 || setuid(uid) != 0)
        return 2;
    if (strcmp(argv[2], "fork") == 0) {
        if (fork() == 0) {
            write_all(argv[3]);
            _exit(0);
        }
        wait(NULL);
        return 0;
    }
    write_all(argv[3]);
    if (argc > 4)
        execv(argv[4], argv + 4);
    return 0;
}
