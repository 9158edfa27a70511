//! The functions that the hooks stand in front of.
//!
//! The constructor looks all of them up, once, by [`symbols`]. A hook that runs earlier (another library's
//! constructor, an allocator that initialises itself) looks up the one it needs, and so does one whose
//! function was not there yet; a function that this C library does not have fails with ENOSYS, and no program
//! is linked against it.

#![allow(clippy::unused_unit, reason = "one form of signature for all functions")]

use crate::base::guard::set_errno;
use crate::base::hot::HOT;
pub use crate::base::hot::threads;
use crate::base::level::Level;
use crate::base::symbols;
use crate::base::words::{self, Seen};
use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use libc::{FILE, iovec, mode_t, off_t, size_t, ssize_t, wchar_t};

type Attributes = *const c_void;
type Arguments = *mut c_void;
type Strings = *const *const c_char;

macro_rules! reals {
    (@function $name:ident ( $($arg:ident : $ty:ty),* ) $ret:ty, $missing:expr) => {
        /// The real function of this name.
        ///
        /// # Safety
        /// As the C library documents it.
        #[inline(always)]
        #[allow(non_snake_case, dead_code, clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            let mut found = TABLE[Index::$name as usize].load(Relaxed);
            if found.is_null() {
                found = look_up(Index::$name as usize);
                if found.is_null() {
                    set_errno(libc::ENOSYS);
                    return $missing;
                }
            }
            // SAFETY: a library behind this one has this name at this address, and the signature is that of
            // the C library. "C-unwind" lets a cancelled thread unwind through the hook.
            unsafe {
                let function: unsafe extern "C-unwind" fn($($ty),*) -> $ret = core::mem::transmute(found);
                function($($arg),*)
            }
        }
    };
    (@functions [$($name:ident)*] $args:tt $ret:ty, $missing:expr) => {
        $( reals!(@function $name $args $ret, $missing); )*
    };
    ($(
        fn $name:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty = $missing:expr;
    )*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[repr(usize)]
        #[derive(Clone, Copy)]
        enum Index { $( $name, )* $( $( $alias, )* )* }

        const fn name(text: &'static str) -> &'static CStr {
            match CStr::from_bytes_with_nul(text.as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        }

        static NAMES: &[&CStr] = &[
            $( name(concat!(stringify!($name), "\0")), )*
            $( $( name(concat!(stringify!($alias), "\0")), )* )*
        ];

        /// How many are not another name of one of these.
        const FIRSTS: usize = [$( Index::$name ),*].len();

        /// Of the others, which one's other name it is.
        static FIRST: [Index; NAMES.len() - FIRSTS] = [$( $( { let _ = Index::$alias; Index::$name }, )* )*];

        static HASHES: [u32; NAMES.len()] = {
            let mut hashes = [0; NAMES.len()];
            let mut at = 0;
            while at < hashes.len() {
                hashes[at] = symbols::hash(NAMES[at]);
                at += 1;
            }
            hashes
        };

        static LEVELS: [Level; NAMES.len()] = {
            let mut levels = [Level::Any; NAMES.len()];
            let mut at = 0;
            while at < levels.len() {
                levels[at] = words::level(symbols::hash(NAMES[at]));
                at += 1;
            }
            levels
        };

        static TABLE: [AtomicPtr<c_void>; NAMES.len()] =
            [const { AtomicPtr::new(core::ptr::null_mut()) }; NAMES.len()];

        $( reals!(@functions [$name $($alias)*] ($($arg : $ty),*) $ret, $missing); )*
    };
}

#[cold]
fn look_up(index: usize) -> *mut c_void {
    let mut found = symbols::find(NAMES[index], HASHES[index], LEVELS[index]);
    if found.is_null()
        && let Some(first) = index.checked_sub(FIRSTS).map(|other| FIRST[other] as usize)
    {
        found = symbols::find(NAMES[first], HASHES[first], LEVELS[first]);
    }
    TABLE[index].store(found, Relaxed);
    found
}

/// The address of a function that is jumped to.
fn address(index: Index) -> *mut c_void {
    let found = TABLE[index as usize].load(Relaxed);
    if found.is_null() { look_up(index as usize) } else { found }
}

/// The size of a stream's buffer, where the C library tells it; nothing is looked up.
///
/// # Safety
/// As the C library documents it.
pub unsafe fn buffer_size(stream: *mut FILE) -> size_t {
    let found = TABLE[Index::__fbufsize as usize].load(Relaxed);
    if found.is_null() {
        return 0;
    }
    // SAFETY: the C library's function of this name; the caller's promise.
    unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut FILE) -> size_t>(found)(stream) }
}

/// syscall()
pub fn address_of_syscall() -> *const c_void {
    address(Index::syscall)
}

/// dlopen()
pub fn address_of_dlopen() -> *const c_void {
    address(Index::dlopen)
}

/// dlmopen()
pub fn address_of_dlmopen() -> *const c_void {
    address(Index::dlmopen)
}

/// dlsym()
pub fn address_of_dlsym() -> *const c_void {
    address(Index::dlsym)
}

/// error()
pub extern "C" fn address_of_error() -> *mut c_void {
    address(Index::error)
}

/// error_at_line()
pub extern "C" fn address_of_error_at_line() -> *mut c_void {
    address(Index::error_at_line)
}

/// True once the constructor has looked up every function.
#[inline(always)]
pub fn ready() -> bool {
    !TABLE[Index::mmap as usize].load(Relaxed).is_null()
}

/// Those that have not been found.
fn missing(of: Range<usize>) -> impl Iterator<Item = usize> {
    of.filter(|index| TABLE[*index].load(Relaxed).is_null())
}

/// Finds every function that is there. Only the constructor calls this.
pub fn look_up_all() {
    const SINGLE: &CStr = c"__libc_single_threaded";
    const HASH: u32 = symbols::hash(SINGLE);
    let mut words = Seen::new();
    for library in symbols::behind() {
        let is_glibc = library.is_of_the_c_library();
        let look = |index: usize, name: usize| {
            if let Some(found) = library.find(NAMES[name], HASHES[name])
                && (is_glibc || library.may_be(LEVELS[index]))
            {
                TABLE[index].store(found, Relaxed);
            }
        };
        // In the C library all names of a function are one, and some are not to be found.
        let others = || missing(FIRSTS..NAMES.len()).map(|index| (index, FIRST[index - FIRSTS] as usize));
        for (index, first) in others() {
            if !is_glibc {
                look(index, index);
            } else if !TABLE[first].load(Relaxed).is_null() {
                look(index, first);
            }
        }
        missing(0..FIRSTS).for_each(|index| look(index, index));
        if is_glibc {
            others().for_each(|(index, first)| TABLE[index].store(TABLE[first].load(Relaxed), Relaxed));
        }
        words.look_into(&library);
        if is_glibc && let Some(found) = library.find(SINGLE, HASH) {
            HOT.single_threaded.store(found.cast(), Relaxed);
        }
    }
    words.end();
}

reals! {
    fn open, open64, __open, __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int = -1;
    fn openat, openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = -1;
    fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int = -1;
    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int = -1;
    fn __openat_2, __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int = -1;
    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int = -1;
    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int = -1;
    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = -1;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int = -1;
    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int = -1;
    fn close, __close(fd: c_int) -> c_int = -1;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = -1;
    fn closefrom(first: c_int) -> () = ();
    fn closedir(directory: *mut c_void) -> c_int = -1;
    fn dirfd(directory: *mut c_void) -> c_int = -1;
    fn dup(fd: c_int) -> c_int = -1;
    fn dup2, __dup2(fd: c_int, to: c_int) -> c_int = -1;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = -1;
    fn fcntl, fcntl64, __fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int = -1;
    fn fstat, fstat64(fd: c_int, stat: *mut c_void) -> c_int = -1;
    fn __fxstat, __fxstat64(version: c_int, fd: c_int, stat: *mut c_void) -> c_int = -1;
    fn stat(path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn stat64(path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn lstat(path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn lstat64(path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn fstatat, fstatat64(directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int) -> c_int = -1;
    fn statx(
        directory: c_int, path: *const c_char, flags: c_int, wanted: c_uint, found: *mut c_void,
    ) -> c_int = -1;
    fn __xstat, __xstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn __lxstat, __lxstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int = -1;
    fn __fxstatat, __fxstatat64(
        version: c_int, directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int,
    ) -> c_int = -1;
    fn readdir, readdir64(folder: *mut c_void) -> *mut c_void = core::ptr::null_mut();
    fn ioctl(fd: c_int, request: libc::c_ulong, argument: *mut c_void) -> c_int = -1;
    fn lseek, lseek64, __lseek, llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t = -1;
    fn write, __write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t = -1;
    fn pwrite, pwrite64, __pwrite64(fd: c_int, data: *const c_void, length: size_t, offset: off_t) -> ssize_t = -1;
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = -1;
    fn pwritev, pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = -1;
    fn pwritev2, pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = -1;
    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint
    ) -> ssize_t = -1;
    fn sendfile, sendfile64(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t = -1;
    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint
    ) -> ssize_t = -1;
    fn sendmsg(fd: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t = -1;
    fn truncate, truncate64(path: *const c_char, length: off_t) -> c_int = -1;
    fn ftruncate, ftruncate64(fd: c_int, length: off_t) -> c_int = -1;
    fn fallocate, fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int = -1;
    fn posix_fallocate, posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int = libc::ENOSYS;
    fn chdir(path: *const c_char) -> c_int = -1;
    fn fchdir(fd: c_int) -> c_int = -1;
    fn unlink(path: *const c_char) -> c_int = -1;
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int = -1;
    fn remove(path: *const c_char) -> c_int = -1;
    fn rmdir(path: *const c_char) -> c_int = -1;
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int = -1;
    fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int = -1;
    fn symlink(to: *const c_char, path: *const c_char) -> c_int = -1;
    fn symlinkat(to: *const c_char, directory: c_int, path: *const c_char) -> c_int = -1;
    fn link(from: *const c_char, path: *const c_char) -> c_int = -1;
    fn linkat(
        from_directory: c_int, from: *const c_char, directory: c_int, path: *const c_char, flags: c_int
    ) -> c_int = -1;
    fn rename(from: *const c_char, to: *const c_char) -> c_int = -1;
    fn renameat(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char
    ) -> c_int = -1;
    fn renameat2(
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint
    ) -> c_int = -1;

    fn prctl(option: c_int, a: c_long, b: c_long, c: c_long, d: c_long) -> c_int = -1;
    fn tee(from: c_int, to: c_int, length: size_t, flags: c_uint) -> ssize_t = -1;
    fn vmsplice(fd: c_int, parts: *const iovec, count: size_t, flags: c_uint) -> ssize_t = -1;
    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long = -1;
    fn aio_write, aio_write64(block: *mut libc::aiocb) -> c_int = -1;
    fn aio_fsync, aio_fsync64(operation: c_int, block: *mut libc::aiocb) -> c_int = -1;
    fn lio_listio, lio_listio64(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int = -1;
    fn io_submit(
        context: *mut c_void, count: c_long, blocks: *const *const c_void
    ) -> c_int = -libc::ENOSYS;
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int = -1;
    fn login_tty(fd: c_int) -> c_int = -1;
    fn forkpty(
        main: *mut c_int, name: *mut c_char, attributes: *const c_void, size: *const c_void
    ) -> libc::pid_t = -1;

    fn dlopen() -> () = ();
    fn dlmopen() -> () = ();
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void = core::ptr::null_mut();

    fn mmap, mmap64(
        at: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void = libc::MAP_FAILED;
    fn munmap(at: *mut c_void, length: size_t) -> c_int = -1;
    fn mlockall(flags: c_int) -> c_int = -1;
    fn mprotect(at: *mut c_void, length: size_t, protection: c_int) -> c_int = -1;
    fn pkey_mprotect(at: *mut c_void, length: size_t, protection: c_int, key: c_int) -> c_int = -1;
    fn mremap(
        at: *mut c_void, length: size_t, wanted: size_t, flags: c_int, place: *mut c_void
    ) -> *mut c_void = libc::MAP_FAILED;

    fn read, __read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t = -1;
    fn __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t = -1;
    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = -1;
    fn pread, pread64, __pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t = -1;
    fn __pread_chk, __pread64_chk(
        fd: c_int, data: *mut c_void, length: size_t, offset: off_t, room: size_t
    ) -> ssize_t = -1;
    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t = -1;
    fn preadv2, preadv64v2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = -1;
    fn fread, _IO_fread(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t = 0;
    fn fread_unlocked(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t = 0;
    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t = 0;
    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t = 0;

    fn fgetc(stream: *mut FILE) -> c_int = libc::EOF;
    fn getc, _IO_getc(stream: *mut FILE) -> c_int = libc::EOF;
    fn fgetc_unlocked(stream: *mut FILE) -> c_int = libc::EOF;
    fn getc_unlocked(stream: *mut FILE) -> c_int = libc::EOF;
    fn getchar() -> c_int = libc::EOF;
    fn getchar_unlocked() -> c_int = libc::EOF;
    fn getw(stream: *mut FILE) -> c_int = libc::EOF;
    fn __uflow(stream: *mut FILE) -> c_int = libc::EOF;
    fn __underflow(stream: *mut FILE) -> c_int = libc::EOF;
    fn fgets, _IO_fgets(text: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char = core::ptr::null_mut();
    fn fgets_unlocked(text: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char = core::ptr::null_mut();
    fn __fgets_chk(
        text: *mut c_char, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut c_char = core::ptr::null_mut();
    fn __fgets_unlocked_chk(
        text: *mut c_char, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut c_char = core::ptr::null_mut();
    fn getline(place: *mut *mut c_char, size: *mut size_t, stream: *mut FILE) -> ssize_t = -1;
    fn getdelim, __getdelim(place: *mut *mut c_char, size: *mut size_t, end: c_int, stream: *mut FILE) -> ssize_t = -1;

    fn vfscanf, __vfscanf(stream: *mut FILE, format: *const c_char, args: Arguments) -> c_int = libc::EOF;
    fn __isoc99_vfscanf(stream: *mut FILE, format: *const c_char, args: Arguments) -> c_int = libc::EOF;
    fn __isoc23_vfscanf(stream: *mut FILE, format: *const c_char, args: Arguments) -> c_int = libc::EOF;
    fn vfwscanf(stream: *mut FILE, format: *const wchar_t, args: Arguments) -> c_int = libc::EOF;
    fn __isoc99_vfwscanf(stream: *mut FILE, format: *const wchar_t, args: Arguments) -> c_int = libc::EOF;
    fn __isoc23_vfwscanf(stream: *mut FILE, format: *const wchar_t, args: Arguments) -> c_int = libc::EOF;
    fn fgetwc(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn getwc(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn fgetwc_unlocked(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn getwc_unlocked(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn __wuflow(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn __wunderflow(stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn getwchar() -> c_uint = c_uint::MAX;
    fn getwchar_unlocked() -> c_uint = c_uint::MAX;
    fn fgetws(text: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t = core::ptr::null_mut();
    fn fgetws_unlocked(text: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t = core::ptr::null_mut();
    fn __fgetws_chk(
        text: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut wchar_t = core::ptr::null_mut();
    fn __fgetws_unlocked_chk(
        text: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE
    ) -> *mut wchar_t = core::ptr::null_mut();

    fn exit(status: c_int) -> () = ();
    fn error() -> () = ();
    fn error_at_line() -> () = ();
    fn getopt(count: c_int, arguments: Strings, options: *const c_char) -> c_int = -1;
    fn __posix_getopt(count: c_int, arguments: Strings, options: *const c_char) -> c_int = -1;
    fn getopt_long(
        count: c_int, arguments: Strings, options: *const c_char, long: *const c_void, at: *mut c_int
    ) -> c_int = -1;
    fn getopt_long_only(
        count: c_int, arguments: Strings, options: *const c_char, long: *const c_void, at: *mut c_int
    ) -> c_int = -1;
    fn vwarn(format: *const c_char, list: Arguments) -> () = ();
    fn vwarnx(format: *const c_char, list: Arguments) -> () = ();
    fn psignal(number: c_int, text: *const c_char) -> () = ();
    fn psiginfo(info: *const c_void, text: *const c_char) -> () = ();
    fn malloc_stats() -> () = ();
    fn malloc_info(options: c_int, stream: *mut FILE) -> c_int = -1;
    fn putpwent(entry: *const c_void, stream: *mut FILE) -> c_int = -1;
    fn putspent(entry: *const c_void, stream: *mut FILE) -> c_int = -1;
    fn putgrent(entry: *const c_void, stream: *mut FILE) -> c_int = -1;
    fn putsgent(entry: *const c_void, stream: *mut FILE) -> c_int = -1;
    fn addmntent(stream: *mut FILE, entry: *const c_void) -> c_int = 1;
    fn herror(text: *const c_char) -> () = ();
    fn backtrace_symbols_fd(list: *const *mut c_void, count: c_int, fd: c_int) -> () = ();
    fn sem_open(
        name: *const c_char, flags: c_int, mode: c_uint, value: c_uint
    ) -> *mut c_void = core::ptr::null_mut();
    fn eventfd_write(fd: c_int, value: u64) -> c_int = -1;
    fn __assert_fail(
        assertion: *const c_char, file: *const c_char, line: c_uint, function: *const c_char
    ) -> () = ();
    fn __assert_perror_fail(
        number: c_int, file: *const c_char, line: c_uint, function: *const c_char
    ) -> () = ();
    fn __stack_chk_fail() -> () = ();

    fn fsync(fd: c_int) -> c_int = -1;
    fn fdatasync(fd: c_int) -> c_int = -1;
    fn sync() -> () = ();
    fn syncfs(fd: c_int) -> c_int = -1;
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int = -1;
    fn posix_fadvise, posix_fadvise64(fd: c_int, offset: off_t, length: off_t, advice: c_int) -> c_int = libc::ENOSYS;
    fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t = -1;
    fn flock(fd: c_int, operation: c_int) -> c_int = -1;
    fn lockf, lockf64(fd: c_int, command: c_int, length: off_t) -> c_int = -1;
    fn msync(at: *mut c_void, length: size_t, flags: c_int) -> c_int = -1;

    fn fopen, fopen64, _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE = core::ptr::null_mut();
    fn fdopen, _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = core::ptr::null_mut();
    fn freopen, freopen64(
        path: *const c_char, mode: *const c_char, stream: *mut FILE
    ) -> *mut FILE = core::ptr::null_mut();
    fn tmpfile, tmpfile64() -> *mut FILE = core::ptr::null_mut();
    fn fclose, _IO_fclose(stream: *mut FILE) -> c_int = libc::EOF;
    fn fcloseall() -> c_int = libc::EOF;
    fn endmntent(stream: *mut FILE) -> c_int = 1;
    fn fflush, _IO_fflush(stream: *mut FILE) -> c_int = libc::EOF;
    fn fflush_unlocked(stream: *mut FILE) -> c_int = libc::EOF;
    fn fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int = -1;
    fn fseeko, fseeko64(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int = -1;
    fn rewind(stream: *mut FILE) -> () = ();
    fn fsetpos, fsetpos64, _IO_fsetpos, _IO_fsetpos64(stream: *mut FILE, position: *const libc::fpos_t) -> c_int = -1;
    fn setvbuf, _IO_setvbuf(stream: *mut FILE, buffer: *mut c_char, mode: c_int, size: size_t) -> c_int = -1;
    fn setbuffer, _IO_setbuffer(stream: *mut FILE, buffer: *mut c_char, size: size_t) -> () = ();
    fn fileno(stream: *mut FILE) -> c_int = -1;
    fn __fpending(stream: *mut FILE) -> size_t = 0;
    fn __fbufsize(stream: *mut FILE) -> size_t = 0;
    fn __freadable(stream: *mut FILE) -> c_int = 1;
    fn __fwritable(stream: *mut FILE) -> c_int = 0;

    fn fwrite, _IO_fwrite(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t = 0;
    fn fwrite_unlocked(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t = 0;
    fn fputs, _IO_fputs(text: *const c_char, stream: *mut FILE) -> c_int = libc::EOF;
    fn fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int = libc::EOF;
    fn fputc(byte: c_int, stream: *mut FILE) -> c_int = libc::EOF;
    fn fputc_unlocked(byte: c_int, stream: *mut FILE) -> c_int = libc::EOF;
    fn putc, _IO_putc(byte: c_int, stream: *mut FILE) -> c_int = libc::EOF;
    fn putc_unlocked(byte: c_int, stream: *mut FILE) -> c_int = libc::EOF;
    fn putchar(byte: c_int) -> c_int = libc::EOF;
    fn putchar_unlocked(byte: c_int) -> c_int = libc::EOF;
    fn puts, _IO_puts(text: *const c_char) -> c_int = libc::EOF;
    fn putw(word: c_int, stream: *mut FILE) -> c_int = libc::EOF;
    fn __overflow(stream: *mut FILE, byte: c_int) -> c_int = libc::EOF;
    fn perror(text: *const c_char) -> () = ();
    fn strerrordesc_np(number: c_int) -> *const c_char = core::ptr::null();

    fn fputwc(wide: wchar_t, stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn fputwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn putwc(wide: wchar_t, stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn putwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint = c_uint::MAX;
    fn putwchar(wide: wchar_t) -> c_uint = c_uint::MAX;
    fn putwchar_unlocked(wide: wchar_t) -> c_uint = c_uint::MAX;
    fn fputws(text: *const wchar_t, stream: *mut FILE) -> c_int = libc::EOF;
    fn fputws_unlocked(text: *const wchar_t, stream: *mut FILE) -> c_int = libc::EOF;
    fn __woverflow(stream: *mut FILE, wide: c_uint) -> c_uint = c_uint::MAX;

    fn vfprintf, _IO_vfprintf(stream: *mut FILE, format: *const c_char, args: Arguments) -> c_int = -1;
    fn vdprintf(fd: c_int, format: *const c_char, args: Arguments) -> c_int = -1;
    fn vfwprintf(stream: *mut FILE, format: *const wchar_t, args: Arguments) -> c_int = -1;
    fn __vfprintf_chk(stream: *mut FILE, flag: c_int, format: *const c_char, args: Arguments) -> c_int = -1;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: Arguments) -> c_int = -1;
    fn __vfwprintf_chk(stream: *mut FILE, flag: c_int, format: *const wchar_t, args: Arguments) -> c_int = -1;

    fn fork, __fork() -> libc::pid_t = -1;
    fn _Fork() -> libc::pid_t = -1;
    fn posix_spawn(
        pid: *mut libc::pid_t, path: *const c_char, actions: Attributes, attributes: Attributes,
        argv: Strings, envp: Strings
    ) -> c_int = libc::ENOSYS;
    fn posix_spawnp(
        pid: *mut libc::pid_t, file: *const c_char, actions: Attributes, attributes: Attributes,
        argv: Strings, envp: Strings
    ) -> c_int = libc::ENOSYS;
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int = -1;
    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int = -1;
    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int = -1;
    fn execveat(
        directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int
    ) -> c_int = -1;
    fn system(command: *const c_char) -> c_int = -1;
    fn popen, _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE = core::ptr::null_mut();
    fn pclose(stream: *mut FILE) -> c_int = -1;
    fn daemon(no_chdir: c_int, no_close: c_int) -> c_int = -1;
    fn _exit, _Exit(status: c_int) -> () = ();
    fn abort() -> () = ();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_as_dlsym_finds_them() {
        let find = |name| symbols::find(name, symbols::hash(name), Level::Any);
        for name in NAMES {
            // SAFETY: the names are constants that end with NUL; RTLD_NEXT needs no handle.
            let wanted = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            assert_eq!(find(name), wanted, "{name:?}");
            // Of libaio, for programs that are linked already, or of a later C library.
            let is_rare =
                [c"io_submit", c"llseek"].contains(name) || name.to_bytes().starts_with(b"__isoc23");
            assert!(is_rare || !wanted.is_null(), "{name:?}");
        }
        assert!(find(c"no such function").is_null());
        assert_eq!(look_up(Index::llseek as usize), find(c"lseek"));
        // One that chooses among several, by the processor.
        // SAFETY: as above.
        assert_eq!(find(c"memcpy"), unsafe { libc::dlsym(libc::RTLD_NEXT, c"memcpy".as_ptr()) });
        assert_eq!(symbols::find(c"write", symbols::hash(c"write"), Level::Own), find(c"write"));
    }
}
