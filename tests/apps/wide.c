/* Wide streams, ASCII only, and the calls that report errors; then it is killed if asked to. */
#include <err.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

int main(int count, char **arguments) {
    setlocale(LC_ALL, "");
    FILE *f = fopen("wide", "w");
    for (int i = 0; i < 3000; i++)
        fputwc(L'a' + i % 26, f);
    fwprintf(f, L"%d %ls\n", 42, L"wide");
    fputws(L"a wide string\n", f);
    fflush(f);
    for (int i = 0; i < 3000; i++)
        putwc(L'b', f);
    fclose(f);
    errno = ENOENT;
    perror("wide");
    perror(NULL);
    FILE *full = fopen("/dev/full", "w");
    for (int i = 0; i < 3000; i++)
        fputs("does not fit", full);
    fflush(full);
    fclose(full);
    FILE *memory = open_memstream(&(char *){NULL}, &(size_t){0});
    fputs("nowhere", memory);
    fclose(memory);
    char line[64];
    for (int i = 0; i < 1000; i++)
        if (write(1, line, snprintf(line, sizeof line, "line %d\n", i)) < 0)
            return 1;
    if (count > 1)
        raise(SIGKILL);
    return 0;
}
