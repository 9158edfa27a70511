/* Moves a file's position in every way there is. The test knows where each write must land. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void put(int fd, int count) {
    static char bytes[256];
    if (write(fd, bytes, count) != count)
        abort();
}

int main(void) {
    int a = open("a", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    put(a, 10);                             /* 0 */
    put(a, 5);                              /* 10 */
    if (pwrite(a, "xyz", 3, 100) != 3)      /* 100, and the position stays at 15 */
        abort();
    put(a, 1);                              /* 15 */
    lseek(a, 50, SEEK_SET);
    put(a, 2);                              /* 50 */
    int b = dup(a);
    put(b, 3);                              /* 52 */
    put(a, 4);                              /* 55 */
    lseek(b, 0, SEEK_END);                  /* 103 */
    put(a, 5);                              /* 103 */
    int c = open("a", O_WRONLY | O_APPEND);
    put(c, 6);                              /* 108 */
    put(a, 1);                              /* 108: overwrites */
    put(c, 1);                              /* 114 */
    struct iovec parts[2] = {{"ab", 2}, {"cde", 3}};
    if (writev(a, parts, 2) != 5)           /* 109 */
        abort();
    int d = open("d", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    put(d, 7);                              /* 0 */
    if (fork() == 0) {
        put(d, 8);                          /* 7, in the child */
        _exit(0);
    }
    wait(NULL);
    put(d, 9);                              /* 15: the child moved it */
    fcntl(d, F_SETFL, O_APPEND);
    lseek(d, 0, SEEK_SET);
    put(d, 1);                              /* 24 */
    return 0;
}
