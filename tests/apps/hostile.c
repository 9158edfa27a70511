/* Calls functions of the C library by name: each NAME once with good arguments, and then with each pointer in
 * turn being null, 8, memory that is not there, or memory that ends too early, and with each count 2^48: more than
 * a process has from any address on (on x86-64 with four levels of pages), whatever the layout that it was given.
 *
 * Each call is made in a child of its own, and a line is printed of what came of it: result and errno, or how
 * the child ended. The test compares the lines with and without a tracer. With --plain in front, the names of
 * functions that take no pointers are printed instead, as this program knows them.
 *
 * Compiled with -DLIBRARY it is a library with io_submit, for machines without libaio. */
#include <sys/syscall.h>
#include <unistd.h>

#ifdef LIBRARY
#include <errno.h>
int io_submit(long context, long count, void *list) {
    long returned = syscall(SYS_io_submit, context, count, list);
    return returned < 0 ? -errno : returned;
}
#else
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <gshadow.h>
#include <linux/aio_abi.h>
#include <linux/openat2.h>
#include <mntent.h>
#include <pwd.h>
#include <semaphore.h>
#include <shadow.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <wchar.h>

enum { PAGE = 4096, ROOM = 16 * PAGE };
static const char *self, *name;
/* Any string; it is also the name of a semaphore and of shared memory, which no other process has. */
static char string[32];
/* Memory of good arguments: fresh, before a hole, so that it ends at the same place in every run. */
static char *room, *hole, *next;

/* What a call came to, told by the child. */
static struct report {
    int returned;
    long result;
    int error;
} *report;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", name, what, strerror(errno));
    _exit(99);
}
#define check(right) ((right) ? (void)0 : fail(#right))

/* The letters of arguments. Pointers, which have hostile forms: */
#define POINTERS "pntbvwxFTRmMSQPWLjAqEeIalkBKVhyYHuXNZO"
/* Counts, which have a hostile form; anything else is only there to make the call a good one. */
#define COUNTS "zc"

/* result: i int, l long, s only its sign, p a pointer, v none. A '#' among the arguments is the first of
 * `numbers`, a '$' the second. */
static const struct row {
    const char *names;
    char result;
    const char *arguments;
    long numbers[2];
} ROWS[] = {
    {"open open64 __open __open64", 'i', "n#$", {O_RDWR | O_CREAT, 0644}},
    {"openat openat64", 'i', "Dn#$", {O_RDWR | O_CREAT, 0644}},
    {"__open_2 __open64_2", 'i', "p1"},
    {"__openat_2 __openat64_2", 'i', "Dp1"},
    {"creat creat64", 'i', "n#", {0644}},
    {"open_by_handle_at", 'i', "rH2"},
    {"mkstemp mkstemp64", 'i', "t"},
    {"mkostemp mkostemp64 mkstemps mkstemps64", 'i', "t0"},
    {"mkostemps mkostemps64", 'i', "t00"},
    {"memfd_create", 'i', "S0"},
    {"shm_open", 'i', "S#$", {O_RDWR | O_CREAT, 0600}},
    {"sem_open", 'p', "S0"},
    {"sem_open", 'p', "S##1", {O_CREAT}},
    {"closedir", 'i', "O"},
    {"fcntl fcntl64 __fcntl", 'i', "d#X", {F_GETLK}},
    {"fcntl fcntl64 __fcntl", 'i', "d#X", {F_SETLK}},
    {"fcntl fcntl64 __fcntl", 'i', "d#X", {F_OFD_SETLK}},
    {"fstat fstat64", 'i', "dX"},
    {"__fxstat __fxstat64", 'i', "1dX"},
    {"stat stat64 lstat lstat64", 'i', "pX"},
    {"fstatat fstatat64", 'i', "DpX0"},
    {"fstatat fstatat64", 'i', "dpX#", {AT_EMPTY_PATH}},
    {"statx", 'i', "Dp01X"},
    {"__xstat __xstat64 __lxstat __lxstat64", 'i', "1pX"},
    {"__fxstatat __fxstatat64", 'i', "1DpX0"},
    {"readdir readdir64", 'p', "O"},
    {"ioctl", 'i', "d#X", {0x4020940d /* FICLONERANGE */}},
    {"ioctl", 'i', "d#I", {0x541b /* FIONREAD */}},
    {"write __write", 'l', "dbz"},
    {"pwrite pwrite64 __pwrite64", 'l', "dbz7"},
    {"writev", 'l', "dvc"},
    {"writev", 'l', "dwc"},
    {"writev", 'l', "iwc"},
    {"pwritev pwritev64", 'l', "dvc7"},
    {"pwritev pwritev64", 'l', "dwc7"},
    {"pwritev2 pwritev64v2", 'l', "dvc70"},
    {"pwritev2 pwritev64v2", 'l', "dwc-0"},
    {"copy_file_range", 'l', "rxdxz0"},
    {"sendfile sendfile64", 'l', "drxz"},
    {"splice", 'l', "rxi0z0"},
    {"splice", 'l', "o0dxz0"},
    {"vmsplice", 'l', "ivc0"},
    {"vmsplice", 'l', "iwc0"},
    {"tee", 'l', "oiz0"},
    {"truncate truncate64", 'i', "p7"},
    {"unlink remove", 'i', "p"},
    {"unlinkat", 'i', "Dp0"},
    {"rmdir", 'i', "p"},
    {"mkdir", 'i', "n7"},
    {"mkdirat", 'i', "Dn7"},
    {"symlink", 'i', "pn"},
    {"symlinkat", 'i', "pDn"},
    {"link", 'i', "pn"},
    {"linkat", 'i', "DpDn0"},
    {"chdir", 'i', "p"},
    {"rename", 'i', "pn"},
    {"rename", 'i', "pp"},
    {"renameat", 'i', "DpDn"},
    {"renameat2", 'i', "DpDn0"},
    {"mmap mmap64", 'p', "0z31d0"},
    {"munmap", 'i', "Xz"},
    {"mremap", 'p', "Xzz1"},
    {"mprotect", 'i', "Xz3"},
    {"pkey_mprotect", 'i', "Xz3-"},
    {"mlockall", 'i', "9"},
    {"msync", 'i', "Xz4"},
    {"aio_write aio_write64", 'i', "a"},
    {"aio_fsync aio_fsync64", 'i', "#a", {O_SYNC}},
    {"aio_fsync aio_fsync64", 'i', "9a"},
    {"lio_listio lio_listio64", 'i', "0lc0"},
    {"lio_listio lio_listio64", 'i', "0kc0"},
    {"lio_listio lio_listio64", 'i', "9kc0"},
    {"io_submit", 'i', "CcB"},
    {"io_submit", 'i', "CcK"},
    {"io_submit", 'i', "CcV"},
    {"io_submit", 'i', "C-B"},
    {"io_submit", 'i', "0cB"},
    {"syscall", 'l', "#CcB", {SYS_io_submit}},
    {"syscall", 'l', "#CcK", {SYS_io_submit}},
    {"syscall", 'l', "#CcV", {SYS_io_submit}},
    {"syscall", 'l', "#dbz", {SYS_write}},
    {"syscall", 'l', "#dbz7", {SYS_pwrite64}},
    {"syscall", 'l', "#rbz", {SYS_read}},
    {"syscall", 'l', "#rbz7", {SYS_pread64}},
    {"syscall", 'l', "#rvc", {SYS_readv}},
    {"syscall", 'l', "#rvc7", {SYS_preadv}},
    {"syscall", 'l', "#rwc-00", {SYS_preadv2}},
    {"syscall", 'l', "#dvc", {SYS_writev}},
    {"syscall", 'l', "#dwc", {SYS_writev}},
    {"syscall", 'l', "#dvc7", {SYS_pwritev}},
    {"syscall", 'l', "#drxz", {SYS_sendfile}},
    {"syscall", 'l', "#rxi0z", {SYS_splice}},
    {"syscall", 'l', "#rxdxz", {SYS_copy_file_range}},
    {"syscall", 'l', "#ivc0", {SYS_vmsplice}},
    {"syscall", 'l', "#p7", {SYS_truncate}},
    {"syscall", 'l', "#d$X", {SYS_fcntl, F_SETLK}},
    {"syscall", 'l', "#Dp0", {SYS_unlinkat}},
    {"syscall", 'l', "#Dn7", {SYS_mkdirat}},
    {"syscall", 'l', "#pDn", {SYS_symlinkat}},
    {"syscall", 'l', "#DpDn0", {SYS_linkat}},
    {"syscall", 'l', "#Dp1", {SYS_openat}},
    {"syscall", 'l', "#DpX$", {SYS_openat2, sizeof(struct open_how)}},
    {"syscall", 'l', "#S0", {SYS_memfd_create}},
    {"syscall", 'l', "#8X", {SYS_io_uring_setup}},
    {"syscall", 'l', "#$2X", {SYS_prctl, 22 /* PR_SET_SECCOMP */}},
    {"syscall", 'l', "#10X", {SYS_seccomp}},
#ifdef __x86_64__
    {"syscall", 'l', "#p", {SYS_unlink}},
    {"syscall", 'l', "#p1", {SYS_open}},
    {"syscall", 'l', "#p0", {SYS_creat}},
#endif
    {"read __read", 'l', "rbz"},
    {"__read_chk", 'l', "rbz9"},
    {"pread pread64 __pread64", 'l', "rbz7"},
    {"__pread_chk __pread64_chk", 'l', "rbz79"},
    {"readv", 'l', "rvc"},
    {"readv", 'l', "rwc"},
    {"preadv preadv64", 'l', "rvc7"},
    {"preadv2 preadv64v2", 'l', "rvc70"},
    {"preadv2 preadv64v2", 'l', "rwc-0"},
    {"fread _IO_fread fread_unlocked", 'l', "bz1R"},
    {"fread _IO_fread fread_unlocked", 'l', "b00R"},
    {"__fread_chk __fread_unlocked_chk", 'l', "b9z1R"},
    {"__fread_chk __fread_unlocked_chk", 'l', "b90cR"},
    {"fgetc getc _IO_getc fgetc_unlocked getc_unlocked getw __uflow __underflow", 'i', "R"},
    {"fgets _IO_fgets fgets_unlocked", 'p', "bzR"},
    {"fgets _IO_fgets fgets_unlocked", 'p', "b1R"},
    {"__fgets_chk __fgets_unlocked_chk", 'p', "b9zR"},
    {"getline", 'l', "XIR"},
    {"getdelim __getdelim", 'l', "XI1R"},
    {"scanf __isoc99_scanf", 'i', "P"},
    {"vscanf __isoc99_vscanf", 'i', "PL"},
    {"fscanf __isoc99_fscanf", 'i', "RP"},
    {"vfscanf __vfscanf __isoc99_vfscanf", 'i', "RPL"},
    {"wscanf __isoc99_wscanf", 'i', "W"},
    {"vwscanf __isoc99_vwscanf", 'i', "WL"},
    {"fwscanf __isoc99_fwscanf", 'i', "RW"},
    {"vfwscanf __isoc99_vfwscanf", 'i', "RWL"},
    {"fgetwc getwc fgetwc_unlocked getwc_unlocked __wuflow __wunderflow", 'i', "R"},
    {"fgetws fgetws_unlocked", 'p', "bzR"},
    {"__fgetws_chk __fgetws_unlocked_chk", 'p', "b9zR"},
    {"fopen fopen64 _IO_fopen", 'p', "nm"},
    {"fopen fopen64 _IO_fopen", 'p', "pM"},
    {"fdopen _IO_fdopen", 'p', "dm"},
    {"freopen freopen64", 'p', "nmF"},
    {"fclose _IO_fclose pclose", 'i', "F"},
    {"endmntent", 'i', "F"},
    {"popen _IO_popen", 'p', "SM"},
    {"fflush _IO_fflush fflush_unlocked", 'i', "F"},
    {"fseek fseeko fseeko64", 'i', "F70"},
    {"fseek fseeko fseeko64", 'i', "F79"},
    {"rewind setlinebuf", 'v', "F"},
    {"fsetpos fsetpos64 _IO_fsetpos _IO_fsetpos64", 'i', "FX"},
    {"setvbuf _IO_setvbuf", 'i', "Fb0z"},
    {"setvbuf _IO_setvbuf", 'i', "Fb9z"},
    {"setbuffer _IO_setbuffer", 'v', "Fbz"},
    {"setbuf", 'v', "Fb"},
    {"fwrite _IO_fwrite fwrite_unlocked", 'l', "bz1F"},
    {"fwrite _IO_fwrite fwrite_unlocked", 'l', "b0zF"},
    {"fputs _IO_fputs fputs_unlocked", 'i', "SF"},
    {"fputc fputc_unlocked putc _IO_putc putc_unlocked putw", 'i', "7F"},
    {"puts _IO_puts", 'i', "S"},
    {"__overflow", 'i', "F7"},
    {"printf _IO_printf", 'i', "P"},
    {"fprintf _IO_fprintf", 'i', "FP"},
    {"dprintf", 'i', "dP"},
    {"vprintf", 'i', "PL"},
    {"vfprintf _IO_vfprintf", 'i', "FPL"},
    {"vdprintf", 'i', "dPL"},
    {"__printf_chk", 'i', "1P"},
    {"__fprintf_chk", 'i', "F1P"},
    {"__dprintf_chk", 'i', "d1P"},
    {"__vprintf_chk", 'i', "1PL"},
    {"__vfprintf_chk", 'i', "F1PL"},
    {"__vdprintf_chk", 'i', "d1PL"},
    {"fputwc fputwc_unlocked putwc putwc_unlocked", 'i', "7T"},
    {"fputws fputws_unlocked", 'i', "QT"},
    {"__woverflow", 'i', "T7"},
    {"wprintf", 'i', "W"},
    {"fwprintf", 'i', "TW"},
    {"vwprintf", 'i', "WL"},
    {"vfwprintf", 'i', "TWL"},
    {"__wprintf_chk", 'i', "1W"},
    {"__fwprintf_chk", 'i', "T1W"},
    {"__vwprintf_chk", 'i', "1WL"},
    {"__vfwprintf_chk", 'i', "T1WL"},
    {"perror herror", 'v', "S"},
    {"error", 'v', "02P"},
    {"error_at_line", 'v', "02S3P"},
    {"warn warnx", 'v', "P"},
    {"vwarn vwarnx", 'v', "PL"},
    {"err errx", 'v', "7P"},
    {"verr verrx", 'v', "7PL"},
    {"psignal", 'v', "9S"},
    {"psiginfo", 'v', "NS"},
    {"malloc_info", 'i', "0F"},
    {"malloc_info", 'i', "1F"},
    {"putpwent putspent putgrent putsgent", 'i', "uF"},
    {"putpwent", 'i', "0F"},
    {"addmntent", 'i', "Fu"},
    {"backtrace_symbols_fd", 'v', "Zcd"},
    {"getopt __posix_getopt", 'i', "cAS"},
    {"getopt __posix_getopt", 'i', "cqS"},
    {"getopt_long getopt_long_only", 'i', "cASXI"},
    {"forkpty", 's', "I000"},
    {"posix_spawn posix_spawnp", 'i', "Ij00AE"},
    {"posix_spawn posix_spawnp", 'i', "0j00qe"},
    {"posix_spawn posix_spawnp", 'i', "0jXXA0"},
    {"posix_spawnp", 'i', "0S00A0"},
    {"execve execvpe", 'i', "jAE"},
    {"execve execvpe", 'i', "jqe"},
    {"execvpe", 'i', "SAE"},
    {"execv execvp", 'i', "jA"},
    {"execv execvp", 'i', "jq"},
    {"execl execlp", 'i', "jSS0"},
    {"execle", 'i', "jSS0E"},
    {"execle", 'i', "jSS0e"},
    {"fexecve", 'i', "fAE"},
    {"fexecve", 'i', "fqe"},
    {"execveat", 'i', "DjAE0"},
    {"execveat", 'i', "fjqe#", {AT_EMPTY_PATH}},
    {"system", 'i', "S"},
    {"sendmsg", 'l', "sh0"},
    {"sendmsg", 'l', "sy0"},
    {"sendmsg", 'l', "sY0"},
    {"prctl", 'i', "#S", {15 /* PR_SET_NAME */}},
    {"prctl", 'i', "#2X", {22 /* PR_SET_SECCOMP */}},
    {"dlopen", 'p', "S1"},
    {"dlmopen", 'p', "0S1"},
    {"dlsym", 'p', "0S"},
    {"__assert_fail", 'v', "SS3S"},
    {"__assert_perror_fail", 'v', "2S3S"},
};

/* No pointers. */
static const char *PLAIN =
    "fchdir close __close close_range closefrom dup dup2 __dup2 dup3 lseek lseek64 __lseek llseek eventfd_write ftruncate "
    "ftruncate64 fallocate fallocate64 posix_fallocate posix_fallocate64 fsync fdatasync sync syncfs "
    "sync_file_range posix_fadvise posix_fadvise64 readahead getchar getchar_unlocked getwchar getwchar_unlocked flock lockf lockf64 tmpfile tmpfile64 fcloseall putchar putchar_unlocked putwchar putwchar_unlocked malloc_stats "
    "fork __fork _Fork login_tty daemon _exit _Exit abort __stack_chk_fail";

static int is(const char *names) {
    size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return 1;
    return 0;
}

static void *put(const void *from, size_t size) {
    void *at = next;
    next += (size + 63) / 64 * 64;
    check(next <= hole);
    return memcpy(at, from, size);
}
#define text(string) put(string, sizeof string)

static int file(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    check(fd >= 0);
    return fd;
}

/* Hostile forms of a pointer. */
static const char *const FORMS[] = {"good", "NULL", "8", "hole", "edge"};
enum { GOOD, NULLED, EIGHT, HOLE, EDGE, FORM_COUNT };

static void *hostile(int form) {
    return form == NULLED ? NULL : form == EIGHT ? (void *)8 : form == HOLE ? hole : hole - 8;
}

static long entry(void) {
    if (is("putspent"))
        return (long)put(&(struct spwd){"name", "x", 1, 2, 3, 4, 5, 6, 7}, sizeof(struct spwd));
    char *members[] = {"one", NULL};
    char **list = put(members, sizeof members);
    if (is("putgrent"))
        return (long)put(&(struct group){"name", "x", 1, list}, sizeof(struct group));
    if (is("putsgent"))
        return (long)put(&(struct sgrp){"name", "x", list, list}, sizeof(struct sgrp));
    if (is("addmntent"))
        return (long)put(&(struct mntent){"dev", "/dir", "type", "opts", 0, 0}, sizeof(struct mntent));
    return (long)put(&(struct passwd){"name", "x", 1, 2, "gecos", "/", "/bin/sh"}, sizeof(struct passwd));
}

static struct iocb kernel_block(int opcode, void *buffer, long length, long offset) {
    return (struct iocb){.aio_lio_opcode = opcode, .aio_fildes = file("blocks"), .aio_buf = (long)buffer,
                         .aio_nbytes = length, .aio_offset = offset};
}

/* An argument. `form` is that of the pointer, or of the one inside it where the letter stands for such. */
static long argument(char letter, const struct row *row, int form) {
    static char ones[64] = "text of the program, all of it readable and writable";
    const int inside = strchr("wqekKVyY", letter) != NULL;
    if (form != GOOD && !inside)
        return strchr(COUNTS, letter) ? 1L << 48 : (long)hostile(form);
    char *buffer = text(ones);
    struct iovec parts[2] = {{buffer, 5}, {buffer, 6}};
    struct aiocb block = {.aio_fildes = -1, .aio_buf = buffer, .aio_nbytes = 9, .aio_lio_opcode = LIO_WRITE};
    void *list[3] = {NULL};
    int ends[2];
    void *bad = form == GOOD ? NULL : hostile(form);
    switch (letter) {
    case '0' ... '9': return letter - '0';
    case '-': return -1;
    case '#': return row->numbers[0];
    case '$': return row->numbers[1];
    case 'z': return 5;
    case 'c': return 2;
    case 'D': return AT_FDCWD;
    case 'd': return file("out");
    case 'r': return open("source", O_RDONLY);
    case 'f': return open(self, O_RDONLY | O_CLOEXEC);
    case 'i': check(pipe(ends) == 0); return ends[1];
    case 'o': check(pipe(ends) == 0 && write(ends[1], "12345678", 8) == 8); return ends[0];
    case 's': check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); return ends[0];
    case 'C': {
        aio_context_t context = 0;
        check(syscall(SYS_io_setup, 8, &context) == 0);
        return context;
    }
    case 'p': close(file("existing")); return (long)text("existing");
    case 'n': return (long)text("new");
    case 't': return (long)text("template-XXXXXX");
    case 'b': return (long)buffer;
    case 'w': parts[1].iov_base = form == GOOD ? buffer : bad; /* fall through */
    case 'v': return (long)put(parts, sizeof parts);
    case 'x': return (long)put(&(off_t){3}, sizeof(off_t));
    case 'F': {
        FILE *stream = fopen("stream", "w+");
        check(stream && fputs("pending", stream) >= 0);
        return (long)stream;
    }
    case 'T': {
        FILE *stream = fopen("stream", "w+");
        check(stream && fputws(L"pending", stream) >= 0);
        return (long)stream;
    }
    case 'R': return (long)fopen("source", "r");
    case 'm': return (long)text("w");
    case 'M': return (long)text("r");
    case 'S': return (long)put(string, strlen(string) + 1);
    case 'Q': return (long)put(L"wide", sizeof L"wide");
    case 'P': return (long)text("text\n");
    case 'W': return (long)put(L"wide\n", sizeof L"wide\n");
    case 'L': return (long)put(ones, sizeof ones);
    case 'j': return (long)put(self, strlen(self) + 1);
    case 'A': case 'E':
        list[0] = letter == 'E' ? text("SOME=thing") : text("first"), list[1] = letter == 'E' ? text("ANOTHER=") : text("--ok");
        return (long)put(list, sizeof list);
    case 'q': case 'e':
        list[0] = text("PATH=/bin"), list[1] = form == GOOD ? text("--ok") : bad;
        return (long)put(list, sizeof list);
    case 'I': case 'X': return (long)put((char[256]){0}, 256);
    case 'a': block.aio_fildes = file("out"); return (long)put(&block, sizeof block);
    case 'l': case 'k':
        block.aio_fildes = file("out");
        list[0] = put(&block, sizeof block), list[1] = letter == 'k' && form != GOOD ? bad : list[0];
        return (long)put(list, sizeof list);
    case 'B': case 'K': case 'V': {
        struct iocb one = kernel_block(IOCB_CMD_PWRITE, buffer, 9, 0), two = kernel_block(IOCB_CMD_PWRITEV, put(parts, sizeof parts), 2, 20);
        if (letter == 'V' && form != GOOD)
            two.aio_buf = (long)bad;
        list[0] = put(&one, sizeof one), list[1] = letter == 'K' && form != GOOD ? bad : put(&two, sizeof two);
        return (long)put(list, sizeof list);
    }
    case 'h': case 'y': case 'Y': {
        struct msghdr message = {.msg_iov = put(parts, sizeof parts), .msg_iovlen = 2};
        if (letter == 'y' && form != GOOD)
            message.msg_iov = bad;
        if (letter == 'Y')
            message.msg_controllen = 24, message.msg_control = form == GOOD ? NULL : bad;
        return (long)put(&message, sizeof message);
    }
    case 'H': {
        struct { struct file_handle head; char rest[MAX_HANDLE_SZ]; } handle = {.head.handle_bytes = MAX_HANDLE_SZ};
        int mount;
        name_to_handle_at(AT_FDCWD, "source", &handle.head, &mount, 0);
        return (long)put(&handle, sizeof handle);
    }
    case 'u': return entry();
    case 'N': return (long)put(&(siginfo_t){.si_signo = SIGINT}, sizeof(siginfo_t));
    case 'Z': return (long)put(list, sizeof list);
    case 'O': return (long)opendir(".");
    }
    fail("a letter without a meaning");
    return 0;
}

/* In the child: the call with its `which`th argument in this form. */
static void call(long (*function)(long, ...), const struct row *row, int which, int form) {
    long values[8] = {0};
    for (int at = 0; row->arguments[at]; at++)
        values[at] = argument(row->arguments[at], row, at == which ? form : GOOD);
    int out = open("/dev/null", O_WRONLY);
    check(out >= 0 && dup2(out, 1) == 1 && dup2(out, 2) == 2 && close(out) == 0);
    pid_t us = getpid();
    /* The call gets a stream without an orientation, independent of this program's output. */
    check(freopen(NULL, "w", stdout) == stdout);
    alarm(20);
    errno = 0;
    long result = function(values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]);
    int error = errno;
    if (getpid() == us) {
        report->error = error;
        report->result = row->result == 'i' ? (int)result
                         : row->result == 'l' ? result
                         : row->result == 's' ? (int)result > 0 ? 1 : (int)result
                         : row->result == 'p' ? (result == -1 ? -1 : result != 0)
                                              : 0;
        report->returned = 1;
    }
    _exit(0);
}

static void one(long (*function)(long, ...), const struct row *row, int which, int form) {
    memset(report, 0, sizeof *report);
    int status;
    pid_t child = fork();
    check(child >= 0);
    if (child == 0)
        call(function, row, which, form);
    check(waitpid(child, &status, 0) == child);
    sem_unlink(string);
    shm_unlink(string);
    printf("%s(%s)", name, row->arguments);
    if (row->numbers[0])
        printf(" %ld", row->numbers[0]);
    if (which >= 0)
        printf(" argument %d %s", which + 1, strchr(COUNTS, row->arguments[which]) ? "2^48" : FORMS[form]);
    printf(": ");
    if (WIFSIGNALED(status))
        printf("signal %d\n", WTERMSIG(status));
    else if (!report->returned)
        printf("exit %d\n", WEXITSTATUS(status));
    else if (report->result < 0)
        printf("%ld, %s\n", report->result, strerror(report->error));
    else
        printf("%ld\n", report->result);
    fflush(stdout);
}

/* The function of this name, which must be the tracer's where there is one. */
static void *found(void) {
    void *function = dlsym(RTLD_DEFAULT, name);
    const char *preload = getenv("LD_PRELOAD");
    Dl_info info;
    check(function != NULL);
    if (preload)
        check(dladdr(function, &info) != 0 && info.dli_fname && strstr(preload, info.dli_fname));
    return function;
}

int main(int count, char **arguments) {
    static char path[512];
    name = "hostile";
    if (count > 1 && !strcmp(arguments[1], "--plain"))
        return printf("%s\n", PLAIN) < 0;
    if (count > 1 && !strcmp(arguments[1], "--ok"))
        return 42;
    check(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    self = path;
    snprintf(string, sizeof string, "/hostile-%010d", getpid());
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    room = next = mmap(NULL, ROOM + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hole = room + ROOM;
    check(room != MAP_FAILED && munmap(hole, PAGE) == 0);
    memset(hole - 8, 'x', 8);
    report = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(report != MAP_FAILED);
    int fd = file("source");
    check(write(fd, path, sizeof path) == sizeof path && close(fd) == 0);
    for (int at = 1; at < count; at++) {
        name = arguments[at];
        int rows = is(PLAIN);
        for (const struct row *row = ROWS; row < ROWS + sizeof ROWS / sizeof *ROWS; row++) {
            if (!is(row->names))
                continue;
            rows++;
            one(found(), row, -1, GOOD);
            for (int which = 0; row->arguments[which]; which++) {
                if (strchr(POINTERS, row->arguments[which]))
                    for (int form = NULLED; form < FORM_COUNT; form++)
                        one(found(), row, which, form);
                else if (strchr(COUNTS, row->arguments[which]))
                    one(found(), row, which, NULLED);
            }
        }
        if (!rows)
            fail("there is no call of it here");
    }
    return 0;
}
#endif
