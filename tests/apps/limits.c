/* Limits on addresses and memory, set after the start, in the way that the first argument names. The count is
 * the second: of calls before. */
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1l << 20)

static long count;

/* Through two descriptors in turn, so that each call takes most room. */
static void *calls(void *unused) {
    int to[2] = {open("/dev/null", O_WRONLY), open("/dev/null", O_WRONLY)};
    for (long i = 0; i < count; i++)
        if (write(to[i % 2], "x", 1) != 1) _exit(1);
    close(to[0]);
    close(to[1]);
    return unused;
}

static void threads(int number) {
    pthread_t ids[number];
    for (int i = 0; i < number; i++)
        if (pthread_create(&ids[i], NULL, calls, NULL)) _exit(1);
    for (int i = 0; i < number; i++) pthread_join(ids[i], NULL);
}

static long kib(const char *name) {
    char line[256];
    long found = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, name, strlen(name))) found = atol(line + strlen(name) + 1);
    fclose(status);
    return found;
}

static void limit(int resource, long most) {
    struct rlimit limits = {most, most};
    if (setrlimit(resource, &limits)) _exit(77);
}

static void descriptors(rlim_t soft, rlim_t hard) {
    struct rlimit limits = {soft, hard};
    if (setrlimit(RLIMIT_NOFILE, &limits)) _exit(77);
}

static void count_files(void) {
    int files = 0, last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) last = fd, files++;
    printf("%d files, the last is %d\n", files, last);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *way = argv[1];
    count = atol(argv[2]);
    if (!strcmp(way, "threads")) {
        threads(16);
        return 0;
    }
    if (!strcmp(way, "descriptors")) {
        /* LIMIT for both, SOFT:HARD, or -LIMIT after the start. */
        char *hard = strchr(argv[2], ':');
        int later = count < 0;
        /* Root, too, may not raise the limits then. */
        prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE);
        if (!later) {
            descriptors(count, hard ? atol(hard + 1) : count);
            execl("/proc/self/exe", argv[0], "files", "1", (char *)NULL);
        }
        descriptors(-count, -count);
        count_files();
        return 0;
    }
    if (!strcmp(way, "files")) {
        count_files();
        return 0;
    }
    calls(NULL);
    if (!strcmp(way, "sizes")) printf("%ld %ld %ld\n", kib("VmSize"), kib("VmRSS"), kib("VmLck"));
    if (!strcmp(way, "addresses")) {
        pthread_t thread;
        limit(RLIMIT_AS, 512 * MIB);
        /* All but 64 MiB, of which the stack of a thread and this program itself take some. */
        void *most = mmap(NULL, 430 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        calls(NULL);
        int made = pthread_create(&thread, NULL, calls, NULL);
        if (!made) pthread_join(thread, NULL);
        printf("%d %d %d\n", most != MAP_FAILED, made, malloc(MIB) != NULL);
    }
    if (!strcmp(way, "little")) {
        limit(RLIMIT_AS, 66 * MIB);
        execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
    }
    if (!strcmp(way, "less")) {
        /* From too little for the program itself to what has no room for a library more. */
        for (long most = 2 * MIB; most < 8 * MIB; most += MIB / 4) {
            int status;
            if (!fork()) {
                limit(RLIMIT_AS, most);
                execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
                _exit(1);
            }
            wait(&status);
            printf("%ld KiB: %d\n", most >> 10, status);
        }
    }
    if (!strcmp(way, "data")) {
        limit(RLIMIT_DATA, 66 * MIB);
        execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
    }
    if (!strcmp(way, "less data")) {
        for (long most = MIB / 4; most < 4 * MIB; most += MIB / 4) {
            int status;
            if (!fork()) {
                limit(RLIMIT_DATA, most);
                execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
                _exit(1);
            }
            wait(&status);
            printf("%ld KiB: %d\n", most >> 10, status);
        }
    }
    if (!strcmp(way, "vforks")) {
        /* No memory can be mapped before them either. */
        limit(RLIMIT_AS, 5 * MIB);
        for (int i = 0; i < 3; i++) {
            int status;
            if (!vfork()) {
                execl("/proc/self/exe", argv[0], "calls", argv[2], (char *)NULL);
                _exit(1);
            }
            wait(&status);
            printf("%d\n", status);
        }
    }
    if (!strcmp(way, "locks")) {
        /* What an ordinary user has by default; more where the tracer has taken more. */
        long most = count > 1000 ? 72 * MIB : 8 * MIB;
        limit(RLIMIT_MEMLOCK, most);
        /* For root there is no such limit. */
        if (!getuid() && setuid(65534)) return 77;
        printf("%d", mlockall(MCL_CURRENT));
        printf(" %d\n", mlockall(MCL_CURRENT | MCL_FUTURE));
        calls(NULL);
        void *rest = mmap(NULL, most / 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        printf("%d\n", rest != MAP_FAILED);
    }
    if (!strcmp(way, "fits")) {
        /* So many KiB are enough for this program alone. */
        limit(RLIMIT_MEMLOCK, count << 10);
        if (!getuid() && setuid(65534)) return 77;
        printf("%d", mlockall(MCL_CURRENT));
        printf(" %d", mlockall(MCL_CURRENT | MCL_FUTURE));
        printf(" %d\n", mlockall(MCL_CURRENT | 1 << 20));
        printf("%d\n", kib("VmLck") > 1000);
        calls(NULL);
        limit(RLIMIT_MEMLOCK, MIB);
        printf("%d\n", mlockall(MCL_CURRENT));
    }
    if (!strcmp(way, "grows")) {
        /* What the tracer takes later is not locked. */
        if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 77;
        long before = kib("VmLck");
        calls(NULL);
        return kib("VmLck") - before > 1024 ? 3 : 0;
    }
    if (!strcmp(way, "keys")) {
        pthread_key_t key;
        int keys = 0;
        while (!pthread_key_create(&key, NULL)) keys++;
        /* Threads whose end nobody can tell the tracer. */
        for (int i = 0; i < 300; i++) threads(1);
        printf("%d\n", keys);
    }
    return 0;
}
