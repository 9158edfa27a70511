/* Gives names and takes them away: what each call is about is checked by names_tell_what_they_are_about. */
#define _GNU_SOURCE
#include <dirent.h>
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
    struct stat found;
    check(stat("old", &found) == 0 && lstat("link", &found) == 0 && stat("none", &found) == -1);
    check(fstatat(AT_FDCWD, "..", &found, 0) == 0 && fstatat(0, "", &found, AT_EMPTY_PATH) == 0);
    /* Each part that the kernel gives is one, and its end. */
    for (int pass = 0; pass < 2; pass++) {
        DIR *entries = opendir(".");
        int count = 0;
        while (readdir(entries)) count++;
        check(count == 4 && closedir(entries) == 0);
    }
    /* Also where two are read in turn. */
    DIR *all[17];
    for (int i = 0; i < 17; i++) check((all[i] = opendir(".")) != NULL);
    while (readdir(all[0])) readdir(all[16]);
    check(readdir(all[16]) == NULL);
    for (int i = 0; i < 17; i++) check(closedir(all[i]) == 0);
    check(unlink("old") == 0 && unlink("link") == 0);
    check(chdir("..") == 0 && rename("folder", "other") == 0 && remove("other") == 0);
}
