/* Calls for bench/accept to count the instructions of: `calls write|read|fwrite|open COUNT`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char data[4096];
    long count = argc > 2 ? atol(argv[2]) : 0;
    const char *kind = argc > 1 ? argv[1] : "";
    if (strcmp(kind, "fwrite") == 0) {
        FILE *stream = fopen("calls.out", "w");
        for (long at = 0; at < count; at++) fwrite(data, 16, 1, stream);
        return fclose(stream);
    }
    int fd = open("calls.out", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0) return 1;
    if (strcmp(kind, "read") == 0 && ftruncate(fd, 4096 * count) != 0) return 1;
    for (long at = 0; at < count; at++) {
        if (strcmp(kind, "write") == 0 && write(fd, data, sizeof data) != sizeof data) return 1;
        if (strcmp(kind, "read") == 0 && read(fd, data, sizeof data) != sizeof data) return 1;
        if (strcmp(kind, "open") == 0 && close(open("calls.out", O_RDONLY)) != 0) return 1;
    }
    return close(fd);
}
