//! Raw system calls, for the tracer's own use only. All go through the [`gate`](crate::base::gate), which is
//! closed where the program may be under a filter: they fail then.
//!
//! The law of this module: nothing here goes through a symbol that another library could interpose, sets
//! `errno`, or is a cancellation point. The program's own calls never come this way. A path may be any
//! address: only the kernel follows it, and answers EFAULT where there is nothing.

pub use crate::base::files::{close, decimal, is_refused, open_to_read, read, read_file, readlink};
pub use crate::base::gate::call;
pub use crate::base::time::{coarse_time, nanoseconds};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;

/// What statfs calls overlayfs.
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

/// True if the file of a descriptor lies on an overlay.
#[inline(never)]
pub fn is_on_overlay(fd: c_int) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a valid place for the result.
    let done = unsafe { call(libc::SYS_fstatfs, [fd as usize, found.as_mut_ptr() as usize]) };
    // SAFETY: all zero bytes are a valid `statfs`, and the kernel has filled it in.
    done == 0 && unsafe { found.assume_init_ref() }.f_type as u64 == OVERLAYFS_SUPER_MAGIC
}

/// True if the real user may use a file in these ways; of a file on a mount without execution nobody may
/// execute it.
pub fn may_access(path: &CStr, ways: c_int) -> bool {
    // SAFETY: the kernel only reads the path.
    unsafe {
        call(libc::SYS_faccessat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, ways as usize]) == 0
    }
}

/// True if the code of a file can be mapped, as a dynamic linker does it: not on a mount without execution.
#[cold]
#[inline(never)]
pub fn maps_as_code(path: &CStr) -> bool {
    let Some(fd) = open_to_read(libc::AT_FDCWD, path.as_ptr()) else { return false };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing, and goes again.
    let mapped = unsafe {
        let at = call(libc::SYS_mmap, [0, 4096, protection as usize, flags as usize, fd as usize, 0]);
        let mapped = !(-4095..0).contains(&at);
        if mapped {
            call(libc::SYS_munmap, [at as usize, 4096]);
        }
        mapped
    };
    close(fd);
    mapped
}

/// The process id, asked of the kernel, so that a vfork child cannot be taken for its parent.
pub fn getpid() -> u32 {
    // SAFETY: getpid takes no arguments.
    unsafe { call(libc::SYS_getpid, []) as u32 }
}

/// The parent's process id.
pub fn getppid() -> u32 {
    // SAFETY: getppid takes no arguments.
    unsafe { call(libc::SYS_getppid, []) as u32 }
}

/// The thread id.
pub fn gettid() -> u32 {
    // SAFETY: gettid takes no arguments.
    unsafe { call(libc::SYS_gettid, []) as u32 }
}

/// True if the process lets its own user look at its memory.
pub fn is_dumpable() -> bool {
    // SAFETY: the call takes no further arguments.
    unsafe { call(libc::SYS_prctl, [libc::PR_GET_DUMPABLE as usize]) == 1 }
}

/// True if a process has this thread.
#[cold]
pub fn is_thread(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 is none: the kernel only looks.
    let found = unsafe { call(libc::SYS_tgkill, [pid as usize, tid as usize]) };
    found != -(libc::ESRCH as isize)
}

/// True on the stack that the program gave for its signal handlers, or if that cannot be told.
#[cold]
pub fn on_signal_stack() -> bool {
    // SAFETY: all zero bytes are a valid stack_t.
    let mut stack: libc::stack_t = unsafe { core::mem::zeroed() };
    // SAFETY: a valid place for the answer; nothing is changed.
    let asked = unsafe { call(libc::SYS_sigaltstack, [0, &raw mut stack as usize]) };
    asked != 0 || stack.ss_flags & libc::SS_ONSTACK != 0
}

/// The real user id.
pub fn getuid() -> u32 {
    // SAFETY: getuid takes no arguments.
    unsafe { call(libc::SYS_getuid, []) as u32 }
}

/// The effective user id.
pub fn geteuid() -> u32 {
    // SAFETY: geteuid takes no arguments.
    unsafe { call(libc::SYS_geteuid, []) as u32 }
}

/// Where a descriptor stands in its file, or None where that makes no sense (a pipe).
pub fn position(fd: c_int) -> Option<u64> {
    // SAFETY: lseek takes numbers only and by 0 from the current position moves nothing.
    let at = unsafe { call(libc::SYS_lseek, [fd as usize, 0, libc::SEEK_CUR as usize]) };
    u64::try_from(at).ok()
}

/// fcntl with a number for an argument.
pub fn fcntl(fd: c_int, command: c_int, argument: usize) -> isize {
    // SAFETY: only commands whose argument is a number are used in this crate.
    unsafe { call(libc::SYS_fcntl, [fd as usize, command as usize, argument]) }
}

/// What the kernel tells of a file, as far as it is used: `libc::statx` is large, and none of it stays on the
/// stack of a caller.
#[derive(Clone, Copy, Default)]
pub struct Stat {
    pub st_dev: libc::dev_t,
    /// Inode number.
    pub st_ino: libc::ino_t,
    /// Length, in bytes.
    pub st_size: libc::off_t,
    /// Preferred size of a write, in bytes.
    pub st_blksize: u32,
    /// Names.
    pub st_nlink: u32,
    /// Kind and permissions.
    pub st_mode: libc::mode_t,
    /// Number of the mount; 0 where the kernel does not tell.
    pub mount: u32,
    /// Time of birth, in s and ns; zeros where the filesystem has none.
    pub born: (i64, u32),
}

pub fn fstat(fd: c_int) -> Option<Stat> {
    stat_with(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

/// fstatat of a path given by the program; symbolic links are followed if `follow`.
pub fn stat_path(directory: c_int, path: *const c_char, follow: bool) -> Option<Stat> {
    stat_with(directory, path, if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW })
}

fn stat_with(directory: c_int, path: *const c_char, flags: c_int) -> Option<Stat> {
    match statx(directory, path, flags) {
        Ok(stat) => Some(stat),
        // An old kernel, or a filter.
        Err(errno) if errno == -(libc::ENOSYS as isize) || errno == -(libc::EPERM as isize) => {
            stat(directory, path, flags)
        }
        Err(_) => None,
    }
}

/// Device and inode number of what a descriptor leads to.
pub fn identity(fd: c_int) -> Option<(u64, u64)> {
    fstat_for(fd, |found| (found.st_dev, found.st_ino))
}

/// What is asked of a plain fstat. Never inlined, so that the kernel's larger answer is off the caller's
/// stack.
#[inline(never)]
pub fn fstat_for<T>(fd: c_int, wanted: impl FnOnce(&libc::stat) -> T) -> Option<T> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a valid place for the result.
    let done = unsafe { call(libc::SYS_fstat, [fd as usize, found.as_mut_ptr() as usize]) };
    // SAFETY: the kernel has filled in all of it (`cp_new_stat`).
    (done == 0).then(|| unsafe { found.assume_init_ref() }).map(wanted)
}

#[inline(never)]
fn statx(directory: c_int, path: *const c_char, flags: c_int) -> Result<Stat, isize> {
    // Not the times of changes: asking for them makes the kernel take a finer one at the next change.
    const WANTED: libc::c_uint = libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_NLINK
        | libc::STATX_INO
        | libc::STATX_SIZE
        | libc::STATX_BTIME
        | libc::STATX_MNT_ID;
    let mut found = MaybeUninit::<libc::statx>::uninit();
    // SAFETY: the kernel checks `path` itself and answers EFAULT for a bad one; a valid place for the result.
    let done = unsafe {
        let place = found.as_mut_ptr() as usize;
        call(libc::SYS_statx, [directory as usize, path as usize, flags as usize, WANTED as usize, place])
    };
    if done != 0 {
        return Err(done);
    }
    // SAFETY: the kernel has filled in all of it (`cp_statx`).
    let found = unsafe { found.assume_init_ref() };
    let born = found.stx_btime;
    Ok(Stat {
        st_dev: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        st_ino: found.stx_ino,
        st_size: found.stx_size as libc::off_t,
        st_blksize: found.stx_blksize,
        st_nlink: found.stx_nlink,
        st_mode: found.stx_mode.into(),
        born: if found.stx_mask & libc::STATX_BTIME != 0 { (born.tv_sec, born.tv_nsec) } else { (0, 0) },
        mount: if found.stx_mask & libc::STATX_MNT_ID != 0 { found.stx_mnt_id as u32 } else { 0 },
    })
}

/// The status of a file without statx: its birth and its mount are not known.
#[cold]
fn stat(directory: c_int, path: *const c_char, flags: c_int) -> Option<Stat> {
    stat_for(directory, path, flags, |found| Stat {
        st_dev: found.st_dev,
        st_ino: found.st_ino,
        st_size: found.st_size,
        st_blksize: found.st_blksize as u32,
        st_nlink: found.st_nlink as u32,
        st_mode: found.st_mode,
        ..Stat::default()
    })
}

/// What is asked of a plain fstatat, as [`fstat_for`].
#[inline(never)]
pub fn stat_for<T>(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    wanted: impl FnOnce(&libc::stat) -> T,
) -> Option<T> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    let place = found.as_mut_ptr() as usize;
    // SAFETY: the kernel checks `path` itself; a valid place for the result.
    let done =
        unsafe { call(libc::SYS_newfstatat, [directory as usize, path as usize, place, flags as usize]) };
    // SAFETY: all zero bytes are a valid `stat`, and the kernel has filled it in.
    (done == 0).then(|| unsafe { found.assume_init_ref() }).map(wanted)
}

/// The working directory into `out`; its length without the NUL, or 0.
pub fn getcwd(out: &mut [u8]) -> usize {
    // SAFETY: `out` is a valid place of the length given.
    let length = unsafe { call(libc::SYS_getcwd, [out.as_mut_ptr() as usize, out.len()]) };
    usize::try_from(length).unwrap_or(0).saturating_sub(1)
}

/// An anonymous private mapping of `length` bytes, all zero, or null.
pub fn map(length: usize) -> *mut c_void {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice disturbs nothing.
    let at = unsafe { call(libc::SYS_mmap, [0, length, protection as usize, flags as usize, usize::MAX]) };
    if (-4095..0).contains(&at) { core::ptr::null_mut() } else { at as *mut c_void }
}

/// Undoes [`map`].
///
/// # Safety
/// `at` must come from [`map`] with this length, and nothing may refer to it any more.
pub unsafe fn unmap(at: *mut c_void, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { call(libc::SYS_munmap, [at as usize, length]) };
}

/// The limits on a resource, and then, if they are given, others.
pub fn limits(resource: libc::__rlimit_resource_t, new: Option<&libc::rlimit>) -> Option<libc::rlimit> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(0, |new| core::ptr::from_ref(new) as usize);
    // SAFETY: a valid place for the result; the new limits are none or valid.
    let done = unsafe { call(libc::SYS_prlimit64, [0, resource as usize, new, &raw mut limits as usize]) };
    (done == 0).then_some(limits)
}

/// The soft limit on a resource.
pub fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    limits(resource, None).map_or(0, |limits| limits.rlim_cur)
}

/// True if there is one.
pub fn limited(resource: libc::__rlimit_resource_t) -> bool {
    limit(resource) != libc::RLIM_INFINITY
}

/// Length of a page of this kernel, in bytes: 4 KiB; of AArch64 also 16 or 64.
pub fn page() -> usize {
    // SAFETY: it reads what the kernel gave the process at its start.
    (unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize).max(4096)
}

/// The whole pages in a range of addresses, from the first up to the end of the last.
fn whole_pages(at: usize, length: usize, page: usize) -> (usize, usize) {
    (at.next_multiple_of(page), (at + length) & !(page - 1))
}

/// Lets the kernel take back whole pages of a mapping; what was there reads as zero.
///
/// # Safety
/// The range must lie in a mapping from [`map`], and nothing in it may be needed any more.
pub unsafe fn give_back(at: *mut c_void, length: usize) {
    let (first, end) = whole_pages(at as usize, length, page());
    if first < end {
        // SAFETY: the caller's promise; only whole pages inside the range are touched.
        unsafe { call(libc::SYS_madvise, [first, end - first, libc::MADV_DONTNEED as usize]) };
    }
}

/// Waits up to `milliseconds` for `events` on one descriptor; true if something came.
pub fn poll(fd: c_int, events: libc::c_short, milliseconds: u64) -> bool {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let mut timeout = libc::timespec {
        tv_sec: (milliseconds / 1000) as libc::time_t,
        tv_nsec: (milliseconds % 1000 * 1_000_000) as libc::c_long,
    };
    let timeout = &raw mut timeout as usize;
    // SAFETY: one valid pollfd, a valid timeout, no signal mask.
    unsafe { call(libc::SYS_ppoll, [&raw mut entry as usize, 1, timeout, 0, 8]) > 0 }
}

/// Entries of a directory (getdents64) into `out`; their length, 0 at the end and on any failure.
pub fn entries(fd: c_int, out: &mut [u8]) -> usize {
    // SAFETY: `out` is a valid place of the length given.
    let length = unsafe { call(libc::SYS_getdents64, [fd as usize, out.as_mut_ptr() as usize, out.len()]) };
    usize::try_from(length).unwrap_or(0)
}

/// pread; the number of bytes, 0 on any failure.
pub fn read_at(fd: c_int, at: u64, out: &mut [u8]) -> usize {
    // SAFETY: `out` is a valid place of the length given.
    let read =
        unsafe { call(libc::SYS_pread64, [fd as usize, out.as_mut_ptr() as usize, out.len(), at as usize]) };
    usize::try_from(read).unwrap_or(0)
}

/// Calls `take` with each line of a file, as far as it fits, until it gives none; None then, and if the file
/// cannot be read.
#[cold]
pub fn each_line(path: &CStr, mut take: impl FnMut(&[u8]) -> Option<()>) -> Option<()> {
    // Short, because it lies on the stack of the program; the kernel keeps what a read leaves over.
    let mut text = [0u8; 256];
    let fd = open_to_read(libc::AT_FDCWD, path.as_ptr())?;
    let (mut kept, mut beheaded, mut goes_on) = (0, false, Some(()));
    while let Some(()) = goes_on
        && let more @ 1.. = read(fd, &mut text[kept..])
    {
        let end = kept + more;
        let mut from = 0;
        while let Some(line) = text[from..end].iter().position(|byte| *byte == b'\n') {
            if !core::mem::take(&mut beheaded) && goes_on.is_some() {
                goes_on = take(&text[from..from + line]);
            }
            from += line + 1;
        }
        if from == 0 && end == text.len() {
            // A long name: all that matters of its line is at the front.
            if !core::mem::replace(&mut beheaded, true) && goes_on.is_some() {
                goes_on = take(&text);
            }
            from = end;
        }
        kept = end - from;
        text.copy_within(from..end, 0);
    }
    close(fd);
    goes_on
}

/// Calls `take` with the first address of each mapping of this process and no bytes, then with that and its
/// dirty bytes of two kinds, until it gives none; None then, and if /proc/self/smaps cannot be read.
pub fn each_dirty(mut take: impl FnMut(usize, u64) -> Option<()>) -> Option<()> {
    let mut start = 0;
    each_line(c"/proc/self/smaps", |line| match smaps_line(line, &mut start) {
        Some(bytes) => take(start, bytes),
        None => Some(()),
    })
}

/// Dirty bytes that a line of smaps tells of the mapping at `start`; none if another one begins.
fn smaps_line(line: &[u8], start: &mut usize) -> Option<u64> {
    let dirty = [&b"Shared_Dirty:"[..], b"Private_Dirty:"].iter().find_map(|name| line.strip_prefix(*name));
    if let Some(rest) = dirty {
        return rest.trim_ascii().strip_suffix(b" kB").and_then(decimal).map(|figure| figure * 1024);
    }
    let dash = line.iter().position(|byte| *byte == b'-')?;
    *start = hexadecimal(&line[..dash])?;
    Some(0)
}

/// A hexadecimal number, and nothing else.
pub fn hexadecimal(text: &[u8]) -> Option<usize> {
    if text.is_empty() || text.len() > 16 {
        return None;
    }
    text.iter().try_fold(0usize, |sum, &byte| {
        let digit = (byte as char).to_digit(16)?;
        Some(sum << 4 | digit as usize)
    })
}

/// Writes a decimal number into `out` and returns its length; 0 if it does not fit.
pub fn put_decimal(value: u64, out: &mut [u8]) -> usize {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let text = &digits[at..];
    match out.get_mut(..text.len()) {
        Some(place) => {
            place.copy_from_slice(text);
            text.len()
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_way_there_and_back() {
        for value in [0, 7, 10, 4096, u64::MAX] {
            let mut out = [0u8; 20];
            let length = put_decimal(value, &mut out);
            assert_eq!(decimal(&out[..length]), Some(value));
        }
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"12x"), None);
        assert_eq!(decimal(b"18446744073709551616"), None);
    }

    /// What lies beside the range stays, also on pages of 16 and 64 KiB: the kernel rounds a length up.
    #[test]
    fn whole_pages_are_given_back() {
        let of = |at, length, page| whole_pages(at, length, page);
        assert_eq!(of(0x1001, 0x3000, 4096), (0x2000, 0x4000));
        assert_eq!(of(0x8000, 0x9000, 0x4000), (0x8000, 0x10000));
        let (first, end) = of(0x1000, 0x10000, 0x10000);
        assert!(first >= end, "less than a page");
        assert!(page().is_power_of_two() && page() >= 4096);
    }

    #[test]
    fn smaps_is_understood() {
        let (mut start, mut sum) = (0, 0);
        for line in [
            &b"00001000-00003000 rw-s 00000000 fe:00 1 /f"[..],
            b"Shared_Dirty:          8 kB",
            b"Private_Dirty:         4 kB",
            b"00003000-00004000 rw-s 00000000 fe:00 1 /f",
            b"Private_Dirty:       100 kB",
        ] {
            let bytes = smaps_line(line, &mut start);
            sum += if start == 0x1000 { bytes.unwrap_or(0) } else { 0 };
        }
        assert_eq!(sum, 12 << 10);
        assert!(dirty_at(0..usize::MAX) > 0);
        // It ends when it is told to.
        let mut told = 0;
        let take = |_, _| {
            told += 1;
            (told < 3).then_some(())
        };
        assert_eq!((each_dirty(take), told), (None, 3));
    }

    /// Dirty bytes of the mappings that begin there.
    fn dirty_at(range: core::ops::Range<usize>) -> u64 {
        let mut sum = 0;
        each_dirty(|start, bytes| {
            sum += if range.contains(&start) { bytes } else { 0 };
            Some(())
        });
        sum
    }

    /// The line that tells a mapping's addresses may be longer than what is read at a time.
    #[test]
    fn smaps_with_long_names_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("f".repeat(200)).join("g".repeat(200));
        std::fs::create_dir_all(&folder).unwrap();
        let file = std::fs::File::create_new(folder.join("h".repeat(200))).unwrap();
        file.set_len(16384).unwrap();
        drop(file);
        let path = std::fs::canonicalize(folder.join("h".repeat(200))).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        // SAFETY: a new mapping of a file of the length, which no other code knows.
        unsafe {
            let (both, fd) = (libc::PROT_READ | libc::PROT_WRITE, std::os::fd::AsRawFd::as_raw_fd(&file));
            let at = libc::mmap(core::ptr::null_mut(), 16384, both, libc::MAP_SHARED, fd, 0);
            assert_ne!(at, libc::MAP_FAILED);
            at.cast::<u8>().write(1);
            at.cast::<u8>().add(8192).write(1);
            assert_eq!(dirty_at(at as usize..at as usize + 16384), 8192);
            libc::munmap(at, 16384);
        }
    }

    #[test]
    fn raw_calls_answer() {
        assert_eq!(getpid(), std::process::id());
        assert!(fstat(-1).is_none());
        let page = map(4096);
        assert!(!page.is_null());
        // SAFETY: just mapped with this length, and not in use.
        unsafe { unmap(page, 4096) };
    }
}
