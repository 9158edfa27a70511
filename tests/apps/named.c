/* Gives names and takes them away: what each call is about is checked by names_tell_what_they_are_about. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int right) {
    if (!right)
        abort();
}

static void make(const char *name, int flags, int length) {
    int fd = open(name, O_WRONLY | O_CREAT | flags, 0644);
    check(fd >= 0 && ftruncate(fd, length) == 0 && close(fd) == 0);
}

int main(void) {
    check(mkdir("folder", 0755) == 0 && mkdir("folder", 0755) == -1 && chdir("folder") == 0);
    make("new", 0, 5000);
    make("old", 0, 3000);
    check(symlink("old", "link") == 0 && link("new", "second") == 0);
    check(rename("new", "first") == 0 && rename("first", "second") == 0 && unlink("first") == 0);
    check(rename("second", "old") == 0);
    make("old", O_TRUNC, 0);
    FILE *again = fopen("old", "w");
    check(again != NULL && fputs("text", again) >= 0 && fclose(again) == 0);
    check((again = fopen("old", "w")) != NULL && fclose(again) == 0);
    check(unlink("old") == 0 && unlink("link") == 0);
    check(chdir("..") == 0 && rename("folder", "other") == 0 && remove("other") == 0);
}
