//! The rules at the top of lib.rs, as far as a machine can check them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    cawl_kit::witness::tree(&root)
        .into_iter()
        .map(|(path, bytes)| (path, String::from_utf8(bytes).expect("text")))
        .collect()
}

/// The part of a file that is not tests.
fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

#[test]
fn nothing_that_allocates_or_panics_is_used() {
    let banned = [
        ".unwrap()",
        ".expect(",
        "panic!",
        "Vec::new",
        "vec!",
        "Box::new",
        "String::from",
        ".to_string()",
        "format!",
        "println!",
        "eprintln!",
        "assert!",
        "thread_local!",
        "std::",
        "Mutex",
        "unreachable!",
    ];
    for (path, text) in sources() {
        for word in banned {
            assert!(!code(&text).contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn files_are_short() {
    for (path, text) in sources() {
        assert!(text.lines().count() <= 600, "{}", path.display());
    }
}

#[test]
fn each_unsafe_block_says_why() {
    for (path, text) in sources().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs")) {
        let lines: Vec<&str> = code(text).lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let block =
                line.contains("unsafe {") && !line.contains("unsafe extern") || line.contains("unsafe impl");
            if !block || line.trim_start().starts_with("//") {
                continue;
            }
            // A comment may be longer than three lines; it must reach to three lines above the block.
            let near = &lines[number.saturating_sub(3)..=number];
            let explained = near.iter().any(|line| line.contains("// SAFETY:"))
                || near.iter().any(|line| line.trim_start().starts_with("//"))
                    && lines[number.saturating_sub(6)..number].iter().any(|line| line.contains("// SAFETY:"));
            assert!(explained, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

/// What the tracer asks of the libraries around it, it would ask in every image: one symbol version that is
/// not there, and no program starts.
#[test]
fn a_c_library_of_2012_is_enough() {
    use object::elf::{DT_NEEDED, DT_RELR, SHN_UNDEF, STB_WEAK};
    use object::read::elf::{ElfFile64, Sym};
    /// All in libc.so.6 of version 2.17, except those of the dynamic linker: `_r_debug`, `__tls_get_addr`.
    const THERE: [&str; 24] = [
        "__cxa_at_quick_exit",
        "__errno_location",
        "__register_atfork",
        "__tls_get_addr",
        "_r_debug",
        "calloc",
        "clock_gettime",
        "dl_iterate_phdr",
        "environ",
        "exit",
        "free",
        "getauxval",
        "getcwd",
        "getenv",
        "malloc",
        "opterr",
        "posix_memalign",
        "readlink",
        "realloc",
        "realpath",
        "stderr",
        "stdin",
        "stdout",
        "strlen",
    ];
    let bytes = std::fs::read(cawl_kit::library()).expect("the library");
    let file = ElfFile64::<object::Endianness>::parse(&*bytes).expect("an ELF file");
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let versions = sections.versions(endian, &*bytes).expect("versions").expect("some");
    let symbols = file.elf_dynamic_symbol_table();
    let mut strong = 0;
    for (index, symbol) in symbols.enumerate().filter(|(_, symbol)| symbol.st_shndx(endian) == SHN_UNDEF) {
        let name = std::str::from_utf8(symbols.symbol_name(endian, symbol).expect("a name")).expect("text");
        if symbol.st_bind() != STB_WEAK && !name.is_empty() {
            assert!(THERE.contains(&name), "{name} may not be in an older C library");
            strong += 1;
        }
        if let Some(version) =
            versions.version(versions.version_index(endian, index).into()).expect("a version")
        {
            let version = std::str::from_utf8(version.name()).expect("text");
            let numbers = version.strip_prefix("GLIBC_2.").unwrap_or_else(|| panic!("{name}: {version}"));
            let number: u32 = numbers.split('.').next().expect("one").parse().expect("a number");
            assert!(number <= 17, "{name}: {version}");
        }
    }
    assert!(strong >= 10, "{strong} symbols");
    let dynamic = sections.dynamic_table(endian, &*bytes).expect("a dynamic section");
    for entry in dynamic.iter() {
        assert_ne!(entry.tag, DT_RELR, "packed relocations need version 2.36");
        if entry.tag == DT_NEEDED {
            // What else is to be loaded costs each traced program its time.
            let name = std::str::from_utf8(dynamic.string(entry).expect("a name")).expect("text");
            assert!(name == "libc.so.6" || name.starts_with("ld-linux"), "{name}");
        }
    }
}

/// Exported is what a hook declares, and nothing else.
#[test]
fn only_hooks_are_exported() {
    if Command::new("nm").arg("--version").output().is_err() {
        eprintln!("SKIPPED: nm is not installed");
        return;
    }
    let out =
        Command::new("nm").args(["-D", "--defined-only"]).arg(cawl_kit::library()).output().expect("nm");
    let exported: BTreeSet<String> = String::from_utf8(out.stdout)
        .expect("text")
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    let libc = Command::new("ldd").arg("/bin/sh").output().expect("ldd");
    let libc = String::from_utf8(libc.stdout).expect("text");
    let libc =
        libc.split_whitespace().find(|word| word.starts_with('/') && word.contains("libc.so")).expect("libc");
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(libc).output().expect("nm");
    let known: BTreeSet<String> = String::from_utf8(out.stdout)
        .expect("text")
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .collect();
    let strange: Vec<_> = exported.difference(&known).collect();
    // The C library of this machine may be older than some, but these are all its own names.
    assert!(strange.iter().all(|name| !name.contains("cawl") && !name.starts_with("rust")), "{strange:?}");
    assert!(strange.len() <= 12, "{strange:?}");
    for name in ["write", "open64", "__fprintf_chk", "printf", "execl", "__overflow", "_exit", "fork"] {
        assert!(exported.contains(name), "{name}");
    }
}

/// One way into the kernel, which is closed under a filter; past it go only calls that the program asked for.
#[test]
fn every_system_call_goes_through_the_gate() {
    for (path, text) in sources().iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "rs")) {
        let is = |name: &str| path.ends_with(name);
        let enters =
            ["\"syscall\"", "\"svc 0\"", "libc::syscall("].iter().any(|word| code(text).contains(word));
        assert!(!enters || is("base/gate.rs"), "{}", path.display());
        let passes = code(text).contains("call_for_program(");
        let may = is("base/gate.rs") || is("hooks/map.rs") || is("hooks/process.rs");
        assert!(!passes || may, "{}", path.display());
    }
}
