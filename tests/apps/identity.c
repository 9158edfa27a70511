/* What becomes of files: numbers given out again, names that change, descriptors that come and go. One mode a run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) < 0) {                                                                                              \
            perror(#call);                                                                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char block[1 << 16];

static void fill(int fd, int times) {
    while (times--)
        if (write(fd, block, sizeof block) != sizeof block)
            abort();
}

static int create(const char *name, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | flags, 0600);
    if (fd < 0)
        abort();
    return fd;
}

/* Three files, of which the filesystem may give each the number of the one before. */
static void reuse(void) {
    const char *names[] = {"aaa", "bbb", "ccc"};
    for (int i = 0; i < 3; i++) {
        int fd = create(names[i], 0);
        fill(fd, 10);
        MUST(fsync(fd));
        MUST(close(fd));
        MUST(unlink(names[i]));
    }
}

/* A file made anew under its name, as a database's journal is. */
static void anew(void) {
    for (int i = 0; i < 3; i++) {
        int fd = create("journal", 0);
        fill(fd, 2);
        MUST(close(fd));
        MUST(unlink("journal"));
    }
}

static void renamed(void) {
    int fd = create("t.tmp", 0);
    fill(fd, 3);
    MUST(close(fd));
    MUST(rename("t.tmp", "t.final"));
}

/* The second file takes the first one's place, which goes. */
static void replaced(void) {
    int old = create("data", 0);
    fill(old, 2);
    int fresh = create("data.new", 0);
    fill(fresh, 5);
    MUST(renameat(AT_FDCWD, "data.new", AT_FDCWD, "./data"));
    fill(old, 1);
    MUST(close(old));
    MUST(close(fresh));
}

static void exchanged(void) {
    int one = create("one", 0), two = create("two", 0);
    fill(one, 1);
    fill(two, 2);
    MUST(renameat2(AT_FDCWD, "one", AT_FDCWD, "two", RENAME_EXCHANGE));
}

/* A file that only this descriptor leads to, written to. */
static int nameless(int flags) {
    int fd = create("gone", flags);
    fill(fd, 10);
    MUST(unlink("gone"));
    return fd;
}

static int tmpfile_here(void) {
    int fd = open(".", O_RDWR | O_TMPFILE, 0600);
    MUST(fd);
    fill(fd, 10);
    return fd;
}

static void linked(void) {
    int fd = tmpfile_here();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    MUST(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    MUST(close(fd));
}

/* The child closes last. */
static void shared(void) {
    int fd = nameless(0), ready[2];
    MUST(pipe(ready));
    pid_t child = fork();
    MUST(child);
    if (child == 0) {
        char byte;
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 0)
            abort();
        fill(fd, 1);
        MUST(close(fd));
        exit(0);
    }
    MUST(close(fd));
    MUST(close(ready[1]));
    MUST(waitpid(child, NULL, 0));
}

static void killed(void) {
    pid_t child = fork();
    MUST(child);
    if (child == 0) {
        nameless(0);
        raise(SIGKILL);
    }
    MUST(waitpid(child, NULL, 0));
}

static void covered(void) {
    int fd = nameless(0), null = open("/dev/null", O_RDONLY);
    MUST(dup2(null, fd));
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    const char *mode = argv[1];
    if (!strcmp(mode, "reuse"))
        reuse();
    else if (!strcmp(mode, "anew"))
        anew();
    else if (!strcmp(mode, "renamed"))
        renamed();
    else if (!strcmp(mode, "replaced"))
        replaced();
    else if (!strcmp(mode, "exchanged"))
        exchanged();
    else if (!strcmp(mode, "closed"))
        MUST(close(nameless(0)));
    else if (!strcmp(mode, "tmpfile"))
        MUST(close(tmpfile_here()));
    else if (!strcmp(mode, "linked"))
        linked();
    else if (!strcmp(mode, "shared"))
        shared();
    else if (!strcmp(mode, "killed"))
        killed();
    else if (!strcmp(mode, "covered"))
        covered();
    else if (!strcmp(mode, "range")) {
        int fd = nameless(0);
        MUST(close_range(fd, ~0U, 0));
    } else if (!strcmp(mode, "from"))
        closefrom(nameless(0));
    else if (!strcmp(mode, "exec")) {
        nameless(O_CLOEXEC);
        execl("/proc/self/exe", argv[0], "none", NULL);
        return 1;
    } else if (strcmp(mode, "none"))
        return 2;
    return 0;
}
