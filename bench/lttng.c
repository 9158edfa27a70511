/* LTTng-UST for comparison: it does not trace calls by itself, so this library calls a tracepoint after each
 * write, fwrite and fputc, as the floor writes a record. Built as a library:
 *   cc -O2 -shared -fPIC -I. -o lttng.so lttng.c -llttng-ust -ldl */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng-provider.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/types.h>
#include <x86intrin.h>

static ssize_t (*real_write)(int, const void *, size_t);
static size_t (*real_fwrite)(const void *, size_t, size_t, FILE *);
static int (*real_fputc)(int, FILE *);

__attribute__((constructor)) static void begin(void) {
    real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    real_fwrite = (size_t (*)(const void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fwrite");
    real_fputc = (int (*)(int, FILE *))dlsym(RTLD_NEXT, "fputc");
}

ssize_t write(int fd, const void *data, size_t length) {
    if (!real_write) begin();
    unsigned long start = __rdtsc();
    ssize_t returned = real_write(fd, data, length);
    lttng_ust_tracepoint(cawl_bench, call, 1, fd, start, length, returned);
    return returned;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *stream) {
    if (!real_fwrite) begin();
    unsigned long start = __rdtsc();
    size_t returned = real_fwrite(data, size, count, stream);
    lttng_ust_tracepoint(cawl_bench, call, 2, stream->_fileno, start, size * count, (long)returned);
    return returned;
}

int fputc(int byte, FILE *stream) {
    if (!real_fputc) begin();
    unsigned long start = __rdtsc();
    int returned = real_fputc(byte, stream);
    lttng_ust_tracepoint(cawl_bench, call, 3, stream->_fileno, start, 1, returned);
    return returned;
}
