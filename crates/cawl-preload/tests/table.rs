//! The table of hooks is the truth: about the built library, about the tests, and about what the programs
//! of this machine import.

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

#[test]
fn what_programs_import_is_hooked_or_explained() {
    let Some(libc) = loaded("/libc.so") else { panic!("this test has no C library") };
    let libc = symbols(&libc, true);
    let hooked = hooked();
    let mut importers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut looked_at = 0;
    let looked = programs();
    for program in &looked {
        let imports = symbols(program, false);
        looked_at += usize::from(!imports.is_empty());
        for name in imports {
            if libc.contains(&name)
                && SUSPICIOUS.iter().any(|part| name.contains(part))
                && !hooked.contains_key(&*name)
                && !explained(&name)
            {
                importers.entry(name).or_default().push(program.display().to_string());
            }
        }
    }
    let unclear: Vec<_> = libc
        .iter()
        .filter(|name| SUSPICIOUS.iter().any(|part| name.contains(part)))
        .filter(|name| !hooked.contains_key(&***name) && !explained(name))
        .collect();
    println!("of this C library, neither hooked nor explained, and imported by nothing here: {unclear:?}");
    println!("{looked_at} programs and libraries looked at");
    for (name, programs) in &importers {
        println!("{name}: {} and {} more", programs[0], programs.len() - 1);
    }
    assert!(looked_at > 50, "{looked_at}");
    for (name, files) in common() {
        match files.as_slice() {
            [] => eprintln!("SKIPPED: {name} is not installed, so its imports were not looked at"),
            files => {
                let imports: BTreeSet<String> = files.iter().flat_map(|file| symbols(file, false)).collect();
                let writing = imports.iter().filter(|name| hooked.contains_key(&***name)).count();
                println!("{name}: {} imports, {writing} of them hooked", imports.len());
                // None means that it was not read, or not this program but a script in front of it.
                assert!(writing > 0, "{name}: no import of {files:?} is hooked");
            }
        }
    }
    let names: Vec<_> = importers.keys().collect();
    assert!(names.is_empty(), "imported, neither hooked nor explained: {names:?}");
}

/// Files of the programs that must be looked at; none where a program is not installed.
fn common() -> [(&'static str, Vec<PathBuf>); 8] {
    let found = |name: &str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let place = std::env::split_paths(&paths).find_map(|folder| folder.join(name).canonicalize().ok());
        place.into_iter().collect::<Vec<_>>()
    };
    // What lies in PATH may be a script of a version manager, and the interpreter a library.
    let python = || {
        let ask = "import glob, os, sys, sysconfig as s; print(sys.executable); \
                   print(os.path.join(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME'))); \
                   print(*glob.glob(s.get_path('platstdlib') + '/lib-dynload/*.so'), sep='\\n')";
        let told = std::process::Command::new("python3").args(["-c", ask]).output();
        let told = told.ok().and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default();
        told.lines().flat_map(std::fs::canonicalize).collect::<Vec<_>>()
    };
    let java = || {
        let program = found("java");
        let home = program.first().and_then(|java| java.parent()).and_then(Path::parent).map(Path::to_owned);
        let rest = ["libjava.so", "libnio.so", "libnet.so", "libzip.so", "server/libjvm.so", "jspawnhelper"];
        let rest = home.iter().flat_map(|home| rest.map(|name| home.join("lib").join(name)));
        program.iter().cloned().chain(rest).collect()
    };
    [
        (
            "coreutils",
            ["cp", "dd", "tee", "split", "shred", "truncate"].iter().flat_map(|name| found(name)).collect(),
        ),
        ("tar", found("tar")),
        ("bash", found("bash")),
        ("python3", python()),
        ("git", found("git")),
        ("perl", found("perl")),
        ("node", found("node")),
        ("java", java()),
    ]
}

/// Every program and library there is where programs usually are, and the common ones wherever they are.
fn programs() -> BTreeSet<PathBuf> {
    let mut found: BTreeSet<PathBuf> = common().into_iter().flat_map(|(_, files)| files).collect();
    let paths = std::env::var_os("PATH").unwrap_or_default();
    for folder in std::env::split_paths(&paths).chain([
        "/usr/bin".into(),
        "/usr/sbin".into(),
        "/usr/lib/git-core".into(),
    ]) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            found.extend(std::fs::canonicalize(entry.path()));
        }
    }
    // The libraries of interpreters, and those that programs of this machine load by name.
    for part in ["/libc.so", "/ld-"] {
        if let Some(folder) = loaded(part).as_deref().and_then(Path::parent) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                let common = [
                    "libstdc++",
                    "libpython",
                    "libperl",
                    "libsqlite3",
                    "libz.",
                    "libbfd",
                    "liblzma",
                    "libselinux",
                    "libacl",
                ];
                if common.iter().any(|start| name.starts_with(start)) {
                    found.extend(std::fs::canonicalize(entry.path()));
                }
            }
        }
    }
    found
}
