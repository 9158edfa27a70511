/* Locks its own program file, starts itself, and looks whether the lock is still there. With "over", in an
 * image that comes after the one that locked. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    int over = !strcmp(way, "over"), after = !strcmp(way, "after");
    int fd = after ? 50 : open(arguments[0], over ? O_RDONLY : O_RDONLY | O_CLOEXEC);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (!strcmp(way, "child")) {
        /* Of a child: would the parent's lock be in the way? */
        lock.l_type = F_WRLCK;
        fcntl(fd, F_GETLK, &lock);
        puts(lock.l_type == F_UNLCK ? "lost" : "locked");
        return 0;
    }
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != 0)
        return 1;
    if (over) {
        dup2(fd, 50);
        execl(arguments[0], arguments[0], "after", NULL);
    }
    char *again[] = {arguments[0], "child", NULL};
    for (int times = 0; times < 2; times++) {
        pid_t child;
        int status;
        if (posix_spawn(&child, arguments[0], NULL, NULL, again, environ) != 0 || waitpid(child, &status, 0) < 0)
            return 2;
    }
    return 0;
}
