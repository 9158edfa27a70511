//! Programs: those of this workspace, those of tests/apps, and those of this machine.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::skipped;

/// The built programs `cawl-cli` and `cawld`, of the profile this test was built with.
///
/// Cargo builds no programs of other packages for a test, so that is done here, once.
pub fn built(program: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| build(&["--bin=cawl-cli", "--bin=cawld"])).join(program)
}

/// The built `cawl-lab`, for tests of other packages.
pub fn lab() -> PathBuf {
    build(&["--bin=cawl-lab"]).join("cawl-lab")
}

/// Builds programs, and the folder that has them.
fn build(programs: &[&str]) -> PathBuf {
    let folder = profile_folder();
    let profile = match folder.file_name().and_then(OsStr::to_str).expect("a profile has a name") {
        "debug" => "dev",
        other => other,
    };
    // A package's features depend on what else is built. With the workspace, and the kit's test for its
    // development dependencies, the programs are those that `cargo test --workspace` has built already.
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--workspace", "--test=kit", "--profile", profile])
        .args(programs)
        .arg("--target-dir")
        .arg(folder.parent().expect("a profile's folder lies in the target directory"))
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let status = cargo.status().expect("cargo can be run");
    assert!(status.success(), "the programs did not build: {cargo:?}");
    folder
}

/// Where a program is, or None after a line that says what is skipped.
pub fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// Python itself: what lies in PATH may be a script that looks for the right version.
pub fn python() -> Option<PathBuf> {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    let found = find("python3")?;
    Some(
        PYTHON
            .get_or_init(|| {
                let told = Command::new(found).args(["-c", "import sys; print(sys.executable)"]).output();
                let told = told.expect("python3 can be run").stdout;
                PathBuf::from(String::from_utf8(told).expect("python lies at a readable path").trim())
            })
            .clone(),
    )
}

/// A processor that programs are traced on in emulation: CAWL_TEST_ARCH names it, such as `aarch64`. The
/// tests themselves, and the daemons in them, are of this machine; see bench/aarch64.
pub fn emulated() -> Option<&'static str> {
    static ARCH: OnceLock<Option<String>> = OnceLock::new();
    ARCH.get_or_init(|| std::env::var("CAWL_TEST_ARCH").ok()).as_deref()
}

/// A command that starts a program, in emulation if one is asked for.
pub fn program(path: impl AsRef<OsStr>) -> Command {
    let Some(arch) = emulated() else { return Command::new(path) };
    let mut command = Command::new(format!("qemu-{arch}"));
    command.arg(path).env("QEMU_LD_PREFIX", format!("/usr/{arch}-linux-gnu"));
    command
}

/// Has a library preloaded into a program of [`program`].
pub fn preload(command: &mut Command, library: &Path) {
    match emulated() {
        None => command.env("LD_PRELOAD", library),
        // The emulator's own linker would complain.
        Some(_) => command.env("QEMU_SET_ENV", format!("LD_PRELOAD={}", library.display())),
    };
}

/// The tracer, as it is shipped; or the library that CAWL_TEST_LIBRARY names.
pub fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            if let Some(path) = std::env::var_os("CAWL_TEST_LIBRARY") {
                return path.into();
            }
            let triple = match emulated() {
                Some(arch) => format!("{arch}-unknown-linux-gnu"),
                None => format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
            };
            let target = tracers_folder();
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .args(["build", "--quiet", "--package", "cawl-preload", "--profile", "tracer"])
                .args(["--target", &triple, "--target-dir"])
                .arg(&target)
                .current_dir(env!("CARGO_MANIFEST_DIR"));
            if let Some(arch) = emulated() {
                let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
                cargo.env(linker, format!("{arch}-linux-gnu-gcc"));
            }
            let done = cargo.status().expect("cargo can be run");
            assert!(done.success(), "the library does not build");
            target.join(triple).join("tracer/libcawl_preload.so")
        })
        .clone()
}

/// The target directory for the tracer: where cawl-cli's build script has built it, so that there is nothing
/// to do; or that of all, also with flags, which that script leaves out.
fn tracers_folder() -> PathBuf {
    let folder = profile_folder();
    let flags = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
    if flags.iter().any(|name| std::env::var_os(name).is_some()) {
        return folder.parent().expect("it lies in the target directory").to_owned();
    }
    let built = fs::read_dir(folder.join("build")).into_iter().flatten().flatten();
    let built = built.map(|entry| entry.path().join("out/tracer")).filter(|folder| folder.is_dir());
    let newest = built.max_by_key(|folder| folder.metadata().and_then(|meta| meta.modified()).ok());
    newest.unwrap_or_else(|| folder.parent().expect("it lies in the target directory").to_owned())
}

/// The folder of the profile this test was built with: TARGET/PROFILE, where the test is
/// TARGET/PROFILE/deps/NAME.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(2).expect("a test lies in deps/").to_owned()
}

/// The program made from tests/apps/NAME.c or NAME.cpp.
pub fn app(name: &str) -> PathBuf {
    app_with(name, &["-O2"])
}

/// The same with these flags.
pub fn app_with(name: &str, flags: &[&str]) -> PathBuf {
    compiled(name, flags).unwrap_or_else(|why| panic!("{name} does not compile with {flags:?}: {why}"))
}

/// The same where the compiler may not take the flags: then what it says. What was compiled is kept in the
/// target directory, by source and flags.
pub fn compiled(name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps");
    let (compiler, source) = match apps.join(format!("{name}.c")) {
        c if c.is_file() => ("cc", c),
        _ => ("c++", apps.join(format!("{name}.cpp"))),
    };
    let mut hasher = DefaultHasher::new();
    (fs::read(&source).expect("a source"), flags, emulated()).hash(&mut hasher);
    let folder = profile_folder().join(format!("apps/{:016x}", hasher.finish()));
    let program = folder.join(name);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder).expect("a new folder");
    // Another test may compile the same: each puts a whole program there.
    let new = tempfile::tempdir_in(&folder).expect("a new folder");
    let mut compile = match (emulated(), compiler) {
        (None, own) => Command::new(own),
        (Some(arch), "cc") => Command::new(format!("{arch}-linux-gnu-gcc")),
        (Some(arch), _) => Command::new(format!("{arch}-linux-gnu-g++")),
    };
    compile.args(["-g", "-Wall", "-D_GNU_SOURCE", "-pthread"]).args(flags).arg(&source);
    let done = compile.arg("-o").arg(new.path().join(name)).output().expect("a C compiler");
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).into_owned());
    }
    fs::rename(new.path().join(name), &program).expect("the same filesystem");
    Ok(program)
}
