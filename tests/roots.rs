//! Programs in another root directory or mount namespace, where their dynamic linkers cannot load the tracer:
//! they do as without it, nothing of a dynamic linker is in their stderr, and the report names them.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_kit::{Dir, Report, find, skipped, unchanged};
use nix::unistd::geteuid;

/// What a report says of a program for which the library is not there.
const NOT_VISIBLE: &str = "the tracer's library is not visible in its root directory or mounts";

/// Copies a program and its libraries into a root directory.
fn copy(program: &Path, root: &Path) {
    let listed = Command::new("ldd").arg(program).output().expect("ldd can be run").stdout;
    let listed = String::from_utf8(listed).expect("ldd writes text");
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for file in libraries.chain([program]) {
        let place = root.join(file.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(place.parent().expect("it lies in a folder")).expect("a new folder");
        fs::copy(file, place).expect("a copy");
    }
}

/// A root directory with a shell and dd; None, after saying so, where that cannot be.
fn root(dir: &Dir) -> Option<PathBuf> {
    if !geteuid().is_root() {
        skipped("only root can change its root directory");
        return None;
    }
    find("ldd")?;
    let root = dir.path().join("root");
    copy(&fs::canonicalize("/bin/sh").expect("there is a shell"), &root);
    copy(&find("dd")?, &root);
    for (link, to) in [("bin", "usr/bin"), ("lib64", "usr/lib64"), ("lib", "usr/lib")] {
        // Where the machine's own are links, the libraries were listed by either name.
        if !root.join(link).exists() {
            std::os::unix::fs::symlink(to, root.join(link)).expect("a new link");
        }
    }
    let shell = fs::canonicalize("/bin/sh").expect("there is a shell");
    let own = root.join("bin/sh");
    if !own.exists() {
        std::os::unix::fs::symlink(shell, own).expect("a new link");
    }
    Some(root)
}

/// The notes on what was not traced.
fn untraced(report: &Report) -> String {
    let notes = report["notes"].as_array().expect("a list").iter().filter_map(|note| note.as_str());
    notes.filter(|note| note.starts_with("not traced")).collect::<Vec<_>>().join("\n")
}

/// Writes 20 KiB.
const WRITES: &str = "echo inside; dd if=/bin/sh of=/written bs=1k count=20 status=none; test -s /written";

#[test]
fn a_program_in_another_root_runs_clean_and_is_named() {
    let dir = Dir::new();
    let Some(root) = root(&dir) else { return };
    let Some(chroot) = find("chroot") else { return };
    let way = [chroot.as_os_str(), root.as_os_str(), "/bin/sh".as_ref(), "-c".as_ref(), WRITES.as_ref()];
    let (finished, report) = unchanged(&dir, |_| {}, &[], &way, &[]);
    assert_eq!(finished.success().stderr, "");
    let untraced = untraced(&report);
    assert!(untraced.contains("/bin/sh") && untraced.contains(NOT_VISIBLE), "{untraced}");
    assert!(report["untraced_bytes"].as_u64() >= Some(20 << 10), "{}", report["untraced_bytes"]);
    assert!(report["coverage"].as_f64() < Some(0.1), "{}", report["coverage"]);
}

#[test]
fn every_way_of_starting_a_program_after_chroot_is_clean() {
    let dir = Dir::new();
    let Some(root) = root(&dir) else { return };
    let app = dir.app("rooted");
    for way in [
        "execve",
        "execvp",
        "execl",
        "fexecve",
        "execveat",
        "raw execve",
        "raw execveat",
        "system",
        "popen",
        "posix_spawn",
        "vfork",
        "fork",
        "filtered execve",
        "filtered system",
    ] {
        let shell = "echo inside; test -z \"$LD_PRELOAD\" || echo preload; exit 7";
        let command = [app.as_os_str(), way.as_ref(), root.as_os_str(), shell.as_ref()];
        let (finished, report) = unchanged(&dir, |_| {}, &[], &command, &[]);
        let finished = finished.code(if way == "popen" { 0 } else { 7 });
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("inside\n", ""), "{way}");
        let told = if way.starts_with("filtered") { "seccomp" } else { NOT_VISIBLE };
        assert!(untraced(&report).contains(told) || way == "fork", "{way}: {}", report["notes"]);
    }
}

/// Other preloads stay, in their order.
#[test]
fn other_preloads_stay_where_the_tracer_goes() {
    let dir = Dir::new();
    let Some(root) = root(&dir) else { return };
    let Some(library) = find("ldd").and(find("cc")) else { return };
    let source = dir.path().join("other.c");
    fs::write(&source, "int nothing_of_the_kind;\n").expect("a new file");
    let other = dir.path().join("other.so");
    let done = Command::new(library).args(["-shared", "-fPIC", "-o"]).args([&other, &source]).status();
    assert!(done.expect("a compiler").success());
    copy(&other, &root);
    let shell = "echo \"$LD_PRELOAD\"";
    let app = dir.app("rooted");
    let mut run = dir.cawl(&["run", "--report", "report.json", "--"]);
    run.args([app.as_os_str(), OsStr::new("execve"), root.as_os_str(), shell.as_ref()])
        .env("LD_PRELOAD", &other);
    let finished = cawl_kit::Running::start(run).finish().success();
    assert_eq!((finished.stdout.trim(), finished.stderr.as_str()), (other.to_str().unwrap_or_default(), ""));
}

/// Mounts that hide the library, or let nothing on them be executed; each in a namespace of its own.
#[test]
fn mounts_without_the_library_are_clean() {
    let dir = Dir::new();
    if !geteuid().is_root() {
        return skipped("only root can mount");
    }
    if find("unshare").is_none() {
        return;
    }
    // Where root's tracer may be.
    let folders = ["/run", "/var/cache", "/usr/local/lib"];
    let hidden = folders.map(|folder| format!("mount -t tmpfs none {folder}")).join(" && ");
    let noexec = folders
        .map(|folder| format!("mount --bind {folder} {folder} && mount -o remount,bind,noexec {folder}"))
        .join(" && ");
    for (mounts, told) in [(hidden, NOT_VISIBLE), (noexec, "lies on a mount without execution")] {
        let script = format!("{mounts} && dd if=/bin/sh of=written bs=1k count=20 status=none; echo $?");
        let way = ["unshare", "-m", "sh", "-c", &script];
        let (finished, report) = unchanged(&dir, |_| {}, &[], &way, &[]);
        let finished = finished.success();
        if finished.stdout != "0\n" {
            return skipped("this process may not mount");
        }
        assert_eq!(finished.stderr, "");
        let untraced = untraced(&report);
        assert!(untraced.contains("dd: ") && untraced.contains(told), "{untraced}");
        assert!(report["untraced_bytes"].as_u64() >= Some(20 << 10), "{}", report["untraced_bytes"]);
    }
}

/// A sandbox as flatpak makes them: its first process does not wait for the one that waits for the program.
#[test]
fn a_sandbox_is_clean_and_told_of() {
    let dir = Dir::new();
    if find("bwrap").is_none() || !geteuid().is_root() {
        return;
    }
    let mut way = vec!["bwrap", "--unshare-all"];
    for folder in ["/usr", "/bin", "/lib", "/lib64"].into_iter().filter(|folder| Path::new(folder).exists()) {
        way.extend(["--ro-bind", folder, folder]);
    }
    way.extend(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/tmp", "sh", "-c"]);
    way.push("dd if=/dev/zero of=/tmp/f bs=1M count=20 status=none; ls -s /tmp/f");
    let (finished, report) = unchanged(&dir, |_| {}, &["--wait"], &way, &[]);
    if !finished.status.success() {
        return skipped("bwrap cannot make a sandbox here");
    }
    assert_eq!(finished.stderr, "");
    assert!(untraced(&report).contains("bwrap"), "{}", report["notes"]);
    assert!(report["coverage"].as_f64() < Some(0.5), "{}", report["coverage"]);
}
