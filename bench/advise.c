// Programs with a planted fault, and with the fix.
//
// advise appends FILE EVERY: 2000 appends of a byte, an fsync after each EVERY
// advise stream FILE BUFFER: 512 B records, 256 MiB, through a stream with so large a buffer; 0: none
// advise rewrite FILE random|append: 4 KiB writes of 1 GiB in all, at random in 256 MiB, or to the end
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int appends(const char *path, int every) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (int at = 1; at <= 2000; at++) {
        if (write(fd, "x", 1) != 1) return 1;
        if (at % every == 0 && fsync(fd)) return 1;
    }
    return fsync(fd) || close(fd);
}

static int stream(const char *path, size_t buffer) {
    FILE *file = fopen(path, "w");
    char record[512] = {1};
    // glibc ignores the size where it has to find the memory.
    if (!file || setvbuf(file, malloc(buffer), buffer ? _IOFBF : _IONBF, buffer)) return 1;
    for (int at = 0; at < 256 << 11; at++) if (fwrite(record, sizeof record, 1, file) != 1) return 1;
    return fclose(file) != 0;
}

static int rewrite(const char *path, int append) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char block[4096];
    unsigned long place = 1;
    memset(block, 1, sizeof block);
    for (long at = 0; at < 1 << 18; at++) {
        place = place * 6364136223846793005ul + 1442695040888963407ul;
        long block_number = append ? at : (long)((place >> 33) % (1 << 16));
        if (pwrite(fd, block, sizeof block, block_number * 4096) != sizeof block) return 1;
    }
    return close(fd);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    if (!strcmp(argv[1], "appends")) return appends(argv[2], atoi(argv[3]));
    if (!strcmp(argv[1], "stream")) return stream(argv[2], strtoul(argv[3], NULL, 0));
    return rewrite(argv[2], !strcmp(argv[3], "append"));
}
