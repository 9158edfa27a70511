/* The C half of the tracer: what stable Rust cannot define.
 *
 * Rules: nothing here allocates, locks or looks at errno; every function turns its arguments into a list
 * and hands over to the Rust half, which calls the real function once. */
#include "variadic.h"

#include <alloca.h>
#include <stddef.h>
#include <stdio.h>
#include <wchar.h>

extern int cawl_vprintf(const char *, va_list);
extern int cawl_vfprintf(FILE *, const char *, va_list);
extern int cawl_vdprintf(int, const char *, va_list);
extern int cawl_vwprintf(const wchar_t *, va_list);
extern int cawl_vfwprintf(FILE *, const wchar_t *, va_list);
extern int cawl_vprintf_chk(int, const char *, va_list);
extern int cawl_vfprintf_chk(FILE *, int, const char *, va_list);
extern int cawl_vdprintf_chk(int, int, const char *, va_list);
extern int cawl_vwprintf_chk(int, const wchar_t *, va_list);
extern int cawl_vfwprintf_chk(FILE *, int, const wchar_t *, va_list);
extern void cawl_vwarn(const char *, va_list);
extern void cawl_vwarnx(const char *, va_list);
extern void cawl_verr(int, const char *, va_list);
extern void cawl_verrx(int, const char *, va_list);
extern int cawl_execv(const char *, char *const *);
extern int cawl_execvp(const char *, char *const *);
extern int cawl_execve(const char *, char *const *, char *const *);

PASS_ON(printf, format, (const char *format, ...), format)
PASS_ON(fprintf, format, (FILE *stream, const char *format, ...), stream, format)
PASS_ON(dprintf, format, (int fd, const char *format, ...), fd, format)
PASS_ON(wprintf, format, (const wchar_t *format, ...), format)
PASS_ON(fwprintf, format, (FILE *stream, const wchar_t *format, ...), stream, format)
PASS_ON(printf_chk, format, (int level, const char *format, ...), level, format)
PASS_ON(fprintf_chk, format, (FILE *stream, int level, const char *format, ...), stream, level, format)
PASS_ON(dprintf_chk, format, (int fd, int level, const char *format, ...), fd, level, format)
PASS_ON(wprintf_chk, format, (int level, const wchar_t *format, ...), level, format)
PASS_ON(fwprintf_chk, format, (FILE *stream, int level, const wchar_t *format, ...), stream, level, format)

#define PASS_ON_VOID(name, parameters, ...)    \
    void cawl_c_##name parameters {            \
        va_list list;                          \
        va_start(list, format);                \
        cawl_v##name(__VA_ARGS__, list);       \
        va_end(list);                          \
    }

PASS_ON_VOID(warn, (const char *format, ...), format)
PASS_ON_VOID(warnx, (const char *format, ...), format)
PASS_ON_VOID(err, (int status, const char *format, ...), status, format)
PASS_ON_VOID(errx, (int status, const char *format, ...), status, format)

/* execl and its relatives: the arguments up to the null become an array on the stack. As in the C library, the
 * first one may be null and ends nothing. */
#define COLLECT(argv, first)                                    \
    va_list list;                                               \
    size_t count = 1;                                           \
    va_start(list, first);                                      \
    while (va_arg(list, char *))                                \
        count++;                                                \
    va_end(list);                                               \
    char **argv = alloca((count + 1) * sizeof *argv);           \
    argv[0] = (char *)first;                                    \
    va_start(list, first);                                      \
    for (size_t at = 1; at <= count; at++)                      \
        argv[at] = va_arg(list, char *);

int cawl_c_execl(const char *path, const char *first, ...) {
    COLLECT(argv, first)
    va_end(list);
    return cawl_execv(path, argv);
}

int cawl_c_execlp(const char *file, const char *first, ...) {
    COLLECT(argv, first)
    va_end(list);
    return cawl_execvp(file, argv);
}

int cawl_c_execle(const char *path, const char *first, ...) {
    COLLECT(argv, first)
    char *const *environment = va_arg(list, char *const *);
    va_end(list);
    return cawl_execve(path, argv, environment);
}
