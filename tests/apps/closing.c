/* Threads open, write and close streams while another flushes all of them and then ends the process: `closing
 * CHILDREN FLUSHES`, each child a process of its own. The memory of a closed stream is unmapped, so a later
 * access is a crash. (Sanitizers have an allocator of their own.) */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
enum { PAGE = 4096, HEAD = 16, ROOM = 64 << 20 };
static char room[ROOM];
static size_t used;

/* Streams, and blocks of their size, get pages of their own; other memory is never freed. */
static int is_stream(size_t size) { return size >= 400 && size <= 800; }

void *malloc(size_t size) {
    char *at;
    if (is_stream(size)) {
        at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return NULL;
    } else {
        size_t place = __atomic_fetch_add(&used, (size + 2 * HEAD - 1) / HEAD * HEAD, __ATOMIC_RELAXED);
        if (size > ROOM || place > ROOM - size - 2 * HEAD)
            return NULL;
        at = room + place;
    }
    *(size_t *)at = size;
    return at + HEAD;
}

void free(void *pointer) {
    if (pointer && is_stream(*(size_t *)((char *)pointer - HEAD)))
        munmap((char *)pointer - HEAD, PAGE);
}

/* Memory is never reused, so it is zero. */
void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *pointer, size_t size) {
    void *again = malloc(size);
    size_t before = pointer ? *(size_t *)((char *)pointer - HEAD) : 0;
    if (again && pointer)
        memcpy(again, pointer, before < size ? before : size);
    free(pointer);
    return again;
}
#endif

static int closed;

static void *open_and_close(void *argument) {
    for (;;) {
        FILE *stream = fopen("/dev/null", "w");
        if (!stream)
            abort();
        /* With a buffer that is not allocated for each. */
        char buffer[256];
        setvbuf(stream, buffer, _IOFBF, sizeof buffer);
        fputs("some text", stream);
        fclose(stream);
        __atomic_store_n(&closed, 1, __ATOMIC_RELAXED);
    }
    return argument;
}

int main(int count, char **arguments) {
    int children = count > 1 ? atoi(arguments[1]) : 0, flushes = count > 2 ? atoi(arguments[2]) : 0;
    for (int child = 0; child < children; child++) {
        pid_t pid = fork();
        if (pid == 0) {
            pthread_t thread;
            for (int threads = 0; threads < 3; threads++)
                if (pthread_create(&thread, NULL, open_and_close, NULL))
                    abort();
            for (int flush = 0; flush < flushes || !__atomic_load_n(&closed, __ATOMIC_RELAXED); flush++)
                fflush(NULL);
            exit(0);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status) {
            printf("child %d: %#x\n", child, status);
            return 1;
        }
    }
    return 0;
}
