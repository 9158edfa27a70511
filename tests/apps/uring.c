/* uring: opens an io_uring and writes to a file by ordinary means. Exits with 77 where the kernel has none. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char params[120];
    memset(params, 0, sizeof params);
    long ring = syscall(SYS_io_uring_setup, 4, params);
    if (ring < 0) return 77;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fputs("by ordinary means\n", out);
    return fclose(out);
}
