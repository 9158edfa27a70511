//! Tells, before a program runs, whether a preloaded library can see what it writes, and if not, why.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, OpKind, Register};
use memchr::memmem;
use nix::sys::statvfs::{FsFlags, statvfs};
use object::elf::{DT_NEEDED, DT_SONAME, ELFMAG, FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use rustix::fs::{Dir, readlinkat};

use crate::machine;

/// Scripts that name scripts that name scripts: the kernel stops at about this many.
const LONGEST_CHAIN: usize = 6;

/// What the kernel reads of a script, in bytes (`BINPRM_BUF_SIZE`).
const SCRIPT_HEAD: usize = 256;

/// The oldest glibc that the tracer can be loaded beside is 2.17.
const OLDEST: u32 = 17;

/// What it is whose system calls have other numbers.
const OF_32_BITS: &str = "a 32-bit program";

/// Programs with more bytes are not looked into.
const LARGEST: u64 = 1 << 30;

/// What can be said of a program that was not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// The file that is started, then the interpreters of scripts that are started in its place.
    pub chain: Vec<PathBuf>,
    /// Why nothing of it will be traced; empty if it will be.
    pub obstacles: Vec<String>,
    /// What else to know: parts that will not be seen.
    pub remarks: Vec<String>,
    /// Its dynamic linker would choke on the tracer, or complain: it must not even be named to it.
    pub must_not_preload: bool,
    /// It can run, and no library can be preloaded into it: only probes in the kernel see it.
    pub needs_kernel: bool,
    /// The runtime of a sanitizer that is the program's first library, and must stay so: the address
    /// sanitizer's ends a program in which something comes before it.
    pub sanitizer: Option<String>,
}

impl Verdict {
    /// No library sees it, though it runs.
    fn is_past_libraries(&mut self, why: String) {
        self.obstacles.push(why);
        self.needs_kernel = true;
    }
}

/// The file that a name means, as execvp looks for it: if none can be executed, the first one that is there.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return path.exists().then_some(path);
    }
    let paths = std::env::var_os("PATH")?;
    let places = || std::env::split_paths(&paths).map(|folder| folder.join(name));
    places().find(|path| is_executable(path)).or_else(|| places().find(|path| path.exists()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Looks at a program and at the interpreters it needs.
pub fn program(path: &Path) -> Verdict {
    let mut verdict = Verdict::default();
    let mut next = Some(path.to_owned());
    while let Some(path) = next.take() {
        if verdict.chain.len() == LONGEST_CHAIN {
            verdict.obstacles.push("the scripts name each other as interpreters".to_owned());
            break;
        }
        verdict.chain.push(path.clone());
        next = inspect_file(&path, &mut verdict);
    }
    verdict
}

/// Looks at one file; its interpreter, if it is a script.
fn inspect_file(path: &Path, verdict: &mut Verdict) -> Option<PathBuf> {
    let name = path.display();
    if let Ok(meta) = fs::metadata(path)
        && !meta.is_file()
    {
        let what = if meta.is_dir() { "a folder" } else { "no regular file" };
        verdict.obstacles.push(format!("{name} is {what}, not a program"));
        return None;
    }
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            // Only a binary can be run without being read.
            privileges(path, verdict);
            verdict.remarks.push(format!("{name} cannot be read ({error}), so nothing is known about it"));
            return None;
        }
    };
    if !is_executable(path) {
        verdict.obstacles.push(format!("{name} is not an executable file"));
        return None;
    }
    if bytes.starts_with(&ELFMAG) {
        privileges(path, verdict);
        match Elf::read(&bytes) {
            Some(elf) => elf.judge(path, verdict),
            None => verdict.obstacles.push(format!("{name} is damaged: its ELF headers make no sense")),
        }
        return None;
    }
    // As `load_script` has it (fs/binfmt_script.c, 6.18): blanks and tabs part words, a carriage return is a
    // character like others.
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let head = &bytes[..bytes.len().min(SCRIPT_HEAD)];
    let line = head.strip_prefix(b"#!").and_then(|text| text.split(|byte| *byte == b'\n').next());
    let line = line.unwrap_or_default();
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    let interpreter = words.next();
    if line.len() + 2 == SCRIPT_HEAD && interpreter.is_some_and(|word| line.ends_with(word)) {
        verdict.obstacles.push(format!(
            "{name} names an interpreter beyond the first {SCRIPT_HEAD} bytes, which are all that the kernel reads \
             of its #! line: shorten the interpreter's path"
        ));
        return None;
    }
    let Some(interpreter) = interpreter else {
        verdict.obstacles.push(format!(
            "{name} is neither a binary nor names an interpreter after #!, so only a shell can run it: give \
             the command as sh {name}"
        ));
        return None;
    };
    let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
    let mut missing = (!interpreter.exists()).then(|| interpreter.clone());
    if missing.is_none() && interpreter.file_name() == Some(OsStr::new("env")) {
        // env starts what its first word without = or - names, unless that belongs to an option.
        let has_options = words.clone().next().is_some_and(|word| word.starts_with(b"-"));
        let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).map(OsStr::from_bytes);
        match name.map(|name| (name, find(name))) {
            Some((_, Some(found))) => {
                privileges(&interpreter, verdict);
                verdict.chain.push(interpreter);
                return Some(found);
            }
            Some((name, None)) if !has_options => missing = Some(name.into()),
            _ => {}
        }
    }
    let Some(missing) = missing else { return Some(interpreter) };
    let remedy = match missing.as_os_str().as_bytes().ends_with(b"\r") {
        true => "; the file's lines end in CR LF: make them LF, as by sed -i 's/\\r$//'",
        false => "",
    };
    verdict
        .obstacles
        .push(format!("{name} needs the interpreter {}, which is missing{remedy}", missing.display()));
    None
}

/// What a program's file holds. A traced program may name any file as one that it started.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = machine::open_regular(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if read as u64 > LARGEST {
        return Err(io::Error::other(format!("it has more than {} MiB", LARGEST >> 20)));
    }
    Ok(bytes)
}

/// Programs that run with more rights than their caller take no library from the caller.
fn privileges(path: &Path, verdict: &mut Verdict) {
    if let Some(why) = elevation(path) {
        verdict.is_past_libraries(why);
    }
}

/// The rights that a program gets, in words.
fn elevation(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let name = path.display();
    if may_not_elevate(path) {
        return None;
    }
    // The linker compares real ids with the effective ones that the program gets.
    let (uid, gid) = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    let mut value = [0u8; 64];
    if meta.mode() & 0o4000 != 0 && meta.uid() != uid {
        Some(format!(
            "{name} is setuid to uid {}: the dynamic linker ignores LD_PRELOAD for it (AT_SECURE); run cawl as that user",
            meta.uid()
        ))
    } else if meta.mode() & 0o2000 != 0 && meta.mode() & 0o010 != 0 && meta.gid() != gid {
        Some(format!(
            "{name} is setgid to gid {}: the dynamic linker ignores LD_PRELOAD for it (AT_SECURE)",
            meta.gid()
        ))
    } else if uid != 0 && rustix::fs::getxattr(path, c"security.capability", &mut value).is_ok() {
        Some(format!(
            "{name} has file capabilities: the dynamic linker ignores LD_PRELOAD for it (AT_SECURE)"
        ))
    } else {
        None
    }
}

/// True where programs get no rights that their caller lacks: on a filesystem mounted so, or in a process
/// that has given them up.
fn may_not_elevate(path: &Path) -> bool {
    statvfs(path).is_ok_and(|facts| facts.flags().contains(FsFlags::ST_NOSUID))
        || nix::sys::prctl::get_no_new_privs().unwrap_or(false)
}

/// What matters in an ELF file.
struct Elf {
    foreign: Option<String>,
    interpreter: Option<String>,
    /// What it calls itself, as libraries do.
    name: Option<String>,
    is_go: bool,
    libraries: Vec<String>,
    imports: BTreeSet<String>,
    /// System calls of [`WRITING`] and [`CHANGING`] that its own code makes, past the C library.
    own_calls: BTreeSet<&'static str>,
    /// It gives the number of io_uring's set-up to a function, as to the C library's `syscall()`.
    names_io_uring: bool,
}

impl Elf {
    fn read(bytes: &[u8]) -> Option<Elf> {
        match object::FileKind::parse(bytes).ok()? {
            object::FileKind::Elf64 => Elf::of::<FileHeader64<Endianness>>(bytes, None),
            object::FileKind::Elf32 => {
                Elf::of::<FileHeader32<Endianness>>(bytes, Some(OF_32_BITS.to_owned()))
            }
            _ => None,
        }
    }

    fn of<H: FileHeader<Endian = Endianness>>(bytes: &[u8], foreign: Option<String>) -> Option<Elf> {
        let file = ElfFile::<H>::parse(bytes).ok()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut headers = file.elf_program_headers().iter();
        let interpreter = headers.find_map(|header| header.interpreter(file.endian(), bytes).ok()?.map(text));
        let own = match std::env::consts::ARCH {
            "x86_64" => object::Architecture::X86_64,
            "aarch64" => object::Architecture::Aarch64,
            _ => object::Architecture::Unknown,
        };
        let other = file.architecture();
        let foreign = foreign
            .or_else(|| (other != own).then(|| format!("a program for another processor ({other:?})")));
        let is_go = file
            .sections()
            .any(|section| matches!(section.name(), Ok(".go.buildinfo" | ".note.go.buildid" | ".gopclntab")));
        let table = file.elf_dynamic_table().ok();
        let names = |tag| -> Vec<String> {
            let entries = table.iter().flat_map(|table| table.iter().map(move |entry| (table, entry)));
            let entries = entries.filter(|(_, entry)| entry.tag == tag);
            entries.filter_map(|(table, entry)| table.string(entry).ok().map(text)).collect()
        };
        let imports = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined())
            .filter_map(|symbol| symbol.name_bytes().ok().map(text));
        let code = || file.sections().filter(|section| section.kind() == object::SectionKind::Text);
        let known = foreign.is_none() && other == object::Architecture::X86_64;
        let code: Vec<_> = code().filter(|_| known).filter_map(|section| section.data().ok()).collect();
        Some(Elf {
            foreign,
            interpreter,
            is_go,
            name: names(DT_SONAME).pop(),
            libraries: names(DT_NEEDED),
            imports: imports.collect(),
            own_calls: code.iter().flat_map(|code| own_calls(code)).collect(),
            names_io_uring: code.iter().any(|code| memmem::find(code, &IO_URING_SETUP).is_some()),
        })
    }

    /// Its dynamic linker must not be told of the tracer.
    fn is_foreign(&self, why: String, verdict: &mut Verdict) {
        verdict.is_past_libraries(why);
        verdict.must_not_preload = true;
    }

    fn judge(&self, path: &Path, verdict: &mut Verdict) {
        let name = path.display();
        if let Some(foreign) = &self.foreign {
            let why = format!("{name} is {foreign}: the tracer cannot be loaded into it");
            self.is_foreign(why, verdict);
            // The probes do not know its calls either.
            verdict.needs_kernel &= foreign != OF_32_BITS;
            return;
        }
        if self.is_go {
            let linked = if self.interpreter.is_some() { "dynamically" } else { "statically" };
            verdict.is_past_libraries(format!(
                "{name} is a Go program ({linked} linked): its runtime makes system calls itself, past the C library"
            ));
            return;
        }
        let Some(interpreter) = &self.interpreter else {
            match &self.name {
                None => verdict.is_past_libraries(format!(
                    "{name} is statically linked: no dynamic linker runs that could load the tracer"
                )),
                // The dynamic linker is started itself.
                Some(own) if is_glibc(own) => match too_old(path) {
                    Some(why) => self.is_foreign(format!("{name} {why}"), verdict),
                    None => verdict.remarks.push(format!(
                        "{name} is a dynamic linker: the program that it loads is not looked at"
                    )),
                },
                Some(own) => self.is_foreign(format!("{name} is the library {own}, not a program"), verdict),
            }
            return;
        };
        // What env starts, it starts itself.
        if !verdict.chain.iter().any(|path| path.file_name() == Some(OsStr::new("env"))) {
            verdict.sanitizer = self.libraries.first().filter(|first| is_sanitizer(first)).cloned();
        }
        let linker = Path::new(interpreter);
        let inside = read(linker).ok().and_then(|bytes| Elf::read(&bytes)).map(|linker| linker.name);
        // Where its file tells nothing, its name does.
        let is_glibcs =
            inside.map_or_else(|| is_glibc(interpreter), |name| name.is_some_and(|name| is_glibc(&name)));
        let file = linker.file_name().unwrap_or_default().to_string_lossy();
        if file.starts_with("ld-musl") {
            let why = format!("{name} uses musl ({interpreter}); the tracer is for glibc");
            self.is_foreign(why, verdict);
        } else if !is_glibcs {
            let why = format!("{name} uses the dynamic linker {interpreter}, which is not glibc's");
            self.is_foreign(why, verdict);
        } else if let Some(why) = too_old(linker) {
            self.is_foreign(format!("{name} uses the dynamic linker {interpreter}, which {why}"), verdict);
        }
        if !linker.exists() {
            verdict
                .obstacles
                .push(format!("{name} needs the dynamic linker {interpreter}, which is missing"));
        }
        let library = self.libraries.iter().any(|library| library.starts_with("liburing"))
            || self.imports.iter().any(|import| import.starts_with("io_uring_"));
        let by_itself = self.imports.contains("syscall") && self.names_io_uring
            || self.own_calls.contains("io_uring_enter");
        if library || by_itself {
            let way = if library { "liburing" } else { "by system calls" };
            verdict
                .remarks
                .push(format!("{name} can use io_uring ({way}): what it writes that way is not seen"));
        }
        let own_calls = |of: &[(u32, &str)]| {
            let is_one = |call: &&&str| of.iter().any(|known| known.1 == **call);
            self.own_calls.iter().filter(is_one).copied().collect::<Vec<_>>().join(", ")
        };
        let (writing, changing) = (own_calls(&WRITING), own_calls(&CHANGING));
        if !writing.is_empty() {
            verdict.remarks.push(format!(
                "{name} makes system calls itself, past the C library ({writing}): what it writes that way is not seen"
            ));
        }
        if !changing.is_empty() {
            verdict.remarks.push(format!(
                "{name} changes descriptors by system calls itself, past the C library ({changing}): until that is \
                 noticed, what it then writes may be told of another file; the report says how much"
            ));
        }
    }
}

/// System calls that write, or have others write, with their numbers on x86-64
/// (arch/x86/entry/syscalls/syscall_64.tbl).
const WRITING: [(u32, &str); 16] = [
    (1, "write"),
    (18, "pwrite64"),
    (20, "writev"),
    (40, "sendfile"),
    (74, "fsync"),
    (75, "fdatasync"),
    (76, "truncate"),
    (77, "ftruncate"),
    (209, "io_submit"),
    (275, "splice"),
    (277, "sync_file_range"),
    (285, "fallocate"),
    (296, "pwritev"),
    (326, "copy_file_range"),
    (328, "pwritev2"),
    (426, "io_uring_enter"),
];
/// System calls that change which file a descriptor leads to, or where it stands there.
const CHANGING: [(u32, &str); 10] = [
    (2, "open"),
    (3, "close"),
    (8, "lseek"),
    (32, "dup"),
    (33, "dup2"),
    (257, "openat"),
    (292, "dup3"),
    (436, "close_range"),
    (437, "openat2"),
    (438, "pidfd_getfd"),
];
/// `mov edi, 425`: the first argument is the number of `io_uring_setup`.
const IO_URING_SETUP: [u8; 5] = [0xbf, 0xa9, 0x01, 0x00, 0x00];

/// The system calls of both tables in code for x86-64: a `syscall`, and before it, in one straight line, its
/// number put into eax. Numbers that come from elsewhere are not found.
fn own_calls(code: &[u8]) -> BTreeSet<&'static str> {
    /// Bytes between a number and the call: the moves of six arguments, with room.
    const REACH: usize = 48;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let numbers = memmem::find_iter(code, &SYSCALL)
        .filter_map(|at| (at.saturating_sub(REACH)..at).rev().find_map(|from| number(&code[from..at + 2])));
    let name = |number| WRITING.iter().chain(&CHANGING).find(|call| call.0 == number).map(|call| call.1);
    numbers.filter_map(name).collect()
}

/// The number that the first of these instructions puts into eax, if the last is the `syscall` that gets it.
fn number(line: &[u8]) -> Option<u32> {
    const PUTS: [Code; 3] = [Code::Mov_r32_imm32, Code::Mov_rm32_imm32, Code::Mov_rm64_imm32];
    let mut decoder = Decoder::new(64, line, DecoderOptions::NONE);
    let first = decoder.decode();
    let is_put = PUTS.contains(&first.code()) && first.op0_register().full_register() == Register::RAX;
    if !is_put {
        return None;
    }
    while decoder.can_decode() {
        let next = decoder.decode();
        if next.code() == Code::Syscall {
            return (!decoder.can_decode()).then(|| first.immediate32());
        }
        let goes_on = next.flow_control() == FlowControl::Next;
        let keeps = next.op_count() == 0
            || next.op0_kind() != OpKind::Register
            || next.op0_register().full_register() != Register::RAX;
        if next.is_invalid() || !goes_on || !keeps {
            return None;
        }
    }
    None
}

/// True for the runtimes of sanitizers that stand in front of the C library, by gcc's and clang's names.
pub fn is_sanitizer(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or(library);
    ["libasan.so", "libtsan.so", "libhwasan.so", "liblsan.so", "libclang_rt."]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// True for the names of glibc's dynamic linkers.
fn is_glibc(linker: &str) -> bool {
    let name = linker.rsplit('/').next().unwrap_or(linker);
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}

/// What to say of a dynamic linker of a glibc that is too old, as the name of its file tells, which was of
/// the form `ld-2.12.so` before 2.34.
fn too_old(linker: &Path) -> Option<String> {
    let version = |path: &Path| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("ld-2.")?.strip_suffix(".so")?.parse().ok()
    };
    let version = fs::canonicalize(linker).ok().as_deref().and_then(version).or_else(|| version(linker))?;
    (version < OLDEST).then(|| format!("is of glibc 2.{version}: the tracer is for 2.{OLDEST} and later"))
}

/// True if one of the first `most` descriptors of a running process leads to an io_uring; None if none of
/// them does, and there are more. Asks no filesystem but /proc.
pub fn uses_io_uring(pid: u32, most: usize) -> Option<bool> {
    let Ok(folder) = fs::File::open(format!("/proc/{pid}/fd")) else { return Some(false) };
    let Ok(entries) = folder.try_clone().map(OwnedFd::from) else { return None };
    let Ok(entries) = Dir::new(entries) else { return Some(false) };
    let mut count = 0;
    for entry in entries.flatten() {
        if readlinkat(&folder, entry.file_name(), Vec::new())
            .is_ok_and(|path| path.as_bytes() == IO_URING.as_bytes())
        {
            return Some(true);
        }
        // These two are the folder and the one above it.
        count += usize::from(!entry.file_name().to_bytes().starts_with(b"."));
        if count > most {
            return None;
        }
    }
    Some(false)
}

/// What /proc calls such a descriptor.
pub const IO_URING: &str = "anon_inode:[io_uring]";

#[cfg(test)]
mod tests;
