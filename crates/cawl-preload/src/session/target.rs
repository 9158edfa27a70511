//! What a program that is about to be started is: whether its dynamic linker may be told of the tracer, and
//! what must come before it.
//!
//! The law of this module: it only looks, at the program and at the interpreters of scripts, with a handful
//! of short reads. What it reads and does not understand is a program as usual; of what it cannot read
//! nothing is known. The dynamic linker that this process itself was started with is not looked at, as long
//! as the root directory is the same. Programs are opened by `opened` only.

use crate::base::{symbols, sys};
use crate::session::opened::{File, LINK, Opened, link_of, open, open_again};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// Scripts that name scripts: the kernel gives up after this many (exec_binprm, Linux 6.18).
const LONGEST_CHAIN: usize = 5;
/// What is read first, in bytes: of most programs all headers, and the path of the dynamic linker.
const HEAD: usize = 1024;
/// The first line of a script: the kernel reads no more (BINPRM_BUF_SIZE).
const LINE: usize = 256;
/// Longest name of a library.
const NAME: usize = 64;
/// Program headers that are looked at.
const HEADERS: u64 = 32;
/// What is read at a time behind the head, in bytes: 64 entries of a dynamic section.
const PIECE: usize = 1024;

#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;

/// The oldest C library that the tracer can be loaded beside is 2.17.
const OLDEST: u64 = 17;

/// How often a look begins anew because a descriptor that it went through was closed meanwhile: by another
/// thread of the program's, or of ours that looked at the same program.
const LOOKS: u64 = 8;

/// What is to be started.
pub enum Target<'a> {
    /// Nothing special.
    Usual,
    /// It cannot be looked at: it may be any of the others.
    Unseen,
    /// Its dynamic linker is not that of this C library, or of one that is too old: musl's ends a program for
    /// which it cannot load a library, and so does glibc's where a version is missing; a 32-bit one
    /// complains.
    Foreign,
    /// It is a dynamic linker that fits.
    Linker,
    /// Its first library is this runtime of a sanitizer, which insists on being the first.
    Sanitized(&'a [u8]),
}

/// What is to be started, while it is looked at.
enum Kind {
    Usual,
    Unseen,
    /// A descriptor leads to another file now.
    Changed,
    Foreign,
    Linker,
    /// With so many bytes of a name in [`Look::piece`].
    Sanitized(usize),
    /// The dynamic linker whose path is at this place in the file, of this length, is to be looked at.
    Through(u64, usize),
}

impl Kind {
    fn target(self, place: &Look) -> Target<'_> {
        match self {
            Kind::Usual | Kind::Through(..) => Target::Usual,
            Kind::Unseen | Kind::Changed => Target::Unseen,
            Kind::Foreign => Target::Foreign,
            Kind::Linker => Target::Linker,
            Kind::Sanitized(length) => place.piece.get(..length).map_or(Target::Usual, Target::Sanitized),
        }
    }
}

/// True for the runtimes of sanitizers that stand in front of the C library, by gcc's and clang's names. The
/// address sanitizer's ends a program in which it is not the first library.
pub fn is_sanitizer(library: &[u8]) -> bool {
    let name = last(library);
    [&b"libasan.so"[..], b"libtsan.so", b"libhwasan.so", b"liblsan.so", b"libclang_rt."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The program that exec would start; of no path nothing is known.
pub fn at(directory: c_int, path: *const c_char, place: &mut Look) -> Target<'_> {
    if path.is_null() {
        return Target::Usual;
    }
    looked(|place| open(directory, path, &mut place.piece, &mut place.first), place)
}

/// The program that an open descriptor leads to.
pub fn of(fd: c_int, place: &mut Look) -> Target<'_> {
    looked(|place| open_again(fd, &mut place.piece, &mut place.first), place)
}

#[inline(always)]
fn looked(opened: impl Fn(&mut Look) -> Opened, place: &mut Look) -> Target<'_> {
    let mut kind = Kind::Changed;
    place.looks = 0;
    while place.looks < LOOKS && matches!(kind, Kind::Changed) {
        place.looks += 1;
        kind = match opened(place) {
            Opened::Nothing => Kind::Usual,
            Opened::Unseen => Kind::Unseen,
            Opened::Seen => kind_of(place),
        };
    }
    kind.target(place)
}

/// What the opened file is, which is closed then.
#[inline(always)]
fn kind_of(place: &mut Look) -> Kind {
    place.same_root = is_same_root().into();
    let kind = match follow(place) {
        Kind::Through(at, length) => {
            let kind = through(place.last.fd, place, at, length).unwrap_or(Kind::Usual);
            if place.last.is_still() { kind } else { Kind::Changed }
        }
        kind => kind,
    };
    if place.last.fd != place.first.fd {
        place.last.close();
    }
    place.first.close();
    kind
}

/// Room for what is read of a program.
#[repr(C)]
pub struct Look {
    head: [u8; HEAD],
    piece: [u8; PIECE],
    /// For a look at who has a file open.
    room: [u8; 64],
    /// The program; the last interpreter, or the program itself; what is opened beside.
    first: File,
    last: File,
    next: File,
    looks: u64,
    /// Not 0 if the root directory is the one that this process began in. Any bytes must be valid.
    same_root: u64,
}

/// Looks at the first file, and at the interpreters of scripts. Leaves it open, and the last interpreter.
#[inline(never)]
fn follow(place: &mut Look) -> Kind {
    place.last = place.first;
    for _ in 0..=LONGEST_CHAIN {
        let length = sys::read_at(place.last.fd, 0, &mut place.head);
        // Reading through a descriptor of the program's may fail, as with O_DIRECT.
        let is_unseen = length == 0 && place.last.is_held();
        let kind = if is_unseen { Some(Kind::Unseen) } else { classify(place.last.fd, length, place) };
        if !place.last.is_still() {
            return Kind::Changed;
        }
        if let Some(kind) = kind {
            return kind;
        }
        let Some(next) = interpreter(&mut place.head, length.min(LINE)) else { break };
        match open(libc::AT_FDCWD, next.as_ptr(), &mut place.piece, &mut place.next) {
            Opened::Nothing => break,
            Opened::Unseen => return Kind::Unseen,
            Opened::Seen => {}
        }
        if place.last.fd != place.first.fd {
            place.last.close();
        }
        place.last = place.next;
    }
    Kind::Usual
}

/// What a file is; None for a script.
fn classify(fd: c_int, length: usize, place: &mut Look) -> Option<Kind> {
    if place.head[..length].starts_with(b"#!") {
        return None;
    }
    Some(elf(fd, length, place).unwrap_or(Kind::Usual))
}

/// The interpreter in the first line of a script.
fn interpreter(head: &mut [u8; HEAD], length: usize) -> Option<&CStr> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = 2 + head.get(2..length)?.iter().position(|byte| !is_space(byte))?;
    let end = head[start..length].iter().position(|byte| is_space(byte) || *byte == b'\n')?;
    *head.get_mut(start + end)? = 0;
    CStr::from_bytes_until_nul(&head[start..]).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// A part of the file, of which the head has been read up to `head`; shorter at the file's end.
fn part(fd: c_int, head: usize, place: &mut Look, at: u64, length: usize) -> Option<&[u8]> {
    let start = usize::try_from(at).ok()?;
    if start.checked_add(length)? <= head {
        return place.head.get(start..start + length);
    }
    let room = place.piece.get_mut(..length)?;
    let read = sys::read_at(fd, at, room);
    room.get(..read)
}

/// One program header: type, place in the file, address, length in the file.
fn header(fd: c_int, head: usize, place: &mut Look, at: u64) -> Option<(u32, u64, u64, u64)> {
    let bytes = part(fd, head, place, at, 56)?;
    // The upper half of the first word is flags.
    Some((u64_at(bytes, 0)? as u32, u64_at(bytes, 8)?, u64_at(bytes, 16)?, u64_at(bytes, 32)?))
}

/// What an ELF file is (System V ABI, chapters 4 and 5); None if it is none, or makes no sense.
#[inline(never)]
fn elf(fd: c_int, head: usize, place: &mut Look) -> Option<Kind> {
    let first = &place.head[..head];
    if !first.starts_with(b"\x7fELF") {
        return None;
    }
    // Not of 64 bits, or of another processor.
    if first.get(4..6)? != [2, 1] || u16_at(first, 18)? != MACHINE {
        return Some(Kind::Foreign);
    }
    let Some((at, length)) = segment(fd, head, place, PT_INTERP) else {
        // Static; or a dynamic linker that is started itself, which has a name.
        let name = name(fd, head, place, DT_SONAME)?;
        let fits = is_glibc(place.piece.get(..name)?) && is_new(fd, &mut place.piece);
        return Some(if fits { Kind::Linker } else { Kind::Foreign });
    };
    let same_root = place.same_root != 0;
    let linker = part(fd, head, place, at, usize::try_from(length).ok()?)?;
    if same_root && is_own(CStr::from_bytes_until_nul(linker).ok()?) {
        return sanitized(fd, head, place);
    }
    Some(Kind::Through(at, usize::try_from(length).ok()?))
}

/// A program with a runtime of a sanitizer's in front.
fn sanitized(fd: c_int, head: usize, place: &mut Look) -> Option<Kind> {
    let length = name(fd, head, place, DT_NEEDED)?;
    is_sanitizer(place.piece.get(..length)?).then_some(Kind::Sanitized(length))
}

/// What a program is that names another dynamic linker than this process's own, there in its file. Not part
/// of [`follow`], whose frame is gone by now.
#[inline(never)]
fn through(fd: c_int, place: &mut Look, at: u64, length: usize) -> Option<Kind> {
    let head = sys::read_at(fd, 0, &mut place.head);
    let linker = part(fd, head, place, at, length)?;
    let linker = CStr::from_bytes_until_nul(linker).ok()?;
    // Where there is none, nothing will start; of one that is open here the name must do.
    let (named, path) = (is_glibc(last(linker.to_bytes())), linker.as_ptr());
    let fits = match open(libc::AT_FDCWD, path, &mut place.room, &mut place.next) {
        Opened::Seen if !place.next.is_held() => {
            let linker = place.next.fd;
            let fits = is_glibc_inside(linker, place) && is_new(linker, &mut place.piece);
            sys::close(linker);
            fits
        }
        _ => named,
    };
    if !fits {
        return Some(Kind::Foreign);
    }
    sys::read_at(fd, 0, &mut place.head);
    sanitized(fd, head, place)
}

/// Place in the file and length of the first segment of a type.
fn segment(fd: c_int, head: usize, place: &mut Look, wanted: u32) -> Option<(u64, u64)> {
    let (headers, count) = headers(place)?;
    for index in 0..count {
        let (kind, at, _, length) = header(fd, head, place, headers.checked_add(index * 56)?)?;
        if kind == wanted {
            return Some((at, length));
        }
    }
    None
}

/// Where the program headers are, and how many are looked at.
fn headers(place: &Look) -> Option<(u64, u64)> {
    Some((u64_at(&place.head, 32)?, u64::from(u16_at(&place.head, 56)?).min(HEADERS)))
}

/// Puts the first name of this kind in a file's dynamic section into [`Look::piece`]; its length.
#[inline(never)]
fn name(fd: c_int, head: usize, place: &mut Look, tag: u64) -> Option<usize> {
    let (at, length) = segment(fd, head, place, PT_DYNAMIC)?;
    let (mut first, mut names) = (None, None);
    let section = place.piece.get_mut(..usize::try_from(length).ok()?.min(PIECE))?;
    let read = sys::read_at(fd, at, section);
    for entry in section[..read].chunks_exact(16) {
        let value = u64_at(entry, 8)?;
        match u64_at(entry, 0)? {
            DT_NULL => break,
            one if one == tag && first.is_none() => first = Some(value),
            DT_STRTAB => names = Some(value),
            _ => {}
        }
    }
    let (first, names) = (first?, names?);
    // The address of the names, as a place in the file.
    let (headers, count) = headers(place)?;
    for index in 0..count {
        let (kind, at, address, length) = header(fd, head, place, headers.checked_add(index * 56)?)?;
        if kind == PT_LOAD && (address..address.saturating_add(length)).contains(&names) {
            let name = &mut place.piece[..NAME];
            let read = sys::read_at(fd, at.checked_add(names - address)?.checked_add(first)?, name);
            return name[..read].iter().position(|byte| *byte == 0);
        }
    }
    None
}

/// True for the names of glibc's dynamic linkers.
fn is_glibc(name: &[u8]) -> bool {
    name.starts_with(b"ld-linux") || name.starts_with(b"ld-2.")
}

/// True if the name that a file gives itself (DT_SONAME) is one of glibc's dynamic linkers.
fn is_glibc_inside(fd: c_int, place: &mut Look) -> bool {
    let length = sys::read_at(fd, 0, &mut place.head);
    name(fd, length, place, DT_SONAME).and_then(|name| place.piece.get(..name)).is_some_and(is_glibc)
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// False for a dynamic linker whose file has the name of a version that is too old, as they had before 2.34.
#[inline(never)]
fn is_new(fd: c_int, place: &mut [u8; PIECE]) -> bool {
    let mut link = [0; LINK];
    let length = link_of(fd, &mut link).map_or(0, |()| sys::readlink(&link, place));
    version(last(&place[..length])).is_none_or(|version| version >= OLDEST)
}

/// The version in the name of a dynamic linker: of `ld-2.31.so` 31.
fn version(name: &[u8]) -> Option<u64> {
    sys::decimal(name.strip_prefix(b"ld-2.")?.strip_suffix(b".so")?)
}

/// Device, inode number and mount of the root directory at the start.
static ROOT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The path of the dynamic linker that loaded this process's libraries, the tracer among them; or null.
static LINKER: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Remembers what the process was started with. Constructor only.
pub fn begin() {
    ROOT.iter().zip(root()).for_each(|(figure, value)| figure.store(value, Relaxed));
    LINKER.store(symbols::linker().cast_mut(), Relaxed);
}

fn root() -> [u64; 3] {
    let root = sys::stat_path(libc::AT_FDCWD, c"/".as_ptr(), true).unwrap_or_default();
    [root.st_dev, root.st_ino, u64::from(root.mount)]
}

/// True if the root directory is the one that this process began in.
#[inline(never)]
fn is_same_root() -> bool {
    ROOT.each_ref().map(|figure| figure.load(Relaxed)) == root()
}

/// True for the path of this process's own dynamic linker.
fn is_own(linker: &CStr) -> bool {
    let own = LINKER.load(Relaxed);
    // SAFETY: the dynamic linker's string, which stays.
    !own.is_null() && unsafe { CStr::from_ptr(own) } == linker
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn look_at(path: &Path) -> Target<'static> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let look = || {
            // SAFETY: any bytes are valid.
            let place = Box::leak(Box::new(unsafe { core::mem::zeroed::<Look>() }));
            at(libc::AT_FDCWD, path.as_ptr(), place)
        };
        // Other tests of this process use up its descriptors and locks for a moment.
        let looks = (0..10).map(|_| look());
        let mut last = Target::Unseen;
        for found in looks {
            last = found;
            if !matches!(last, Target::Unseen) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        last
    }

    fn file(dir: &tempfile::TempDir, name: &str, content: &[u8]) -> std::path::PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn this_test_and_scripts_are_as_usual() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        assert!(matches!(look_at(&own), Target::Usual));
        let script = file(&dir, "script", format!("#! {} x\n", own.display()).as_bytes());
        assert!(matches!(look_at(&script), Target::Usual));
        let endless = dir.path().join("endless");
        file(&dir, "endless", format!("#!{}\n", endless.display()).as_bytes());
        assert!(matches!(look_at(&endless), Target::Usual));
        for nothing in [&b""[..], b"#!", b"#!\n", b"#!/nonexistent", b"text", b"\x7fELF"] {
            assert!(matches!(look_at(&file(&dir, "nothing", nothing)), Target::Usual));
        }
    }

    #[test]
    fn another_linker_is_foreign_also_behind_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let at = bytes.windows(9).position(|text| text == b"/ld-linux").unwrap();
        bytes[at..at + 9].copy_from_slice(b"/ld-musl-");
        let program = file(&dir, "program", &bytes);
        assert!(matches!(look_at(&program), Target::Foreign));
        let script = file(&dir, "script", format!("#!{}\n", program.display()).as_bytes());
        assert!(matches!(look_at(&script), Target::Foreign));
        bytes[4] = 1;
        assert!(matches!(look_at(&file(&dir, "narrow", &bytes)), Target::Foreign));
    }

    /// Dynamic linkers elsewhere, as of Nix, others', older ones, and those that are started themselves.
    #[test]
    fn a_dynamic_linker_is_known_by_what_it_calls_itself() {
        let dir = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&exe).unwrap();
        let at = bytes.windows(9).position(|text| text == b"/ld-linux").unwrap();
        let begin = bytes[..at].iter().rposition(|byte| *byte == 0 || *byte == b'\n').unwrap() + 1;
        let length = bytes[begin..].iter().position(|byte| *byte == 0).unwrap();
        let own = Path::new(std::ffi::OsStr::from_bytes(&bytes[begin..begin + length]));
        assert!(matches!(look_at(own), Target::Linker), "{}", own.display());
        let old = dir.path().join("ld-2.12.so");
        std::fs::copy(own, &old).unwrap();
        assert!(matches!(look_at(&old), Target::Foreign));
        // Paths as long as that of the own one.
        let folder = tempfile::Builder::new().prefix("l").rand_bytes(3).tempdir_in("/tmp").unwrap();
        let width = length - folder.path().as_os_str().len() - 1;
        let with = |name: &str, content: &Path| {
            let path = folder.path().join(format!("{name:x<width$}"));
            std::os::unix::fs::symlink(content, &path).unwrap();
            let mut bytes = bytes.clone();
            bytes[begin..begin + length].copy_from_slice(path.as_os_str().as_bytes());
            look_at(&file(&dir, "program", &bytes))
        };
        assert!(matches!(with("a", own), Target::Usual));
        // Other tests have the program itself open, and of what is open the name must do.
        assert!(matches!(with("ld-linux", &file(&dir, "no linker", &bytes)), Target::Foreign));
        assert!(matches!(with("b", &old), Target::Foreign));
    }

    #[test]
    fn damaged_programs_are_no_surprise() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for length in [5, 16, 20, 63, 64, 100, 120, 300, 700, 1024, 4096] {
            look_at(&file(&dir, "cut", &bytes[..length]));
        }
        for at in 16..64 {
            let mut bytes = bytes[..4096].to_vec();
            bytes[at] = 0xFF;
            look_at(&file(&dir, "changed", &bytes));
        }
    }

    #[test]
    fn sanitizers_are_known_by_their_names() {
        assert!(is_sanitizer(b"/usr/lib/libasan.so.8") && !is_sanitizer(b"libc.so.6"));
    }
}
