/* Says who it is, on its output and into a file. */
#include <stdio.h>

int main(int count, char **arguments) {
    FILE *file = fopen("said", "a");
    fprintf(file, "%s\n", count > 1 ? arguments[1] : "nothing");
    fclose(file);
    puts(count > 1 ? arguments[1] : "nothing");
    return 0;
}
