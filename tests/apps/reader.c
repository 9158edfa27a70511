/* Reads the file "in" in one way, and prints how many bytes the kernel gave for that, as it counts them.
 * Usage: reader WAY
 *        reader run CMD…     The same of a command, whatever file it reads.
 *        reader halved       The same of "big", which a child has made and dropped the second half of from the
 *                            cache. Prints in front, for each of 64 ranges, whether the kernel says by mincore
 *                            that more than half of it is cached.
 *        reader over         Opens files that a child has made: "over" twice, to write over it; others to
 *                            append, cut off, read, write past the cache. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

static char text[1 << 16];

static void check(int right, const char *what) {
    if (!right) {
        perror(what);
        exit(1);
    }
}

/* rchar of this process, and what asking added to it. */
static long counted(long *asking) {
    char said[512];
    int fd = open("/proc/self/io", O_RDONLY);
    ssize_t length = read(fd, said, sizeof said - 1);
    close(fd);
    check(length > 0, "io");
    said[length] = 0;
    *asking = length;
    return atol(said + strlen("rchar: "));
}

static FILE *in(const char *mode) {
    FILE *stream = fopen("in", mode);
    check(stream != NULL, "in");
    return stream;
}

static void lines(FILE *stream) {
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, stream) > 0) continue;
    free(line);
}

static void descriptors(void) {
    int fd = open("in", O_RDONLY), other;
    struct iovec parts[2] = {{text, 100}, {text + 100, 50}};
    check(read(fd, text, 1000) == 1000 && read(fd, text, 1000) == 1000, "read");
    check(readv(fd, parts, 2) == 150, "readv");
    check(pread(fd, text, 10, 7) == 10 && preadv(fd, parts, 1, 9) == 100, "pread");
    check(preadv2(fd, parts, 1, -1, 0) == 100, "preadv2");
    check(lseek(fd, 5000, SEEK_SET) == 5000 && read(fd, text, 200) == 200, "seek");
    check(lseek(fd, -50, SEEK_CUR) == 5150 && read(fd, text, 1) == 1, "back");
    check((other = dup(fd)) >= 0 && read(other, text, 300) == 300 && read(fd, text, 1) == 1, "dup");
    close(other);
    check(read(fd, text, 2) == 2 && read(fd, text, 3) == 3, "alone again");
    check(syscall(SYS_read, fd, text, 4) == 4 && syscall(SYS_pread64, fd, text, 5, 6L) == 5, "syscall");
    pid_t child = fork();
    if (child == 0) {
        check(read(fd, text, 20) == 20, "child");
        _exit(0);
    }
    waitpid(child, NULL, 0);
    check(read(fd, text, 30) == 30, "parent");
    check(read(fd, NULL, 40) < 0 && lseek(fd, 0, SEEK_END) > 0 && read(fd, text, 50) == 0, "end");
    close(fd);
}

static void words(FILE *stream, int wide) {
    int number;
    if (wide)
        while (fwscanf(stream, L"%d", &number) == 1 || fgetwc(stream) != WEOF) continue;
    else
        while (fscanf(stream, "%d", &number) == 1 || getc(stream) != EOF) continue;
}

/* Makes "big", as another process, and drops its second half. */
static void halve(void) {
    enum { SIZE = 1 << 20 };
    pid_t child = fork();
    if (child == 0) {
        int fd = open("big", O_RDWR | O_CREAT | O_EXCL, 0600);
        for (int at = 0; at < SIZE; at += sizeof text) check(write(fd, text, sizeof text) == sizeof text, "big");
        check(fsync(fd) == 0 && posix_fadvise(fd, SIZE / 2, SIZE / 2, POSIX_FADV_DONTNEED) == 0, "drop");
        _exit(0);
    }
    int status, fd = -1;
    check(waitpid(child, &status, 0) == child && status == 0 && (fd = open("big", O_RDONLY)) >= 0, "big");
    unsigned char pages[SIZE / 4096], *at = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE, fd, 0);
    check(at != MAP_FAILED && mincore(at, SIZE, pages) == 0 && munmap(at, SIZE) == 0, "mincore");
    for (int range = 0; range < 64; range++) {
        int found = 0;
        for (int page = 0; page < 4; page++) found += pages[range * 4 + page] & 1;
        putchar(found > 2 ? '1' : '0');
    }
    putchar(' ');
    for (int again = 0; again < 3; again++) {
        check(read(fd, text, 10) == 10, "read");
        close(fd);
        fd = open("big", O_RDONLY);
    }
    close(fd);
}

static void open_made(void) {
    static const struct {
        const char *name;
        int flags;
    } made[] = {{"over", O_WRONLY}, {"over", O_RDWR},        {"append", O_WRONLY | O_APPEND},
                {"cut", O_RDWR | O_TRUNC}, {"read", O_RDONLY}, {"direct", O_WRONLY | O_DIRECT}};
    int status;
    pid_t child = fork();
    if (child == 0) {
        for (int at = 1; at < 6; at++) {
            int fd = open(made[at].name, O_WRONLY | O_CREAT, 0600);
            check(write(fd, text, sizeof text) == sizeof text, "make");
        }
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0, "child");
    /* A filesystem without O_DIRECT refuses the last. */
    for (int at = 0; at < 6; at++) close(open(made[at].name, made[at].flags));
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "";
    long before, after, asking;
    FILE *stream = NULL;
    setlocale(LC_ALL, "");
    before = counted(&asking) + asking;
    if (!strcmp(way, "run")) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            check(dup2(open("/dev/null", O_WRONLY), 1) == 1, "output");
            execvp(argv[2], argv + 2);
            _exit(127);
        }
        /* grep tells by 1 that it found nothing. */
        check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) <= 1, argv[2]);
    } else if (!strcmp(way, "halved")) {
        halve();
    } else if (!strcmp(way, "over")) {
        open_made();
    } else
    if (!strcmp(way, "descriptors")) {
        descriptors();
    } else if (!strcmp(way, "sequence")) {
        int fd = open("in", O_RDONLY);
        while (read(fd, text, 100) > 0) continue;
        close(fd);
    } else if (!strcmp(way, "fread")) {
        stream = in("r");
        check(fread(text, 1, 10, stream) == 10 && fread(text, 5, 3, stream) == 3, "few");
        check(fread(text, 1, 10000, stream) == 10000, "many");
        while (fread(text, 7, 100, stream) > 0) continue;
    } else if (!strcmp(way, "unbuffered")) {
        stream = in("r");
        setvbuf(stream, NULL, _IONBF, 0);
        check(getc(stream) != EOF && fread(text, 1, 100, stream) == 100 && fgets(text, 50, stream), "unbuffered");
    } else if (!strcmp(way, "own-buffer")) {
        static char buffer[1000];
        stream = in("r");
        setvbuf(stream, buffer, _IOFBF, sizeof buffer);
        lines(stream);
    } else if (!strcmp(way, "lines")) {
        lines(stream = in("r"));
    } else if (!strcmp(way, "fgets")) {
        stream = in("r");
        while (fgets(text, 80, stream)) continue;
    } else if (!strcmp(way, "getc")) {
        stream = in("r");
        while (getc(stream) != EOF) continue;
    } else if (!strcmp(way, "inline")) {
        stream = in("r");
        while (getc_unlocked(stream) != EOF) continue;
    } else if (!strcmp(way, "scanf")) {
        words(stream = in("r"), 0);
    } else if (!strcmp(way, "wide")) {
        words(stream = in("r"), 1);
    } else if (!strcmp(way, "wide-lines")) {
        static wchar_t line[100];
        stream = in("r");
        while (fgetws(line, 100, stream)) continue;
    } else if (!strcmp(way, "pushed-back")) {
        stream = in("r");
        for (int byte, at = 0; (byte = getc(stream)) != EOF; at++)
            if (at % 1000 == 999) check(ungetc('#', stream) == '#' && getc(stream) == '#', "ungetc");
        check(ungetc('x', stream) == 'x' && getc(stream) == 'x' && getc(stream) == EOF, "at the end");
    } else if (!strcmp(way, "seeks")) {
        stream = in("r");
        for (long at = 100; at < 50000; at += 9001)
            check(fseek(stream, at, SEEK_SET) == 0 && getc(stream) != EOF && fseek(stream, 3, SEEK_CUR) == 0, "fseek");
        rewind(stream);
        check(getc(stream) != EOF && fseek(stream, -1, SEEK_END) == 0 && getc(stream) != EOF, "end");
    } else if (!strcmp(way, "reopened")) {
        stream = in("r");
        check(getc(stream) != EOF && (stream = freopen("in", "r", stream)) && fgets(text, 10, stream), "freopen");
        check((stream = freopen("in", "r+", stream)) && fread(text, 1, 20, stream) == 20, "to update");
    } else if (!strcmp(way, "update")) {
        stream = in("r+");
        check(fread(text, 1, 20, stream) == 20 && fseek(stream, 0, SEEK_CUR) == 0, "read");
        check(fwrite("0", 1, 1, stream) == 1 && fflush(stream) == 0 && fseek(stream, 0, SEEK_SET) == 0, "write");
        check(fread(text, 1, 6000, stream) == 6000, "read again");
    } else if (!strcmp(way, "given")) {
        int fd = open("in", O_RDONLY);
        check(read(fd, text, 100) == 100, "first");
        stream = fdopen(fd, "r");
        check(fread(text, 1, 100, stream) == 100 && read(fd, text, 10) == 10, "both");
    } else if (!strcmp(way, "shared")) {
        stream = in("r");
        check(getc(stream) != EOF, "first");
        pid_t child = fork();
        if (child == 0) {
            lines(stream);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        while (getc(stream) != EOF) continue;
    } else if (!strcmp(way, "made")) {
        int fd = open("made-open", O_RDWR | O_CREAT, 0600), again = open("made-open", O_RDWR | O_CREAT, 0600);
        check(write(fd, text, 10) == 10 && read(again, text, 5) == 5, "made");
        check((fd = open("made-excl", O_WRONLY | O_CREAT | O_EXCL, 0600)) >= 0, "excl");
        check((again = open("made-excl", O_RDONLY)) >= 0 && read(again, text, 1) == 0, "empty");
        check(creat("made-creat", 0600) >= 0, "creat");
        check((stream = fopen("made-fopen", "w")) && fputs("text", stream) >= 0 && fclose(stream) == 0, "fopen");
        check((stream = fopen("made-fopen", "a+")) && getc(stream) == 't' && fclose(stream) == 0, "again");
        check((stream = fopen("made-fopen", "r")) && getc(stream) == 't' && fclose(stream) == 0, "to read");
        check((stream = fopen("made-append", "a")) != NULL, "append");
    } else if (!strcmp(way, "turned")) {
        stream = fopen("turned", "w+");
        check(stream && fputs("0123456789", stream) >= 0 && getc(stream) == EOF, "turned");
    } else if (!strcmp(way, "elsewhere")) {
        int pipes[2];
        check(pipe(pipes) == 0 && write(pipes[1], text, 1000) == 1000, "pipe");
        check(read(pipes[0], text, 100) == 100, "of a pipe");
        FILE *of_pipe = fdopen(pipes[0], "r"), *memory = fmemopen(text, 100, "r");
        check(fread(text, 1, 900, of_pipe) == 900 && getc(memory) != EOF, "no files");
        fclose(of_pipe);
        fclose(memory);
    } else {
        return 2;
    }
    if (stream) fclose(stream);
    after = counted(&asking);
    printf("%ld\n", after - before);
    return 0;
}
