// unbuffered FILE COUNT SIZE: writes COUNT records of SIZE bytes through a stream without a buffer.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    FILE *file = fopen(argv[1], "w");
    long count = atol(argv[2]), size = atol(argv[3]);
    char *record = calloc(1, size);
    if (!file || !record || setvbuf(file, NULL, _IONBF, 0))
        return 1;
    for (long at = 0; at < count; at++)
        if (fwrite(record, size, 1, file) != 1)
            return 1;
    return fclose(file) != 0;
}
