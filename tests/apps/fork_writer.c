// fork_writer: parent and child write in turn through one open-file description; stdio goes its own way.
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    FILE *stream = fopen("stream", "w");
    int fd = open("shared", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    fprintf(stream, "before the fork\n");
    fflush(stream);
    for (int round = 0; round < 20; round++) {
        dprintf(fd, "parent %d\n", round);
        pid_t child = fork();
        if (child == 0) {
            fprintf(stream, "child %d\n", round);
            dprintf(fd, "child %d\n", round);
            if (round % 2) _exit(fclose(stream));
            return 0;
        }
        waitpid(child, NULL, 0);
    }
    fprintf(stream, "left to exit\n");
    return 0;
}
