/* What becomes of files: numbers given out again, names that change, descriptors that come and go. One mode a run. */
#define _GNU_SOURCE
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

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    const char *mode = argv[1];
    if (!strcmp(mode, "reuse"))
        reuse();
    else if (!strcmp(mode, "renamed"))
        renamed();
    else if (!strcmp(mode, "replaced"))
        replaced();
    else if (!strcmp(mode, "exchanged"))
        exchanged();
    else
        return 2;
    return 0;
}
