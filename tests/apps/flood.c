/* flood SOCKET CONNECTIONS FILE: opens connections that send nothing, then writes single bytes for ever, some
 * through the tracer. Says "flooding" when all of that has begun. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    for (int i = atoi(argv[2]); i > 0; i--) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
            return 2;
    }
    int fd = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (long n = 0;; n++) {
        if (pwrite(fd, "x", 1, n * 7919 % 65536) != 1)
            return 3;
        if (n == 10000) {
            puts("flooding");
            fflush(stdout);
        }
    }
}
