/* Small durable writes: each pattern is that of a database, a log or an archive.
 * Usage: sync PATTERN ROUNDS FILE; the file must not exist. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char block[1 << 20];
static const char *path;

static void put(int fd, size_t size, long offset) {
    ssize_t done = offset < 0 ? write(fd, block, size) : pwrite(fd, block, size, offset);
    if (done != (ssize_t)size) err(1, "write to %s", path);
}

static void durable(int fd, int all) {
    if (all ? fsync(fd) : fdatasync(fd)) err(1, "sync of %s", path);
}

static int make(const char *name, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | flags, 0600);
    if (fd < 0) err(1, "%s", name);
    return fd;
}

/* Writes `bytes` and makes them durable. */
static void fill(int fd, long bytes) {
    for (long at = 0; at < bytes; at += sizeof block) put(fd, sizeof block, at);
    durable(fd, 1);
}

int main(int count, char **words) {
    if (count != 4) errx(2, "usage: sync PATTERN ROUNDS FILE");
    const char *pattern = words[1];
    long rounds = atol(words[2]);
    path = words[3];
    int fd = make(path, O_EXCL);
    memset(block, 'x', sizeof block);
    srandom(7);
    int is_random = !strcmp(pattern, "random"), again = !strcmp(pattern, "log-again");
    if (is_random) fill(fd, 64L << 20);
    if (again) fill(fd, 16L << 20);
    if (!strncmp(pattern, "same", 4)) fill(fd, sizeof block);
    char name[4096];
    for (long i = 0; i < rounds; i++) {
        if (!strcmp(pattern, "append-fdatasync")) {
            put(fd, 4096, -1), durable(fd, 0);
        } else if (!strcmp(pattern, "append-fsync")) {
            put(fd, 4096, -1), durable(fd, 1);
        } else if (!strcmp(pattern, "append-1000")) {
            put(fd, 1000, -1), durable(fd, 0);
        } else if (!strcmp(pattern, "same-fdatasync")) {
            put(fd, 4096, 0), durable(fd, 0);
        } else if (!strcmp(pattern, "same-fsync")) {
            put(fd, 4096, 0), durable(fd, 1);
        } else if (is_random) {
            put(fd, 4096, random() % (16 << 10) * 4096L), durable(fd, 0);
        } else if (!strcmp(pattern, "log")) {
            put(fd, 24, i * 4120), put(fd, 4096, i * 4120 + 24), durable(fd, 0);
        } else if (again) {
            long at = i % ((16 << 20) / 4120) * 4120;
            put(fd, 24, at), put(fd, 4096, at + 24), durable(fd, 0);
        } else if (!strcmp(pattern, "rollback")) {
            /* Makes a journal durable, changes the file, removes the journal. */
            snprintf(name, sizeof name, "%s-journal", path);
            int journal = make(name, 0);
            put(journal, 512, 0), put(journal, 4096, 512), durable(journal, 0);
            put(journal, 12, 0), durable(journal, 0);
            put(fd, 4096, i % 64 * 4096), put(fd, 4096, i * 4096), durable(fd, 0);
            close(journal), unlink(name);
        } else if (!strcmp(pattern, "files")) {
            /* Like unpacking an archive. */
            snprintf(name, sizeof name, "%s-%ld", path, i);
            int file = make(name, O_EXCL);
            put(file, 1 + random() % 12000, -1);
            close(file);
        } else {
            errx(2, "no such pattern: %s", pattern);
        }
    }
    close(fd);
    return 0;
}
