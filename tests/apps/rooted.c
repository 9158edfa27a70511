/* Changes its root directory, and starts a shell there in the way that the first argument names, after "filtered "
 * under a filter of system calls that allows all. The second is the root directory, the third the shell's command. */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments) {
    if (count < 4)
        return 2;
    const char *way = arguments[1], *command = arguments[3];
    char *words[] = {"sh", "-c", arguments[3], NULL};
    if (chroot(arguments[2]) || chdir("/"))
        return 2;
    if (!strncmp(way, "filtered ", 9)) {
        struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
        struct sock_fprog filter = {1, allow};
        way += 9;
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
            return 2;
    }
    if (!strcmp(way, "execve"))
        execve("/bin/sh", words, environ);
    if (!strcmp(way, "execvp"))
        execvp("sh", words);
    if (!strcmp(way, "execl"))
        execl("/bin/sh", "sh", "-c", command, NULL);
    if (!strcmp(way, "fexecve"))
        fexecve(open("/bin/sh", O_RDONLY | O_CLOEXEC), words, environ);
    if (!strcmp(way, "execveat"))
        execveat(open("/bin", O_RDONLY | O_CLOEXEC | O_DIRECTORY), "sh", words, environ, 0);
    if (!strcmp(way, "raw execve"))
        syscall(SYS_execve, "/bin/sh", words, environ);
    if (!strcmp(way, "raw execveat"))
        syscall(SYS_execveat, AT_FDCWD, "/bin/sh", words, environ, 0);
    if (!strcmp(way, "system"))
        return WEXITSTATUS(system(command));
    if (!strcmp(way, "popen")) {
        FILE *pipe = popen(command, "w");
        return pipe ? pclose(pipe) : 2;
    }
    pid_t pid = -1;
    if (!strcmp(way, "posix_spawn") && posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ))
        return 2;
    if (!strcmp(way, "vfork") && (pid = vfork()) == 0) {
        execve("/bin/sh", words, environ);
        _exit(2);
    }
    if (!strcmp(way, "fork") && (pid = fork()) == 0) {
        execve("/bin/sh", words, environ);
        _exit(2);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : 2;
}
