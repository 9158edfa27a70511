// Writes its own title over its environment, as many daemons do, then waits for a line and writes it to a
// file.
#include <stdio.h>
#include <string.h>

extern char **environ;

int main(int argc, char **argv) {
    char line[100];
    if (argc < 2)
        return 2;
    for (char **entry = environ; *entry; entry++)
        memset(*entry, 'x', strlen(*entry));
    puts("titled");
    fflush(stdout);
    fclose(stdout);
    FILE *file = fopen(argv[1], "w");
    if (!file || !fgets(line, sizeof line, stdin))
        return 1;
    fputs(line, file);
    return fclose(file);
}
