/* Restricts itself by Landlock to the system's folders, and starts the shell that is the second argument, in the
 * way that is the first. With "probe", says by its status whether it can. */
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void restrict_self(int by_privilege) {
    const char *const folders[] = {"/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev", "."};
    __u64 all = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
    struct landlock_ruleset_attr attributes = {.handled_access_fs = all};
    int rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    if (rules < 0) _exit(77);
    for (size_t at = 0; at < sizeof folders / sizeof *folders; at++) {
        struct landlock_path_beneath_attr below = {.allowed_access = all, .parent_fd = open(folders[at], O_PATH)};
        if (below.parent_fd < 0) continue;
        if (syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0)) _exit(78);
        close(below.parent_fd);
    }
    if (!by_privilege && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(79);
    if (syscall(SYS_landlock_restrict_self, rules, 0)) _exit(77);
    close(rules);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    const char *way = arguments[1], *shell = arguments[2];
    restrict_self(!strcmp(way, "privileged"));
    if (!strcmp(way, "probe")) return 0;
    if (!strcmp(way, "system")) return system("echo here > file");
    if (!strcmp(way, "fork") && fork()) {
        int status;
        wait(&status);
        return status;
    }
    execl(shell, "sh", "-c", "echo here > file; /bin/cat file", (char *)NULL);
    return 1;
}
