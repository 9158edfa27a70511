/* Every way of giving bytes to a stream, for each buffering; the argument picks how the program ends. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void list(FILE *f, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
}

static void fill(FILE *f) {
    char block[5000];
    memset(block, 'b', sizeof block);
    for (int i = 0; i < 3000; i++)
        putc('a' + i % 26, f);
    for (int i = 0; i < 9000; i++)
        putc_unlocked('A' + i % 26, f);
    fputc('\n', f);
    fputs("a string\n", f);
    fprintf(f, "%d %s %.3f\n", 42, "formatted", 3.5);
    list(f, "%s\n", "by a list");
    fwrite(block, 1, sizeof block, f);
    fwrite(block, 10, 3, f);
    putw(7, f);
    fflush(f);
    fputs("after the flush\n", f);
    fseek(f, 10, SEEK_SET);
    fputs("in the middle", f);
    fseek(f, 0, SEEK_END);
    fputs("tail", f);
}

int main(int count, char **arguments) {
    const char *end = count > 1 ? arguments[1] : "return";
    const char *names[] = {"full", "line", "none"};
    int modes[] = {_IOFBF, _IOLBF, _IONBF};
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(names[i], "w");
        setvbuf(f, NULL, modes[i], 4096);
        fill(f);
        fclose(f);
    }
    FILE *append = fopen("full", "a");
    fputs("appended\n", append);
    fclose(append);
    FILE *both = fopen("both", "w+");
    fputs("0123456789", both);
    rewind(both);
    if (fgetc(both) != '0')
        abort();
    fseek(both, 0, SEEK_CUR);
    fputs("x", both);
    fclose(both);
    dprintf(1, "straight %d\n", 1);
    puts("a line");
    putchar('!');
    printf(" and %s\n", "printf");
    fprintf(stderr, "an error %d\n", 5);
    fputs("left over", stdout);
    FILE *open = fopen("open", "w");
    fputs("never closed", open);
    if (!strcmp(end, "_exit"))
        _exit(3);
    if (!strcmp(end, "quick_exit"))
        quick_exit(4);
    if (!strcmp(end, "abort"))
        abort();
    if (!strcmp(end, "fflush"))
        fflush(NULL);
    return 0;
}
