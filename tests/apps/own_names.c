/* A program whose own library has functions with names of the C library, and another meaning. With -DLIBRARY, that
 * library; with -DWRAPPER, one that is preloaded and passes calls on. */
#define _GNU_SOURCE
#include <stdarg.h>
#define perror perror_of_stdio
#define getw getw_of_stdio
#define rename rename_of_stdio
#define remove remove_of_stdio
#include <stdio.h>
#undef perror
#undef getw
#undef rename
#undef remove

struct pair {
    long a, b;
};

#if defined WRAPPER
#include <dlfcn.h>

#define WRAP(type, name, parameters, ...)                                    \
    type name parameters {                                                   \
        type(*real) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
        return real(__VA_ARGS__);                                            \
    }
WRAP(long, write, (int fd, const void *data, size_t length), fd, data, length)
WRAP(int, dup, (int fd), fd)
WRAP(int, truncate, (const char *path, long length), path, length)
void sync(void) { ((void (*)(void))dlsym(RTLD_NEXT, "sync"))(); }
/* Its own, all the same: what a library calls as it likes. */
int warn(int a, double b) { return a + (int)b; }
__attribute__((constructor)) static void begin(void) {
    if (warn(1, 2.5) != 3)
        __builtin_trap();
}

#elif defined LIBRARY
#define PRINTS(name)                         \
    int name(const char *format, ...) {      \
        va_list list;                        \
        va_start(list, format);              \
        int length = printf(#name ": ");     \
        length += vprintf(format, list);     \
        va_end(list);                        \
        return length;                       \
    }
PRINTS(error)
PRINTS(warn)
PRINTS(err)
PRINTS(verrx)
PRINTS(perror)
PRINTS(psignal)
#define ADDS(name) double name(double a, double b) { return a + b; }
ADDS(sync) ADDS(flock) ADDS(truncate) ADDS(getw) ADDS(dup) ADDS(system)
const char *tee(const char *name, double share) {
    static char text[99];
    sprintf(text, "%s %.2f", name, share);
    return text;
}
double splice(double *list, int at, double value) {
    list[at] = value;
    return list[0] + list[1];
}
#define PAIRS(name) struct pair name(long a, long b, long c) { return (struct pair){a + b, c}; }
PAIRS(lockf) PAIRS(rename) PAIRS(remove) PAIRS(getopt)
long daemon(long a, long b, long c, long d, long e, long f, long g, long h) {
    return a + b + c + d + e + f + 10 * g + 100 * h;
}
/* Before the tracer's own constructor. */
__attribute__((constructor)) static void begin(void) { printf("%g %d\n", sync(0.5, 0.25), error("early %g\n", 1.5)); }

#else
int error(const char *, ...), warn(const char *, ...), err(const char *, ...), verrx(const char *, ...),
    perror(const char *, ...), psignal(const char *, ...);
double sync(double, double), flock(double, double), truncate(double, double), getw(double, double), dup(double, double),
    system(double, double), splice(double *, int, double);
const char *tee(const char *, double);
struct pair lockf(long, long, long), rename(long, long, long), remove(long, long, long), getopt(long, long, long);
long daemon(long, long, long, long, long, long, long, long);

int main(void) {
    for (int times = 0; times < 2; times++) {
#define PRINT(name) printf("%d\n", name("disk %s is %d%% full, %g\n", "sda", 93, 0.93));
        PRINT(error) PRINT(warn) PRINT(err) PRINT(verrx) PRINT(perror) PRINT(psignal)
#define ADD(name) printf(#name " %g\n", name(1.5, 2.25));
        ADD(sync) ADD(flock) ADD(truncate) ADD(getw) ADD(dup) ADD(system)
        double list[2] = {1, 2};
        printf("%g %s\n", splice(list, 1, 5.5), tee("half", 0.5));
        struct pair pair;
#define PAIR(name) pair = name(1, 2, 3), printf(#name " %ld %ld\n", pair.a, pair.b);
        PAIR(lockf) PAIR(rename) PAIR(remove) PAIR(getopt)
        printf("%ld\n", daemon(1, 2, 3, 4, 5, 6, 7, 8));
    }
    FILE *file = fopen("out", "w");
    fputs("goes on\n", file);
    fclose(file);
    return 3;
}
#endif
