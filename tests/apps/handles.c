/* Ways past a preloaded library that stay in the C library: functions looked up through a handle of it, a library bound
 * to it (RTLD_DEEPBIND), one in a namespace of its own (dlmopen). With -DLIBRARY, that library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int work(const char *name) {
    static char data[65536];
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    for (int at = 0; at < 16; at++)
        if (write(fd, data, sizeof data) != sizeof data)
            return 1;
    FILE *stream = fopen("stream", "w");
    for (int at = 0; at < 2000; at++)
        fprintf(stream, "line %d\n", at);
    return fclose(stream) || fsync(fd) || close(fd);
}

#ifndef LIBRARY
int main(int count, char **arguments) {
    const char *way = count > 2 ? arguments[1] : "";
    if (!strcmp(way, "handle")) {
        void *libc = dlopen("libc.so.6", RTLD_NOW);
#define GET(name) __typeof__(name) *name##_there = (__typeof__(name) *)dlsym(libc, #name)
        GET(open);
        GET(write);
        GET(fopen);
        GET(fprintf);
        GET(fclose);
        int fd = open_there("out", O_WRONLY | O_CREAT, 0644);
        FILE *stream = fopen_there("stream", "w");
        int done = write_there(fd, "twelve bytes", 12) == 12 && fprintf_there(stream, "%d\n", 12345) == 6;
        /* What passes calls on finds the next one, and what is no function of the C library is left alone. */
        int same = dlsym(libc, "strlen") != NULL && dlsym(RTLD_NEXT, "write") != NULL && !dlsym(libc, "nothing");
        printf("%d %d %s\n", done, same, dlsym(libc, "none") ? "" : dlerror());
        return fclose_there(stream);
    }
    void *library = !strcmp(way, "deep")    ? dlopen(arguments[2], RTLD_NOW | RTLD_DEEPBIND)
                    : !strcmp(way, "lazy")  ? dlopen(arguments[2], RTLD_LAZY | RTLD_DEEPBIND)
                    : !strcmp(way, "space") ? dlmopen(LM_ID_NEWLM, arguments[2], RTLD_NOW)
                                            : dlopen(arguments[2], RTLD_NOW);
    if (!library)
        return 9;
    int (*there)(const char *) = (int (*)(const char *))dlsym(library, "work");
    int failed = there("out");
    printf("%d\n", failed);
    return failed;
}
#endif
