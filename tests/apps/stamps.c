/* Reads the time stamps of "out" between some of its writes. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int main(void) {
    struct stat found;
    int fd = open("out", O_WRONLY | O_CREAT | O_EXCL, 0600), failed = fd < 0;
    for (int at = 0; at < 9; at++) {
        if (at % 3 == 2)
            failed |= fstat(fd, &found) || fstat(fd, &found);
        failed |= at % 2 ? write(fd, "text", 4) != 4 : pwrite(fd, "text", 4, 0) != 4;
    }
    return failed | close(fd);
}
