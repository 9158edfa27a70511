//! Every exported hook: its group, what the call means to the models, and the test that covers the group.
//!
//! `table.rs` compares it with the symbols of the built library and with what programs import;
//! docs/reference/HOOKS.md tells how to add one.

/// Hooks that share a body or a purpose.
pub struct Group {
    /// What they have in common.
    pub group: &'static str,
    /// Exported names.
    pub names: &'static [&'static str],
    /// What a call means to the models.
    pub effect: &'static str,
    /// FILE::TEST in crates/cawl-preload/tests.
    pub test: &'static str,
}

/// Functions that are not hooked, or not called by the test of all hooks, and why.
pub struct Left {
    /// Names; one that ends in `*` stands for all that begin like it.
    pub names: &'static [&'static str],
    /// Why.
    pub why: &'static str,
}

const fn hooks(
    group: &'static str,
    names: &'static [&'static str],
    effect: &'static str,
    test: &'static str,
) -> Group {
    Group { group, names, effect, test }
}

/// All hooks.
#[rustfmt::skip]
pub const HOOKS: &[Group] = &[
    hooks(
        "open",
        &[
            "open", "open64", "__open", "__open64", "openat", "openat64", "__open_2", "__open64_2",
            "__openat_2", "__openat64_2", "creat", "creat64", "open_by_handle_at",
        ],
        "identity of a file; O_TRUNC cancels dirty pages",
        "files::offsets_survive_dup_append_lseek_pwrite_and_fork",
    ),
    hooks(
        "temporary files",
        &[
            "mkstemp", "mkstemp64", "mkostemp", "mkostemp64", "mkstemps", "mkstemps64", "mkostemps",
            "mkostemps64", "memfd_create", "shm_open",
        ],
        "identity of a file",
        "every::every_hook_is_called_and_recorded",
    ),
    hooks(
        "close",
        &["close", "__close", "close_range", "closefrom", "closedir"],
        "what is known of a descriptor ends; the tracer's own is stepped around",
        "processes::rough_treatment_of_descriptors_is_survived",
    ),
    hooks(
        "duplicates",
        &["dup", "dup2", "__dup2", "dup3", "fcntl", "fcntl64", "__fcntl"],
        "descriptors share a position; appending and direct writing may change",
        "files::offsets_survive_dup_append_lseek_pwrite_and_fork",
    ),
    hooks(
        "looks at descriptors",
        &["fstat", "fstat64", "__fxstat", "__fxstat64"],
        "the next write through it changes the time stamps; the tracer's own descriptor is not open",
        "processes::the_tracers_descriptor_is_not_found",
    ),
    hooks(
        "looks at names",
        &[
            "stat", "stat64", "lstat", "lstat64", "fstatat", "fstatat64", "statx", "__xstat", "__xstat64",
            "__lxstat", "__lxstat64", "__fxstatat", "__fxstatat64", "readdir", "readdir64",
        ],
        "none: predicted and compared",
        "every::every_hook_is_called_and_recorded",
    ),
    hooks(
        "position",
        &["lseek", "lseek64", "__lseek", "llseek"],
        "the next write's place",
        "files::offsets_survive_dup_append_lseek_pwrite_and_fork",
    ),
    hooks(
        "write",
        &[
            "write", "__write", "pwrite", "pwrite64", "__pwrite64", "writev", "pwritev", "pwritev64",
            "pwritev2", "pwritev64v2", "eventfd_write",
        ],
        "predicted and compared",
        "files::offsets_survive_dup_append_lseek_pwrite_and_fork",
    ),
    hooks(
        "copies in the kernel",
        &["copy_file_range", "sendfile", "sendfile64", "splice", "tee", "vmsplice", "ioctl"],
        "dirties a regular destination; ioctl: FICLONE and FICLONERANGE only",
        "complete::tee_vmsplice_and_splice_fill_pipes_and_files",
    ),
    hooks(
        "length and space",
        &[
            "ftruncate", "ftruncate64", "truncate", "truncate64", "fallocate", "fallocate64",
            "posix_fallocate", "posix_fallocate64",
        ],
        "cancels dirty pages; changes sizes",
        "files::offsets_survive_dup_append_lseek_pwrite_and_fork",
    ),
    hooks(
        "durability",
        &["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync"],
        "predicted and compared",
        "every::every_hook_is_called_and_recorded",
    ),
    hooks(
        "advice",
        &["posix_fadvise", "posix_fadvise64", "readahead"],
        "DONTNEED begins to write back and drops clean pages: predicted and compared; the others change what \
         is read ahead",
        "complete::advice_is_recorded_with_its_error",
    ),
    hooks(
        "locks",
        &["flock", "lockf", "lockf64"],
        "none; what several processes write is ordered by them, and by those of fcntl",
        "complete::locks_are_recorded_with_their_ranges",
    ),
    hooks(
        "names",
        &[
            "unlink", "unlinkat", "remove", "rename", "renameat", "renameat2", "rmdir", "mkdir", "mkdirat",
            "symlink", "symlinkat", "link", "linkat",
        ],
        "a file without a name or descriptor loses its dirty pages",
        "every::every_hook_is_called_and_recorded",
    ),
    hooks(
        "working directory",
        &["chdir", "fchdir"],
        "none; relative names begin elsewhere",
        "files::names_begin_in_the_working_directory",
    ),
    hooks(
        "mappings",
        &["mmap", "mmap64", "munmap", "mremap", "mprotect", "pkey_mprotect"],
        "stores to shared mappings, estimated by what became dirty",
        "complete::stores_to_mappings_are_estimated",
    ),
    hooks(
        "locked memory",
        &["mlockall"],
        "none; the tracer's own memory does not count against the limit",
        "limits::memory_is_locked_where_only_the_program_s_own_fits",
    ),
    hooks(
        "asynchronous writes",
        &["aio_write", "aio_write64", "aio_fsync", "aio_fsync64", "lio_listio", "lio_listio64", "io_submit"],
        "counted when handed over, as estimates, without a predicted cost",
        "complete::asynchronous_writes_are_counted_when_handed_over",
    ),
    hooks(
        "syscall",
        &["syscall"],
        "writing calls as by their own functions; others pass",
        "complete::syscall_is_understood",
    ),
    hooks(
        "reads",
        &[
            "read", "__read", "__read_chk", "readv", "pread", "pread64", "__pread64", "__pread_chk",
            "__pread64_chk", "preadv", "preadv64", "preadv2", "preadv64v2",
        ],
        "of files: predicted and compared; with CAWL_READS=0 not recorded",
        "reads::every_byte_that_the_kernel_gave_is_told_with_its_place",
    ),
    hooks(
        "streams: reads",
        &[
            "fread", "_IO_fread", "fread_unlocked", "__fread_chk", "__fread_unlocked_chk", "fgetc", "getc",
            "_IO_getc", "fgetc_unlocked", "getc_unlocked", "getchar", "getchar_unlocked", "getw", "__uflow",
            "__underflow", "fgets", "_IO_fgets", "fgets_unlocked", "__fgets_chk", "__fgets_unlocked_chk",
            "getline", "getdelim", "__getdelim", "scanf", "fscanf", "vscanf", "vfscanf", "__vfscanf",
            "__isoc99_scanf", "__isoc99_fscanf", "__isoc99_vscanf", "__isoc99_vfscanf", "__isoc23_scanf",
            "__isoc23_fscanf", "__isoc23_vscanf", "__isoc23_vfscanf",
        ],
        "of files, if the kernel was asked: predicted and compared by what filled the buffer",
        "reads::every_byte_that_the_kernel_gave_is_told_with_its_place",
    ),
    hooks(
        "streams: wide reads",
        &[
            "fgetwc", "getwc", "fgetwc_unlocked", "getwc_unlocked", "getwchar", "getwchar_unlocked",
            "__wuflow", "__wunderflow", "fgetws", "fgetws_unlocked", "__fgetws_chk", "__fgetws_unlocked_chk",
            "wscanf", "fwscanf", "vwscanf", "vfwscanf", "__isoc99_wscanf", "__isoc99_fwscanf",
            "__isoc99_vwscanf", "__isoc99_vfwscanf", "__isoc23_wscanf", "__isoc23_fwscanf",
            "__isoc23_vwscanf", "__isoc23_vfwscanf",
        ],
        "as those by bytes",
        "reads::every_byte_that_the_kernel_gave_is_told_with_its_place",
    ),
    hooks(
        "streams: open and close",
        &[
            "fopen", "fopen64", "_IO_fopen", "fdopen", "_IO_fdopen", "freopen", "freopen64", "tmpfile",
            "tmpfile64", "fclose", "_IO_fclose", "fcloseall", "endmntent", "popen", "_IO_popen", "pclose",
        ],
        "what was pending is flushed",
        "stdio::pending_arithmetic_plain",
    ),
    hooks(
        "streams: flush and move",
        &[
            "fflush", "_IO_fflush", "fflush_unlocked", "fseek", "fseeko", "fseeko64", "rewind", "fsetpos",
            "fsetpos64", "_IO_fsetpos", "_IO_fsetpos64", "setvbuf", "_IO_setvbuf", "setbuffer",
            "_IO_setbuffer", "setbuf", "setlinebuf",
        ],
        "what was pending is flushed",
        "stdio::pending_arithmetic_plain",
    ),
    hooks(
        "streams: bytes",
        &[
            "fwrite", "_IO_fwrite", "fwrite_unlocked", "fputs", "_IO_fputs", "fputs_unlocked", "fputc",
            "fputc_unlocked", "putc", "_IO_putc", "putc_unlocked", "putchar", "putchar_unlocked", "puts",
            "_IO_puts", "putw", "__overflow",
        ],
        "predicted and compared by what left the buffer",
        "stdio::pending_arithmetic_with_inlined_putc",
    ),
    hooks(
        "streams: printf",
        &[
            "printf", "_IO_printf", "fprintf", "_IO_fprintf", "dprintf", "vprintf", "vfprintf",
            "_IO_vfprintf", "vdprintf", "__printf_chk", "__fprintf_chk", "__dprintf_chk", "__vprintf_chk",
            "__vfprintf_chk", "__vdprintf_chk",
        ],
        "predicted and compared by what left the buffer",
        "stdio::pending_arithmetic_fortified",
    ),
    hooks(
        "streams: wide",
        &[
            "fputwc", "fputwc_unlocked", "putwc", "putwc_unlocked", "putwchar", "putwchar_unlocked", "fputws",
            "fputws_unlocked", "__woverflow", "wprintf", "fwprintf", "vwprintf", "vfwprintf", "__wprintf_chk",
            "__fwprintf_chk", "__vwprintf_chk", "__vfwprintf_chk",
        ],
        "as bytes, one for each character: estimates",
        "stdio::wide_streams_and_failing_ones",
    ),
    hooks(
        "messages",
        &[
            "perror", "error", "error_at_line", "warn", "warnx", "vwarn", "vwarnx", "err", "errx", "verr",
            "verrx", "psignal", "psiginfo", "herror", "malloc_stats", "malloc_info", "putpwent", "putspent",
            "putgrent", "putsgent", "addmntent", "backtrace_symbols_fd", "sem_open", "getopt",
            "getopt_long", "getopt_long_only", "__posix_getopt",
        ],
        "bytes as the kernel counted them",
        "complete::messages_are_counted_to_the_byte",
    ),
    hooks(
        "processes: start",
        &[
            "fork", "__fork", "_Fork", "forkpty", "login_tty", "posix_spawn", "posix_spawnp", "execve",
            "execv", "execvp", "execvpe", "execl", "execle", "execlp", "fexecve", "execveat", "system",
            "daemon", "sendmsg",
        ],
        "the tracer is carried along; from then on positions are shared",
        "processes::every_way_of_starting_a_program_is_followed",
    ),
    hooks(
        "confinement",
        &["prctl"],
        "under a system call filter the tracer makes no system call of its own",
        "confined::under_a_filter_the_tracer_makes_no_call",
    ),
    hooks(
        "loading",
        &["dlopen", "dlmopen", "dlsym"],
        "none; a function found through a handle is the hook, and ways past the hooks are named",
        "image::functions_looked_up_through_a_handle_are_followed",
    ),
    hooks(
        "processes: end",
        &["_exit", "_Exit", "abort", "__assert_fail", "__assert_perror_fail", "__stack_chk_fail"],
        "the session ends",
        "stdio::ends_without_a_flush_leave_nothing_pending",
    ),
];

const fn left(names: &'static [&'static str], why: &'static str) -> Left {
    Left { names, why }
}

/// Hooks that tests/every.rs cannot call, and why.
#[rustfmt::skip]
pub const UNCALLED: &[Left] = &[
    left(&["io_submit"], "lies in libaio: complete::libaio_is_counted_when_handed_over calls it"),
    left(
        &[
            "__isoc23_scanf", "__isoc23_fscanf", "__isoc23_vscanf", "__isoc23_vfscanf", "__isoc23_wscanf",
            "__isoc23_fwscanf", "__isoc23_vwscanf", "__isoc23_vfwscanf",
        ],
        "since version 2.38 of the C library; the bodies are those of __isoc99_*",
    ),
    left(&["mlockall"], "locks all of the program that calls it: limits calls it"),
    left(&["llseek"], "the C library keeps it for programs linked before 1998; no new one can call it"),
];

/// Functions of the C library that write, or might by their name, and are not hooked.
#[rustfmt::skip]
pub const LEFT: &[Left] = &[
    left(
        &[
            "opterr", "argp_*", "__argp_*",
            "getpass",
        ],
        "writes to standard error or the terminal only when it has something to complain or ask; missing \
         from coverage",
    ),
    left(
        &["syslog", "vsyslog", "__syslog_chk", "__vsyslog_chk", "openlog", "closelog"],
        "sends to a socket, which no page cache and no wchar knows; a copy to standard error (LOG_PERROR) is \
         missing from coverage",
    ),
    left(
        &[
            "pututline", "pututxline", "updwtmp", "updwtmpx", "logwtmp", "login", "utmpname", "utmpxname",
            "getutmp*",
        ],
        "log-in records: a few hundred bytes at log-in; missing from coverage",
    ),
    left(
        &["vfork", "__vfork", "clone", "__clone"],
        "the child shares the parent's memory or stack, so nothing can stand before the call; until its exec, \
         what a vfork child writes is booked to its parent",
    ),
    left(
        &["exit", "on_exit", "thrd_exit", "pthread_exit", "quick_exit", "__cxa_*", "__cxa_at_quick_exit"],
        "ends by destructors and handlers, where the tracer is registered",
    ),
    left(
        &["aio_cancel*", "aio_error*", "aio_return*", "aio_suspend*", "aio_read*", "aio_init"],
        "about requests that were counted when handed over, or reads",
    ),
    left(
        &[
            "gets", "__gets_chk", "_IO_gets", "_IO_sgetn", "_IO_getline*", "__nss_readline", "eventfd_read",
        ],
        "reads of standard input that the C standard took away, or none of a file",
    ),
    left(
        &[
            "sscanf", "vsscanf", "__vsscanf", "swscanf", "vswscanf", "__isoc99_sscanf", "__isoc99_vsscanf",
            "__isoc99_swscanf", "__isoc99_vswscanf", "__isoc23_sscanf", "__isoc23_vsscanf",
            "__isoc23_swscanf", "__isoc23_vswscanf",
        ],
        "scans memory",
    ),
    left(
        &["fgetpwent*", "fgetgrent*", "fgetsgent*", "fgetspent*"],
        "reads entries of a stream by functions of the C library's own; the next read tells the true place",
    ),
    left(
        &[
            "fgetpos*", "fgetxattr", "ungetc", "ungetwc", "cfget*", "sched_getcpu", "clock_getcpuclockid",
            "getcontext", "getcpu", "getcwd", "__getcwd_chk",
        ],
        "not what its name suggests: reads no data of a file",
    ),
    left(
        &[
            "fopencookie", "fmemopen", "open_memstream", "open_wmemstream", "__open_catalog", "fsopen",
            "open_tree",
        ],
        "no descriptor behind it, or one that does not write; a cookie's own functions are the program's",
    ),
    left(
        &[
            "openpty", "posix_openpt", "opendir", "fdopendir", "setmntent", "__setmntent", "__endmntent",
            "getmntent*", "__getmntent_r*", "hasmntopt", "timerfd_create", "eventfd", "epoll_create*",
            "timer_create", "mq_*", "__mq_open_2", "pidfd_*", "sem_close", "sem_unlink",
            "catopen", "catclose", "iconv_open", "iconv_close", "setttyent", "endttyent", "getttyent",
        ],
        "makes or ends a descriptor that is looked at when something is written to it",
    ),
    left(
        &["flockfile", "ftrylockfile", "funlockfile"],
        "locks of a stream among threads, and none of a file",
    ),
    left(&["posix_spawn_file_actions_*", "posix_spawnattr_*"], "prepares a posix_spawn, which is hooked"),
    left(&["shm_unlink", "shmat", "shmdt", "shmget", "shmctl"], "memory without a file on a disk"),
    left(&["process_vm_*", "putmsg", "putpmsg"], "writes to no file"),
    left(
        &["madvise", "__madvise", "posix_madvise", "process_madvise"],
        "about memory: a file's pages stay in the cache",
    ),
    left(
        &[
            "snprintf", "sprintf", "vsnprintf", "vsprintf", "swprintf", "vswprintf", "__snprintf*",
            "__sprintf_chk", "__vsnprintf*", "__vsprintf_chk", "__swprintf_chk", "__vswprintf_chk",
            "asprintf", "vasprintf", "__asprintf*", "__vasprintf_chk", "obstack_*", "__obstack_*",
            "_obstack_*", "parse_printf_format", "printf_size*", "register_printf_*", "__printf_fp",
            "_IO_sprintf", "_IO_vsprintf",
        ],
        "prints into memory",
    ),
    left(
        &[
            "_IO_2_1_*", "_IO_adjust_*", "_IO_default_*", "_IO_do_write", "_IO_doallocbuf",
            "_IO_enable_locks", "_IO_feof", "_IO_ferror", "_IO_fgetpos*", "_IO_file_*", "_IO_flockfile",
            "_IO_flush_all*", "_IO_free_*", "_IO_ftell", "_IO_ftrylockfile", "_IO_funlockfile", "_IO_init*",
            "_IO_iter_*", "_IO_least_*", "_IO_link_in", "_IO_list_*", "_IO_marker_*", "_IO_padn",
            "_IO_peekc*", "_IO_proc_*", "_IO_remove_*", "_IO_seek*", "_IO_setb", "_IO_sputback*",
            "_IO_sscanf", "_IO_str_*", "_IO_sunget*", "_IO_switch_*", "_IO_un_link", "_IO_unget*",
            "_IO_unsave_*", "_IO_vfscanf", "_IO_wd*", "_IO_wfile_*", "_IO_wmarker_*", "_IO_wset*",
            "_flushlbf", "_dl_*", "__freading", "__freadable", "__fseeko64", "__libc_*", "__gconv_*",
            "__nptl_*", "_thread_db_*", "__nss_*", "_nss_*", "__netlink_*", "__call_tls_dtors",
            "__register_atfork", "__abort*", "__write_nocancel", "__read_nocancel", "__open_nocancel",
            "__open64_nocancel", "__close_nocancel", "__pread64_nocancel", "__openat_nocancel",
            "__openat64_nocancel", "__fcntl64_nocancel", "__mmap", "__munmap", "__backtrace_symbols_fd",
            "__cyg_*", "__fdelt_*", "__chk_fail",
        ],
        "inside of the C library, or kept for programs of the last century",
    ),
    left(
        &[
            "clearerr*", "ferror*", "strerror*", "__strerror_r", "__xpg_strerror_r", "hstrerror",
            "gai_strerror", "gai_error", "dlerror", "regerror", "errno", "__errno_location", "h_errno",
            "__h_errno*", "h_errlist", "h_nerr", "sys_errlist", "_sys_errlist", "sys_nerr", "_sys_nerr",
            "error_message_count", "error_one_per_line", "error_print_progname", "getdate_err", "stderr",
            "timer_getoverrun", "__rcmd_errstr", "_seterr_reply",
        ],
        "about errors, and writes nothing",
    ),
    left(
        &[
            "malloc_trim", "malloc_usable_size", "__malloc_*", "__realloc_hook", "backtrace_symbols",
            "isatty", "ttyname*", "__ttyname_r_chk", "ttyslot", "getlogin*", "__getlogin_r_chk", "setlogin",
            "gtty", "stty", "tcflush", "readdir*", "readlink*", "__readlink*", "seekdir", "isprint*",
            "iswprint*", "__isprint_l", "__iswprint_l", "strdup", "strndup", "__strdup", "__strndup",
            "wcsdup", "duplocale", "__duplocale", "putenv", "removexattr", "lremovexattr", "fremovexattr",
            "envz_remove", "argz_create_sep", "fts_*", "fts64_*", "regexec", "re_exec", "rexec*", "dlclose", "dlinfo", "getaddrinfo", "getnameinfo", "freeaddrinfo", "inet6_option_*",
            "pkey_alloc", "siginterrupt", "sigwaitinfo", "signalfd", "sysinfo", "getttynam", "bdflush",
            "tcdrain", "hcreate*",
        ],
        "not what its name suggests: no data of a file is changed",
    ),
    left(
        &[
            "pthread_*", "__pthread_*", "_pthread_*", "auth*", "clnt*", "svc*", "rpc_*", "__rpc_*", "registerrpc",
            "xdr*", "__res_*", "__resolv_*", "__sched_*", "res_*",
        ],
        "threads, name service and remote calls: what they write goes to sockets",
    ),
];
