/* Opens files by relative names, each below another working directory: NUMBER-FOLDER says where it should be. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void check(int right) {
    if (!right)
        abort();
}

static void make(const char *name) {
    int fd = open(name, O_WRONLY | O_CREAT, 0644);
    check(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
}

static void *elsewhere(void *argument) {
    /* This thread alone goes there, by a call that the tracer does not see. */
    check(unshare(CLONE_FS) == 0);
#if defined __x86_64__
    long returned;
    __asm__ volatile("syscall" : "=a"(returned) : "a"(SYS_chdir), "D"("two") : "rcx", "r11", "memory");
    check(returned == 0);
#else
    check(chdir("two") == 0);
#endif
    make("7-two");
    return argument;
}

int main(void) {
    check(mkdir("one", 0755) == 0 && mkdir("one/below", 0755) == 0 && mkdir("two", 0755) == 0);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    check(home >= 0);
    make("1-home");
    check(chdir("one") == 0);
    make("2-one");
    check(syscall(SYS_chdir, "below") == 0);
    make("3-below");
    check(fchdir(home) == 0);
    make("4-home");
    check(chdir("one") == 0);
    make("5-one");
    check(rename("../one", "../three") == 0);
    make("6-three");
    check(syscall(SYS_fchdir, home) == 0);
    pthread_t thread;
    check(pthread_create(&thread, NULL, elsewhere, NULL) == 0 && pthread_join(thread, NULL) == 0);
    make("8-home");
    return 0;
}
