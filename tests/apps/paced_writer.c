// paced_writer FILE COUNT SIZE: appends COUNT blocks, says "half PID", and after a line of input as many
// again.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0666), count = atoi(argv[2]), size = atoi(argv[3]);
    char *block = memset(malloc(size), 'x', size), line[16];
    for (int i = 0; i < count; i++) if (write(fd, block, size) != size) return 1;
    dprintf(1, "half %d\n", getpid());
    if (read(0, line, sizeof line) < 0) return 2;
    for (int i = 0; i < count; i++) if (write(fd, block, size) != size) return 3;
    return 0;
}
