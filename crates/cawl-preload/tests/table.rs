//! The table of hooks is the truth: about the built library, about the tests, and about what programs import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::hooks::{HOOKS, LEFT};
use object::{Object, ObjectSymbol};

/// Parts of names by which a function of the C library might write, or change what is written to.
const SUSPICIOUS: &[&str] = &[
    "write",
    "put",
    "print",
    "sync",
    "advise",
    "flock",
    "lockf",
    "trunc",
    "falloc",
    "open",
    "creat",
    "dup",
    "close",
    "exec",
    "spawn",
    "unlink",
    "rename",
    "remove",
    "sendfile",
    "splice",
    "tee",
    "copy_file",
    "aio",
    "lio_",
    "mmap",
    "munmap",
    "mremap",
    "syscall",
    "flush",
    "overflow",
    "warn",
    "err",
    "psig",
    "assert",
    "abort",
    "exit",
    "fork",
    "mkstemp",
    "mkostemp",
    "tmpfile",
    "login",
    "tty",
    "utmp",
    "wtmp",
    "mnt",
    "getopt",
    "argp",
    "syslog",
    "getpass",
    "fcntl",
    "ioctl",
    "seek",
    "malloc_",
    "daemon",
    "system",
    "memfd",
    "shm_",
    "setvbuf",
    "setbuf",
    "backtrace_",
    "read",
    "fget",
    "getc",
    "getwc",
    "getline",
    "getdelim",
    "scanf",
    "uflow",
    "underflow",
    "clone",
    "fatal",
    "chk_fail",
    "io_",
];

fn hooked() -> BTreeMap<&'static str, &'static str> {
    let mut all = BTreeMap::new();
    for group in HOOKS {
        for name in group.names {
            assert!(all.insert(*name, group.group).is_none(), "{name} is in the table twice");
        }
    }
    all
}

/// True if the table says why a function is left alone.
fn explained(name: &str) -> bool {
    LEFT.iter().flat_map(|left| left.names).any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => *known == name,
    })
}

/// Names of the dynamic symbols of a file, defined or not; none if it is no such file.
fn symbols(path: &Path, defined: bool) -> BTreeSet<String> {
    let Ok(bytes) = std::fs::read(path) else { return BTreeSet::new() };
    let Ok(file) = object::File::parse(&*bytes) else { return BTreeSet::new() };
    let names = file.dynamic_symbols().filter(|symbol| symbol.is_undefined() != defined);
    names.filter_map(|symbol| symbol.name().ok()).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A library that this test itself has loaded.
fn loaded(part: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    maps.lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains(part))
        .map(PathBuf::from)
}

#[test]
fn the_table_is_what_the_library_exports() {
    let exported = symbols(&cawl_kit::library(), true);
    let table: BTreeSet<String> = hooked().into_keys().map(str::to_owned).collect();
    let missing: Vec<_> = exported.difference(&table).collect();
    let surplus: Vec<_> = table.difference(&exported).collect();
    assert!(missing.is_empty(), "exported, but not in the table: {missing:?}");
    assert!(surplus.is_empty(), "in the table, but not exported: {surplus:?}");
}

/// A sanitizer's would look at them (tests/sanitizers.rs), and they may be anyone's.
#[test]
fn memory_is_copied_and_compared_inside() {
    let imports = symbols(&cawl_kit::library(), false);
    for name in ["memcpy", "memmove", "memset", "memcmp", "bcmp"] {
        assert!(!imports.contains(name), "{name}");
    }
}

#[test]
fn nothing_is_both_hooked_and_left() {
    for (name, group) in hooked() {
        let exact = LEFT.iter().find(|left| left.names.contains(&name));
        assert!(exact.is_none_or(|left| left.why.is_empty()), "{name} of {group}");
    }
}

#[test]
fn each_group_names_a_test_that_exists() {
    for group in HOOKS {
        assert!(!group.effect.is_empty());
        let (file, test) = group.test.split_once("::").expect("FILE::TEST");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file).with_extension("rs");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{}: {}", group.group, path.display()));
        assert!(text.contains(&format!("#[test]\nfn {test}()")), "{}: {}", group.group, group.test);
    }
}

/// What programs of a distribution import of these functions, whatever is installed here: coreutils, tar,
/// bash, git, perl, python3, stress-ng and a thousand others.
const IMPORTED: &str = "
_IO_getc _IO_putc __asprintf_chk __assert_fail __cxa_atexit __cxa_thread_atexit_impl __dprintf_chk
__duplocale __errno_location __fgets_chk __fprintf_chk __fread_chk __fread_unlocked_chk __freading
__gconv_create_spec __gconv_open __getdelim __h_errno_location __isoc99_fscanf __isoc99_scanf
__isoc99_sscanf __isoc99_vfscanf __isoc99_vsscanf __libc_single_threaded __open64_2 __open_2 __open_catalog
__openat64_2 __openat_2 __overflow __printf_chk __pthread_key_create __pthread_register_cancel
__pthread_unregister_cancel __pthread_unwind_next __read_chk __register_atfork __snprintf_chk __sprintf_chk
__stack_chk_fail __syslog_chk __uflow __vasprintf_chk __vdprintf_chk __vfprintf_chk __vsnprintf_chk
__vsprintf_chk __vsyslog_chk __xpg_strerror_r _exit abort aio_error64 aio_return64 aio_suspend64 aio_write64
argp_error argp_help argp_parse argp_state_help argz_create_sep asprintf backtrace_symbols
backtrace_symbols_fd cfgetispeed cfgetospeed clearerr clearerr_unlocked clnt_create clone close close_range
closedir closefrom closelog copy_file_range creat creat64 daemon dlclose dlerror dlopen dup dup2 dup3
duplocale endmntent epoll_create epoll_create1 err error error_at_line errx eventfd_read eventfd_write execl
execle execlp execv execve execvp execvpe exit fallocate fallocate64 fclose fcntl fcntl64 fdatasync fdopen
fdopendir ferror fexecve fflush fflush_unlocked fgetc fgetgrent fgetpos fgetpwent fgets fgets_unlocked
fgetspent fgetws fgetxattr flock flockfile fmemopen fopen fopen64 fopencookie fork forkpty fprintf fputc
fputc_unlocked fputs fputs_unlocked fputwc fputws fread fread_unlocked fremovexattr freopen freopen64 fscanf
fseek fseeko fseeko64 fsync ftruncate ftruncate64 fts_close fts_open fts_read funlockfile fwrite
fwrite_unlocked gai_strerror getc getchar getcontext getcwd getdelim getline getlogin getlogin_r getmntent
getopt getopt_long getopt_long_only getpass getttynam getwc getwchar hasmntopt hcreate hcreate_r herror
hstrerror iconv_close iconv_open ioctl isatty isprint iswprint lockf64 login login_tty logwtmp lremovexattr
lseek lseek64 madvise malloc_trim malloc_usable_size memfd_create mkostemp mkostemp64 mkstemp mkstemp64
mkstemps mmap mmap64 mremap msync munmap obstack_printf open open64 open_by_handle_at open_memstream openat
openat64 opendir openlog openpty opterr parse_printf_format pclose perror popen posix_fadvise
posix_fadvise64 posix_fallocate posix_fallocate64 posix_madvise posix_openpt posix_spawn
posix_spawn_file_actions_addclose posix_spawn_file_actions_adddup2 posix_spawn_file_actions_addopen
posix_spawn_file_actions_destroy posix_spawn_file_actions_init posix_spawnattr_destroy posix_spawnattr_init
posix_spawnattr_setflags posix_spawnattr_setpgroup posix_spawnattr_setschedparam
posix_spawnattr_setschedpolicy posix_spawnattr_setsigdefault posix_spawnattr_setsigmask posix_spawnp pread
pread64 preadv64 preadv64v2 printf process_vm_readv process_vm_writev psignal pthread_attr_destroy
pthread_attr_getstack pthread_attr_init pthread_attr_setaffinity_np pthread_attr_setdetachstate
pthread_attr_setscope pthread_attr_setstacksize pthread_barrier_destroy pthread_barrier_init
pthread_barrier_wait pthread_cancel pthread_cond_broadcast pthread_cond_destroy pthread_cond_init
pthread_cond_signal pthread_cond_timedwait pthread_cond_wait pthread_condattr_destroy pthread_condattr_init
pthread_condattr_setclock pthread_condattr_setpshared pthread_create pthread_detach pthread_exit
pthread_getaffinity_np pthread_getattr_np pthread_getcpuclockid pthread_getname_np pthread_getspecific
pthread_join pthread_key_create pthread_key_delete pthread_kill pthread_mutex_destroy pthread_mutex_init
pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock pthread_mutexattr_destroy
pthread_mutexattr_gettype pthread_mutexattr_init pthread_mutexattr_setpshared pthread_mutexattr_settype
pthread_once pthread_rwlock_destroy pthread_rwlock_init pthread_rwlock_rdlock pthread_rwlock_tryrdlock
pthread_rwlock_trywrlock pthread_rwlock_unlock pthread_rwlock_wrlock pthread_rwlockattr_destroy
pthread_rwlockattr_init pthread_rwlockattr_setkind_np pthread_self pthread_setaffinity_np
pthread_setcancelstate pthread_setname_np pthread_setschedparam pthread_setspecific pthread_sigmask putc
putchar putenv putgrent putpwent puts putsgent putspent pututline pututxline putwc putwchar pwrite pwrite64
pwritev64 pwritev64v2 read readdir readdir64 readlink readlinkat readv regerror regexec remove removexattr
rename renameat renameat2 sched_getcpu seekdir sem_close sem_open sem_unlink sendfile sendfile64 setbuf
setbuffer setmntent setvbuf shm_open shm_unlink snprintf splice sprintf sscanf stderr strdup strerror
strerror_l strerror_r strndup sync sync_file_range syncfs syscall syslog system tcflush thrd_exit
timer_create timerfd_create tmpfile tmpfile64 truncate truncate64 ttyname ttyname_r ungetc ungetwc unlink
unlinkat updwtmpx utmpxname vasprintf vfork vfprintf vprintf vsnprintf vsprintf vwarnx warn warnx wcsdup
write writev
";

#[test]
fn what_programs_import_is_hooked_or_explained() {
    let hooked = hooked();
    let is_unclear = |name: &&str| !hooked.contains_key(name) && !explained(name);
    let names: Vec<_> = IMPORTED.split_whitespace().filter(is_unclear).collect();
    assert!(names.is_empty(), "imported, neither hooked nor explained: {names:?}");
}

/// For whoever looks for functions that are missing: `CAWL_TEST_PROGRAMS=/usr/bin cargo test … -- --ignored`.
#[test]
#[ignore = "looks at the programs and libraries in the folders of CAWL_TEST_PROGRAMS"]
fn what_these_programs_import_is_hooked_or_explained() {
    let Some(folders) = std::env::var_os("CAWL_TEST_PROGRAMS") else { return };
    let libc = symbols(&loaded("/libc.so").expect("this test has a C library"), true);
    let hooked = hooked();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder")).flatten();
    let imports: BTreeSet<String> = files.flat_map(|file| symbols(&file.path(), false)).collect();
    let is_unclear = |name: &&String| {
        libc.contains(*name)
            && SUSPICIOUS.iter().any(|part| name.contains(part))
            && !hooked.contains_key(name.as_str())
            && !explained(name)
    };
    let names: Vec<&String> = imports.iter().filter(is_unclear).collect();
    assert!(names.is_empty(), "imported, neither hooked nor explained: {names:?}");
}
