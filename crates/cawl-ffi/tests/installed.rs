//! What CMake installs, and what programs make of it.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use cawl_kit::{Finished, Running, find, skipped};

use crate::abi::{CRATE, declared};

/// Strict, since a header has to pass what its users ask for.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// The runs that a profile is made of, as in contrib/simgrid/README.md.
const FITTED: &str = "direct-sync-64K,direct-sync-range-1M,direct-sync-range-4M,sync-4K,sync-1M,seq-64M,\
                      rewrite-16M,fsync-each-4M";

fn run<S: AsRef<std::ffi::OsStr>>(program: impl AsRef<std::ffi::OsStr>, arguments: &[S]) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", folder("prefix/lib"));
    command.env("PKG_CONFIG_PATH", folder("prefix/lib/pkgconfig"));
    Running::start(command).finish().success()
}

/// A place below what the tests make.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("libcawl").join(name)
}

/// Cargo, with the features of the whole workspace (see `cawl_kit::built`): then there is nothing to compile.
fn cargo() -> PathBuf {
    static CARGO: LazyLock<PathBuf> = LazyLock::new(|| {
        let script = format!("#!/bin/sh\nexec '{}' \"$@\" --workspace --lib --test=kit\n", env!("CARGO"));
        let path = folder("cargo");
        fs::create_dir_all(folder("")).expect("a new folder");
        fs::write(&path, script).expect("a new file");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        path
    });
    CARGO.clone()
}

fn cmake(build: &str, prefix: &Path, target: &str) {
    let build = folder(build).display().to_string();
    let prefix = format!("-DCMAKE_INSTALL_PREFIX={}", prefix.display());
    let cargo = format!("-DCARGO={}", cargo().display());
    let of_tests = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_INSTALL_LIBDIR=lib"];
    run("cmake", &["-S", CRATE, "-B", &build, &prefix, &cargo, of_tests[0], of_tests[1]]);
    run("cmake", &["--build", &build, "--target", target]);
}

/// Where the library is installed; None, after saying so, without the programs that it takes.
fn installed() -> Option<PathBuf> {
    static PREFIX: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        for program in ["cmake", "pkg-config", "cc", "c++"] {
            find(program)?;
        }
        let prefix = folder("prefix");
        let _ = fs::remove_dir_all(&prefix);
        cmake("build", &prefix, "install");
        Some(prefix)
    });
    if PREFIX.is_none() {
        skipped("libcawl was not built");
    }
    PREFIX.clone()
}

/// The examples, and what no program should do.
fn programs() -> Vec<PathBuf> {
    let listed = fs::read_dir(Path::new(CRATE).join("examples/c")).expect("examples");
    let mut all: Vec<_> = listed.map(|entry| entry.expect("an example").path()).collect();
    all.push(Path::new(CRATE).join("tests/hostile.c"));
    all
}

fn compile(source: &Path, kind: &str, libraries: &[&str]) -> PathBuf {
    let is_c = source.extension().is_some_and(|ending| ending == "c");
    let (compiler, standard) = if is_c { ("cc", "-std=c11") } else { ("c++", "-std=c++17") };
    let stem = source.file_stem().expect("a name").to_string_lossy();
    let (program, source) = (folder(&format!("{stem}-{kind}")), source.display().to_string());
    let output = program.display().to_string();
    run(compiler, &[&[standard, "-g", &source, "-o", &output], &STRICT[..], libraries].concat());
    program
}

/// The programs, compiled for the shared library.
static SHARED: LazyLock<Option<Vec<PathBuf>>> = LazyLock::new(|| {
    installed()?;
    let told = run("pkg-config", &["--cflags", "--libs", "cawl"]).stdout;
    let shared: Vec<&str> = told.split_whitespace().collect();
    Some(programs().iter().map(|source| compile(source, "shared", &shared)).collect())
});

#[test]
fn examples_and_hostile_calls_end_well() {
    let (Some(prefix), Some(shared)) = (installed(), &*SHARED) else { return };
    let archive = prefix.join("lib/libcawl.a").display().to_string();
    let private = run("pkg-config", &["--cflags", "--libs-only-l", "--static", "cawl"]).stdout;
    let within = private.split_whitespace().map(|flag| if flag == "-lcawl" { &archive } else { flag });
    let within: Vec<&str> = within.collect();
    for (source, program) in programs().iter().zip(shared) {
        let said = run(program, &[""; 0]).stdout;
        assert_eq!(said, run(compile(source, "static", &within), &[""; 0]).stdout);
    }
}

#[test]
#[ignore = "long: under valgrind"]
fn nothing_is_leaked() {
    let (Some(valgrind), Some(shared)) = (find("valgrind"), &*SHARED) else { return };
    for program in shared {
        let program = program.display().to_string();
        let leaks = "--errors-for-leak-kinds=definite,indirect,possible";
        run(&valgrind, &["-q", "--error-exitcode=99", "--leak-check=full", leaks, &program]);
    }
}

#[test]
fn the_symbols_are_those_of_the_header_and_have_their_version() {
    let Some(prefix) = installed() else { return };
    let library = prefix.join("lib/libcawl.so").display().to_string();
    let listed = run("nm", &["-D", "--defined-only", "--with-symbol-versions", &library]).stdout;
    let found = listed.lines().filter_map(|line| line.rsplit(' ').next()).filter(|name| *name != "LIBCAWL_1");
    let wanted = declared().into_iter().map(|name| name + "@@LIBCAWL_1");
    assert_eq!(found.map(str::to_owned).collect::<BTreeSet<_>>(), wanted.collect());
    let dynamic = run("readelf", &["-d", &library]).stdout;
    assert!(dynamic.contains("[libcawl.so.1]"), "{dynamic}");
}

/// As docs/reference/LIBRARY.md shows it.
#[test]
fn cmake_finds_it() {
    let Some(prefix) = installed() else { return };
    let project = folder("project");
    fs::create_dir_all(&project).expect("a new folder");
    let page = fs::read_to_string(Path::new(CRATE).join("../../docs/reference/LIBRARY.md")).expect("a page");
    let shown =
        page.split("```cmake\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    fs::write(project.join("CMakeLists.txt"), shown).expect("a new file");
    fs::copy(Path::new(CRATE).join("examples/c/throttle.c"), project.join("main.c")).expect("a copy");
    let (project, build) = (project.display().to_string(), folder("project/build").display().to_string());
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    run("cmake", &["-S", &project, "-B", &build, &prefix]);
    run("cmake", &["--build", &build]);
    run(folder("project/build/simulator"), &[""; 0]);
}

/// contrib/simgrid on a SimGrid that is installed (Debian's libsimgrid-dev), its own tests, and its figure
/// for the recorded runs of this repository.
#[test]
#[ignore = "long: builds the plug-in and replays recordings"]
fn simgrid_has_a_page_cache_for_each_host() {
    let has_simgrid = || {
        Command::new("pkg-config").args(["--exists", "simgrid >= 3.32"]).status().is_ok_and(|s| s.success())
    };
    if find("ctest").is_none() || !has_simgrid() {
        skipped("the plug-in of SimGrid was not built: no SimGrid");
        return;
    }
    let Some(prefix) = installed() else { return };
    let source = Path::new(CRATE).join("../../contrib/simgrid").display().to_string();
    let build = folder("simgrid").display().to_string();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
    run("cmake", &["-S", &source, "-B", &build, &prefix]);
    run("cmake", &["--build", &build]);
    run("ctest", &["--test-dir", &build, "--output-on-failure"]);
    if find("python3").is_none() {
        skipped("the plug-in of SimGrid was not judged: no Python");
        return;
    }
    let runs = Path::new(CRATE).join("../cawl-lab/tests/data/recorded/run2").display().to_string();
    let profile = folder("fitted.toml").display().to_string();
    run(cawl_kit::lab(), &["fit", &runs, "-o", &profile, "--runs", FITTED]);
    run(format!("{source}/judge"), &[&build, &profile, &runs, "--within", "5"]);
}

#[test]
#[ignore = "long: packs what was not optimized"]
fn debian_has_two_packages() {
    if ["dpkg-deb", "dpkg-shlibdeps", "cpack"].iter().any(|program| find(program).is_none())
        || installed().is_none()
    {
        return;
    }
    cmake("debian", Path::new("/usr"), "package");
    let version = env!("CARGO_PKG_VERSION");
    let root = folder("root").display().to_string();
    let _ = fs::remove_dir_all(&root);
    for name in ["libcawl1", "libcawl-dev"] {
        let mut listed =
            fs::read_dir(folder("debian")).expect("a folder").map(|entry| entry.expect("a file").path());
        let is_it = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&format!("{name}_{version}")) && file.ends_with(".deb")
        };
        let package = listed.find(is_it).expect("a package").display().to_string();
        run("dpkg-deb", &["-x", &package, &root]);
        let depends = run("dpkg-deb", &["-f", &package, "Depends"]).stdout;
        let wanted = if name == "libcawl1" { "libc6".to_owned() } else { format!("libcawl1 (= {version})") };
        assert!(depends.contains(&wanted), "{depends}");
    }
    for file in
        ["include/cawl.h", "lib/libcawl.so.1", "lib/libcawl.so", "lib/libcawl.a", "lib/pkgconfig/cawl.pc"]
    {
        assert!(folder("root/usr").join(file).exists(), "{file}");
    }
}
