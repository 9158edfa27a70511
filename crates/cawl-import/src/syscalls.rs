//! System calls as the kernel's tracepoints have them, by number and by raw arguments, in the form of
//! [`crate::calls::text`].
//!
//! The law: **what stands behind a pointer is not known**, and stays a pointer. Numbers are those of the
//! machine that this is built for.

use std::collections::HashMap;
use std::sync::LazyLock;

/// An argument as a tool shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number, not yet narrowed to the argument's width.
    Number(u64),
    /// Names of bits, a descriptor with its path, a string in quotes.
    Text(&'a str),
}

/// The name of a call by its number; None for what is no call of this machine.
pub(super) fn name_of(number: u64) -> Option<&'static str> {
    NUMBERS.get(&number).copied()
}

/// The names of a call's arguments, in order; None for calls that have nothing to do with files.
pub(super) fn arguments_of(name: &str) -> Option<impl Iterator<Item = &'static str>> {
    Some(ARGUMENTS.get(name)?.iter().map(|(name, _)| *name))
}

/// A call's arguments in strace's form; what is not there is 0.
pub(super) fn canonical(name: &str, values: &[Option<Value<'_>>]) -> String {
    let mut out = String::new();
    let Some(arguments) = ARGUMENTS.get(name) else { return out };
    let command = values.get(1).copied().flatten();
    for (at, (argument, kind)) in arguments.iter().enumerate().filter(|(_, (_, kind))| *kind != "-") {
        let value = values.get(at).copied().flatten().unwrap_or(Value::Number(0));
        out.push_str(if out.is_empty() { "" } else { ", " });
        match (*kind, value) {
            ("fcntl", value) => of_fcntl(command, value, &mut out),
            ("", Value::Number(number)) if DESCRIPTORS.contains(argument) => {
                match number as i32 {
                    libc::AT_FDCWD => out.push_str("AT_FDCWD"),
                    number => out.push_str(&format!("{number}")),
                };
            }
            ("", Value::Number(number)) => out.push_str(&format!("{number:#x}")),
            ("", Value::Text("CWD")) => out.push_str("AT_FDCWD"),
            // Some tools print paths without quotes.
            ("", Value::Text(path)) if path.starts_with('/') => out.push_str(&format!("\"{path}\"")),
            ("", Value::Text(text)) => out.push_str(text),
            (prefix, value) => of_names(prefix, value, &mut out),
        }
    }
    out
}

/// The third argument of fcntl, which its command gives a meaning.
fn of_fcntl(command: Option<Value<'_>>, value: Value<'_>, out: &mut String) {
    let mut name = String::new();
    of_names("F_", command.unwrap_or(Value::Number(0)), &mut name);
    match (name.as_str(), value) {
        ("F_SETFL", value) => of_names("O_", value, out),
        ("F_SETFD", value) => of_names("FD_", value, out),
        (_, Value::Number(number)) => out.push_str(&format!("{number:#x}")),
        (_, Value::Text(text)) => out.push_str(text),
    }
}

/// Bits or one number as names with this prefix.
fn of_names(prefix: &str, value: Value<'_>, out: &mut String) {
    let start = out.len();
    let mut push = |name: &str, prefix: &str| {
        let bar = if out.len() == start { "" } else { "|" };
        out.push_str(&[bar, prefix, name].concat());
    };
    match value {
        Value::Text(text) => {
            for name in text.split('|').map(str::trim) {
                let is_short =
                    name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.starts_with(prefix);
                push(name, if is_short { prefix } else { "" });
            }
        }
        Value::Number(number) => {
            let mut left = number & 0xffff_ffff;
            let known = NAMES.iter().filter(|(name, _)| name.starts_with(prefix));
            if matches!(prefix, "F_" | "FIC") {
                if let Some((name, _)) = known.clone().find(|(_, bits)| *bits == left) {
                    return push(name, "");
                }
            } else {
                for (name, bits) in known.filter(|(_, bits)| *bits > 0) {
                    if left & bits == *bits {
                        left &= !bits;
                        push(name, "");
                    }
                }
            }
            if left != 0 || out.len() == start {
                let bar = if out.len() == start { "" } else { "|" };
                out.push_str(&format!("{bar}{left:#x}"));
            }
        }
    }
}

/// Arguments that are descriptors, of 32 bits with a sign.
const DESCRIPTORS: [&str; 12] = [
    "fd", "dfd", "fildes", "oldfd", "newfd", "olddfd", "newdfd", "in_fd", "out_fd", "fd_in", "fd_out",
    "max_fd",
];

/// Calls with their arguments, as the kernel names them (SYSCALL_DEFINE): `name` or `name:prefix` of the
/// names of its bits; what has `-` is left out, as strace does.
const CALLS: &str = "
read fd buf count; write fd buf count; readv fd vec vlen; writev fd vec vlen
pread64 fd buf count pos; pwrite64 fd buf count pos; preadv fd vec vlen pos_l pos_h:-
pwritev fd vec vlen pos_l pos_h:-; preadv2 fd vec vlen pos_l pos_h:- flags:RWF_
pwritev2 fd vec vlen pos_l pos_h:- flags:RWF_
fsync fd; fdatasync fd; sync; syncfs fd; sync_file_range fd offset nbytes flags:SYNC_FILE_RANGE_
msync start len flags; fadvise64 fd offset len advice:POSIX_FADV_
copy_file_range fd_in off_in fd_out off_out len flags; sendfile out_fd in_fd offset count
splice fd_in off_in fd_out off_out len flags
truncate path length; ftruncate fd length; fallocate fd mode:FALLOC_FL_ offset len
open filename flags:O_ mode; openat dfd filename flags:O_ mode; openat2 dfd filename how usize
creat pathname mode; close fd; close_range fd max_fd flags:CLOSE_RANGE_
dup fildes; dup2 oldfd newfd; dup3 oldfd newfd flags:O_; fcntl fd cmd:F_ arg:fcntl
flock fd cmd:LOCK_; lseek fd offset whence:SEEK_
unlink pathname; unlinkat dfd pathname flag:AT_; rename oldname newname
renameat olddfd oldname newdfd newname; renameat2 olddfd oldname newdfd newname flags:RENAME_
link oldname newname; linkat olddfd oldname newdfd newname flags:AT_
execve filename argv envp; execveat fd filename argv envp flags:AT_
clone clone_flags:CLONE_ newsp parent_tidptr child_tidptr tls; clone3 uargs size; fork; vfork
exit error_code; exit_group error_code
chdir filename; fchdir fd; pipe fildes; pipe2 fildes flags:O_
socket family type protocol; socketpair family type protocol usockvec
accept fd upeer_sockaddr upeer_addrlen; accept4 fd upeer_sockaddr upeer_addrlen flags
eventfd2 count flags; memfd_create uname flags; epoll_create1 flags; timerfd_create clockid flags
signalfd4 ufd user_mask sizemask flags; inotify_init1 flags; pidfd_open pid flags
mmap addr len prot:PROT_ flags:MAP_ fd off; ioctl fd cmd:FIC arg
io_submit ctx_id nr iocbpp; io_uring_enter fd to_submit min_complete flags argp argsz
io_uring_setup entries params; vmsplice fd iov nr_segs flags; tee fdin fdout len flags
process_vm_writev pid lvec liovcnt rvec riovcnt flags
";

/// Names that some tools give to calls, and the kernel's.
const OTHER_NAMES: [(&str, &str); 3] =
    [("pread", "pread64"), ("pwrite", "pwrite64"), ("sendfile64", "sendfile")];

type Arguments = Vec<(&'static str, &'static str)>;

static ARGUMENTS: LazyLock<HashMap<&'static str, Arguments>> = LazyLock::new(|| {
    let mut calls: HashMap<&str, Arguments> = HashMap::new();
    for row in CALLS.split([';', '\n']) {
        let mut words = row.split_whitespace();
        let Some(name) = words.next() else { continue };
        calls.insert(name, words.map(|word| word.split_once(':').unwrap_or((word, ""))).collect());
    }
    for (other, name) in OTHER_NAMES {
        let arguments = calls.get(name).cloned().unwrap_or_default();
        calls.insert(other, arguments);
    }
    calls
});

/// Names of bits and numbers. What contains another stands before it.
#[rustfmt::skip]
const NAMES: &[(&str, u64)] = &[
    ("O_WRONLY", libc::O_WRONLY as u64), ("O_RDWR", libc::O_RDWR as u64), ("O_CREAT", libc::O_CREAT as u64),
    ("O_EXCL", libc::O_EXCL as u64), ("O_TRUNC", libc::O_TRUNC as u64), ("O_APPEND", libc::O_APPEND as u64),
    ("O_SYNC", libc::O_SYNC as u64), ("O_DSYNC", libc::O_DSYNC as u64), ("O_DIRECT", libc::O_DIRECT as u64),
    ("O_TMPFILE", libc::O_TMPFILE as u64), ("O_DIRECTORY", libc::O_DIRECTORY as u64),
    ("O_PATH", libc::O_PATH as u64), ("O_CLOEXEC", libc::O_CLOEXEC as u64),
    ("CLONE_VM", libc::CLONE_VM as u64), ("CLONE_FILES", libc::CLONE_FILES as u64),
    ("CLONE_VFORK", libc::CLONE_VFORK as u64), ("CLONE_THREAD", libc::CLONE_THREAD as u64),
    ("PROT_READ", 1), ("PROT_WRITE", 2), ("MAP_SHARED", 1), ("MAP_PRIVATE", 2), ("MAP_ANONYMOUS", 0x20),
    ("F_DUPFD", 0), ("F_GETFD", 1), ("F_SETFD", 2), ("F_GETFL", 3), ("F_SETFL", 4), ("F_GETLK", 5),
    ("F_SETLK", 6), ("F_SETLKW", 7), ("F_OFD_GETLK", 36), ("F_OFD_SETLK", 37), ("F_OFD_SETLKW", 38),
    ("F_DUPFD_CLOEXEC", 1030), ("FD_CLOEXEC", 1),
    ("FICLONE", 0x4004_9409), ("FICLONERANGE", 0x4020_940d),
    ("LOCK_SH", 1), ("LOCK_EX", 2), ("LOCK_NB", 4), ("LOCK_UN", 8),
    ("SEEK_CUR", 1), ("SEEK_END", 2), ("AT_REMOVEDIR", 0x200), ("RENAME_NOREPLACE", 1), ("RENAME_EXCHANGE", 2),
    ("CLOSE_RANGE_UNSHARE", 2), ("CLOSE_RANGE_CLOEXEC", 4),
    ("RWF_HIPRI", 1), ("RWF_DSYNC", 2), ("RWF_SYNC", 4), ("RWF_NOWAIT", 8), ("RWF_APPEND", 16),
];

static NUMBERS: LazyLock<HashMap<u64, &'static str>> = LazyLock::new(|| {
    let name = |name: &'static str| name.trim_start_matches("SYS_");
    FOLLOWED.iter().chain(OLD).chain(OTHERS).map(|(text, number)| (*number as u64, name(text))).collect()
});

/// Names with their numbers.
macro_rules! numbers {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// Calls that are followed.
#[rustfmt::skip]
const FOLLOWED: &[(&str, libc::c_long)] = numbers!(
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2
    SYS_pwritev2 SYS_fsync SYS_fdatasync SYS_sync SYS_syncfs SYS_sync_file_range SYS_msync SYS_fadvise64
    SYS_copy_file_range SYS_sendfile SYS_splice SYS_truncate SYS_ftruncate SYS_fallocate SYS_openat SYS_openat2
    SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_flock SYS_lseek SYS_unlinkat SYS_renameat
    SYS_renameat2 SYS_linkat SYS_execve SYS_execveat SYS_clone SYS_clone3 SYS_exit SYS_exit_group SYS_chdir
    SYS_fchdir SYS_pipe2 SYS_socket SYS_socketpair SYS_accept SYS_accept4 SYS_eventfd2 SYS_memfd_create
    SYS_epoll_create1 SYS_timerfd_create SYS_signalfd4 SYS_inotify_init1 SYS_pidfd_open SYS_mmap SYS_ioctl
    SYS_io_submit SYS_io_uring_enter SYS_io_uring_setup SYS_vmsplice SYS_tee SYS_process_vm_writev
);

/// Calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLD: &[(&str, libc::c_long)] = numbers!(
    SYS_open SYS_creat SYS_dup2 SYS_unlink SYS_rename SYS_link SYS_fork SYS_vfork SYS_pipe SYS_stat SYS_lstat
    SYS_access SYS_poll SYS_select SYS_mkdir SYS_rmdir SYS_readlink SYS_chmod SYS_arch_prctl SYS_epoll_wait
);
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(&str, libc::c_long)] = &[];

/// Frequent calls that are only counted. What else there is has its number as its name.
#[rustfmt::skip]
const OTHERS: &[(&str, libc::c_long)] = numbers!(
    SYS_brk SYS_fstat SYS_newfstatat SYS_statx SYS_mprotect SYS_munmap SYS_mremap SYS_madvise SYS_futex
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_set_robust_list SYS_set_tid_address SYS_rseq
    SYS_prlimit64 SYS_getrandom SYS_getpid SYS_gettid SYS_getuid SYS_getdents64 SYS_readlinkat SYS_faccessat
    SYS_faccessat2 SYS_wait4 SYS_waitid SYS_kill SYS_tgkill SYS_nanosleep SYS_clock_nanosleep
    SYS_clock_gettime SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_pselect6 SYS_recvfrom SYS_recvmsg
    SYS_sendto SYS_sendmsg SYS_connect SYS_bind SYS_listen SYS_sched_yield SYS_sched_getaffinity SYS_prctl
    SYS_getcwd SYS_mkdirat SYS_fchmod SYS_fchmodat SYS_fchown SYS_utimensat SYS_statfs SYS_fstatfs
    SYS_sysinfo SYS_uname SYS_umask SYS_ptrace SYS_bpf SYS_perf_event_open SYS_restart_syscall
);

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, numbers: &[u64]) -> String {
        canonical(name, &numbers.iter().map(|number| Some(Value::Number(*number))).collect::<Vec<_>>())
    }

    #[test]
    fn raw_arguments_in_the_form_of_strace() {
        assert_eq!(of("write", &[1, 0x55d0, 4096]), "1, 0x55d0, 0x1000");
        assert_eq!(
            of("openat", &[0xffff_ff9c, 0x7f00, 0o1101, 0o666]),
            "AT_FDCWD, 0x7f00, O_WRONLY|O_CREAT|O_TRUNC, 0x1b6"
        );
        assert_eq!(of("openat", &[u64::MAX - 99, 0x7f00, 0o4010002]), "AT_FDCWD, 0x7f00, O_RDWR|O_SYNC, 0x0");
        assert_eq!(of("open", &[1, 0o20200001]), "0x1, O_WRONLY|O_TMPFILE, 0x0");
        assert_eq!(of("pwritev2", &[3, 1, 2, 4096, 0, 2]), "3, 0x1, 0x2, 0x1000, RWF_DSYNC");
        assert_eq!(of("fcntl", &[3, 4, 0o2000]), "3, F_SETFL, O_APPEND");
        assert_eq!(of("fcntl", &[3, 2, 1]), "3, F_SETFD, FD_CLOEXEC");
        assert_eq!(of("fcntl", &[3, 0, 10]), "3, F_DUPFD, 0xa");
        assert_eq!(
            of("clone", &[0x0001_0900, 0, 0, 0, 0]),
            "CLONE_VM|CLONE_THREAD|0x800, 0x0, 0x0, 0x0, 0x0"
        );
        assert_eq!(of("close_range", &[3, 0xffff_ffff, 0]), "3, -1, 0x0");
        assert_eq!(of("nothing", &[1]), "");
    }

    #[test]
    fn short_names_get_their_prefix() {
        let values = [Some(Value::Text("CWD")), None, Some(Value::Text("WRONLY|O_CREAT|0x8000"))];
        assert_eq!(canonical("openat", &values), "AT_FDCWD, 0x0, O_WRONLY|O_CREAT|0x8000, 0x0");
        let values = [None, None, Some(Value::Number(3))];
        assert_eq!(canonical("read", &values), "0, 0x0, 0x3");
        let values =
            [Some(Value::Text("3</tmp/a>")), Some(Value::Text("SETFL")), Some(Value::Text("APPEND"))];
        assert_eq!(canonical("fcntl", &values), "3</tmp/a>, F_SETFL, O_APPEND");
    }

    #[test]
    fn numbers_have_names_whose_arguments_are_known() {
        for (name, number) in FOLLOWED {
            let name = name.trim_start_matches("SYS_");
            assert_eq!(name_of(*number as u64), Some(name));
            assert!(arguments_of(name).is_some(), "{name}");
        }
        assert_eq!(name_of(100_000), None);
    }
}
