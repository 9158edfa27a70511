/* Writes a file, and says what it and its children find in LD_PRELOAD besides the tracer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    FILE *file = fopen("out", "a");
    if (!file)
        return 1;
    for (int line = 0; line < 1000; line++)
        fprintf(file, "%s %d\n", count > 1 ? arguments[1] : "", line);
    fclose(file);
    const char *preload = getenv("LD_PRELOAD");
    printf("%d\n", preload && strstr(preload, "san") != NULL);
    fflush(stdout);
    int status = system("env | grep -c '^LD_PRELOAD=.*san'; echo by a child >> child");
    if (count > 2) {
        /* For the sanitizers to find. */
        char *gone = malloc(10);
        gone[strlen(arguments[2]) * 10] = 1;
        puts(gone);
    }
    return status;
}
