/* Starts the program sub/prog in a way that makes it hard to look at before: the way is the argument. */
#include <fcntl.h>
#include <linux/capability.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *way;
static posix_spawn_file_actions_t actions;

static int is(const char *name) { return !strcmp(way, name); }

static int opened(const char *path, int flags) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) _exit(90);
    return fd;
}

/* Root, too, may not read what nobody may. */
static void no_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    memset(data, 0, sizeof data);
    if (syscall(SYS_capset, &header, data)) _exit(77);
}

static void start(int by_name, const char *program) {
    char *arguments[] = {"prog", way, NULL};
    pid_t child;
    int status = -1;
    int failed = (by_name ? posix_spawnp : posix_spawn)(&child, program, &actions, NULL, arguments, environ);
    if (!failed) waitpid(child, &status, 0);
    printf("%d %x\n", failed, status);
    exit(0);
}

static void spawn(void) {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, 1, 70);
    if (is("chdir")) {
        posix_spawn_file_actions_addchdir_np(&actions, "sub");
        start(0, "./prog");
    }
    if (is("chdirs")) {
        posix_spawn_file_actions_addchdir_np(&actions, "/");
        posix_spawn_file_actions_addfchdir_np(&actions, opened(".", O_DIRECTORY));
        posix_spawn_file_actions_addchdir_np(&actions, "sub/.");
        posix_spawn_file_actions_addchdir_np(&actions, "../sub");
        start(0, "prog");
    }
    if (is("fchdir")) {
        posix_spawn_file_actions_addfchdir_np(&actions, opened("sub", O_DIRECTORY));
        start(0, "./prog");
    }
    if (is("fchdir by action")) {
        posix_spawn_file_actions_addopen(&actions, 61, "sub", O_RDONLY | O_DIRECTORY, 0);
        posix_spawn_file_actions_addfchdir_np(&actions, 61);
        start(0, "./prog");
    }
    if (is("name")) {
        setenv("PATH", "/nonexistent:.:/bin", 1);
        posix_spawn_file_actions_addchdir_np(&actions, "sub");
        start(1, "prog");
    }
    if (is("other")) {
        /* There is one of this name where the parent is, too. */
        posix_spawn_file_actions_addchdir_np(&actions, "sub");
        start(0, "decoy/prog");
    }
    if (is("open")) {
        posix_spawn_file_actions_addopen(&actions, 60, "sub/prog", O_RDONLY, 0);
        start(0, "/dev/fd/60");
    }
    if (is("dup2")) {
        posix_spawn_file_actions_adddup2(&actions, opened("sub/prog", O_RDONLY), 60);
        start(0, "/proc/thread-self/fd/60");
    }
    if (is("untouched")) {
        char path[32];
        sprintf(path, "/proc/self/fd/%d", opened("sub/prog", O_RDONLY));
        start(0, path);
    }
}

int main(int count, char **arguments) {
    char *const again[] = {"prog", arguments[count - 1], NULL};
    way = arguments[count - 1];
    spawn();
    if (is("held")) {
        opened("sub/prog", O_RDONLY);
        execv("sub/prog", again);
    }
    if (is("path")) fexecve(opened("sub/prog", O_PATH), again, environ);
    if (is("execveat")) execveat(opened("sub/prog", O_PATH), "", again, environ, AT_EMPTY_PATH);
    if (is("path and held")) {
        opened("sub/prog", O_RDONLY);
        execveat(opened("sub/prog", O_PATH), "", again, environ, AT_EMPTY_PATH);
    }
    if (is("memfd")) {
        char path[32];
        int from = opened("sub/prog", O_RDONLY), to = memfd_create("prog", MFD_CLOEXEC);
        struct stat stat;
        if (fstat(from, &stat) || sendfile(to, from, NULL, stat.st_size) != stat.st_size) return 91;
        sprintf(path, "/proc/self/fd/%d", to);
        execv(path, again);
    }
    if (is("executable")) {
        if (chmod("sub/prog", 0111)) return 92;
        no_capabilities();
        execv("sub/prog", again);
    }
    return 1;
}
