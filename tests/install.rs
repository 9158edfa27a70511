//! The tracer is embedded in `cawl-cli` and written into a folder of the user, under a path that LD_PRELOAD
//! can hold; root's into one that all users can read, since its programs may change their user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{chown, geteuid};

use cawl_kit::{Dir, Running, find, skipped};

/// `cawl-cli run` of a program that prints the tracer's path.
fn where_is(dir: &Dir) -> Command {
    dir.cawl(&["run", "--report", "report.json", "--", "sh", "-c", "echo \"$LD_PRELOAD\"; echo data > file"])
}

/// The tracer's path, which must be private and suit LD_PRELOAD; and the tracer works.
fn placed(dir: &Dir, command: Command) -> PathBuf {
    let finished = Running::start(command).finish();
    let report = cawl_kit::Report::read(&dir.work().join("report.json"), &finished);
    let path = PathBuf::from(finished.success().stdout.trim());
    report.all_seen();
    assert_eq!(report.bytes(), 5);
    assert!(!path.to_string_lossy().contains([' ', ':']), "{}", path.display());
    let folder = fs::metadata(path.parent().expect("it lies in a folder")).expect("the folder is there");
    assert_eq!((folder.uid(), folder.permissions().mode() & 0o022), (dir.uid().as_raw(), 0));
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o222, 0);
    path
}

#[test]
fn the_tracer_goes_to_a_private_folder_in_the_cache() {
    let Some(dir) = Dir::ordinary() else { return };
    let path = placed(&dir, where_is(&dir));
    let cache = dir.path().join("cache/cawl");
    assert_eq!(path.parent(), Some(cache.as_path()));
    assert_eq!(fs::metadata(&cache).expect("it is there").permissions().mode() & 0o777, 0o700);
    // The next time it is used unchanged.
    let before = fs::metadata(&path).expect("it is there");
    assert_eq!(placed(&dir, where_is(&dir)), path);
    let after = fs::metadata(&path).expect("it is there");
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    assert_eq!(fs::read_dir(&cache).expect("a folder").count(), 1);
}

#[test]
fn without_a_cache_folder_it_is_the_one_in_the_home() {
    let Some(dir) = Dir::ordinary() else { return };
    let mut command = where_is(&dir);
    command.env_remove("XDG_CACHE_HOME");
    assert!(placed(&dir, command).starts_with(dir.path().join("home/.cache/cawl")));
}

#[test]
fn without_a_home_it_is_told_that_nothing_is_kept() {
    let dir = Dir::new();
    let mut command = dir.run_command(&[], &["true"]);
    command.env_remove("HOME");
    let finished = Running::start(command).finish();
    let notes = dir.report(&finished)["notes"].to_string();
    assert!(notes.contains("there is no folder for profiles: set XDG_DATA_HOME or HOME"), "{notes}");
}

#[test]
fn many_first_uses_at_once_agree() {
    let Some(dir) = Dir::ordinary() else { return };
    let running: Vec<Running> = (0..8)
        .map(|_| Running::start(dir.cawl(&["run", "--", "sh", "-c", "echo \"$LD_PRELOAD\""])))
        .collect();
    let mut told: Vec<String> =
        running.into_iter().map(|running| running.finish().success().stdout).collect();
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(fs::read_dir(dir.path().join("cache/cawl")).expect("a folder").count(), 1);
}

#[test]
fn with_a_space_in_every_path_it_is_in_the_users_folder_in_tmp() {
    let Some(dir) = Dir::ordinary() else { return };
    let spaced = dir.path().join("a b");
    fs::rename(dir.path().join("run"), &spaced).expect("it is ours");
    let mut command = where_is(&dir);
    command.env_remove("XDG_CACHE_HOME").env("HOME", &spaced).env("XDG_RUNTIME_DIR", &spaced);
    assert!(placed(&dir, command).starts_with(format!("/tmp/cawl-{}/cawl", dir.uid())));
}

#[test]
fn a_runtime_folder_too_long_for_sockets_is_not_used() {
    let Some(dir) = Dir::ordinary() else { return };
    let long = dir.path().join("x".repeat(90));
    fs::rename(dir.path().join("run"), &long).expect("it is ours");
    let mut command = where_is(&dir);
    command.env("XDG_RUNTIME_DIR", &long);
    placed(&dir, command);
}

/// With this home or cache, the tracer is written beside the sockets.
fn falls_back(dir: &Dir, variable: &str, value: &Path) {
    let mut command = where_is(dir);
    command.env_remove("XDG_CACHE_HOME").env(variable, value);
    let path = placed(dir, command);
    assert!(
        path.starts_with(dir.path().join("run/cawl")),
        "{variable}={}: {}",
        value.display(),
        path.display()
    );
}

#[test]
fn an_unsuitable_home_is_not_used() {
    let Some(dir) = Dir::ordinary() else { return };
    for name in ["with space", "with:colon", "with\ttab and space"] {
        let home = dir.path().join(name);
        fs::create_dir(&home).expect("a new folder");
        falls_back(&dir, "HOME", &home);
        falls_back(&dir, "XDG_CACHE_HOME", &home);
    }
    // Root may write anywhere, except into these.
    falls_back(&dir, "HOME", Path::new("/dev/null"));
    falls_back(&dir, "HOME", Path::new("/proc/no/home"));
    falls_back(&dir, "HOME", Path::new("relative"));
    falls_back(&dir, "XDG_CACHE_HOME", Path::new("/proc/no/cache"));

    let locked = dir.path().join("locked");
    fs::create_dir(&locked).expect("a new folder");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("it is ours");
    falls_back(&dir, "HOME", &locked);
}

#[test]
fn a_folder_that_others_can_write_to_is_not_used() {
    let Some(dir) = Dir::ordinary() else { return };
    let cache = dir.path().join("cache/cawl");
    fs::create_dir(&cache).expect("a new folder");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).expect("it is ours");
    chown(&cache, Some(dir.uid()), None).expect("it is ours or we are root");
    falls_back(&dir, "XDG_CACHE_HOME", &dir.path().join("cache"));
}

#[test]
fn a_copy_that_was_tampered_with_is_replaced() {
    let Some(dir) = Dir::ordinary() else { return };
    let path = placed(&dir, where_is(&dir));
    fs::remove_file(&path).expect("it is ours");
    fs::write(&path, "not a library").expect("a new file");
    assert_eq!(placed(&dir, where_is(&dir)), path);
}

#[test]
fn root_s_can_be_read_by_all() {
    if !geteuid().is_root() {
        return skipped("only root has it");
    }
    let dir = Dir::new();
    let path = placed(&dir, where_is(&dir));
    assert_eq!(fs::read_dir(dir.path().join("cache")).expect("a folder").count(), 0);
    for folder in path.ancestors().skip(1) {
        let meta = fs::metadata(folder).expect("it is there");
        assert_eq!((meta.uid(), meta.permissions().mode() & 0o001), (0, 1), "{}", folder.display());
    }
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o555);
}

/// On a mount without execution the tracer could be written, and no dynamic linker could load it.
#[test]
fn a_cache_from_which_nothing_is_executed_is_not_used() {
    let Some(dir) = Dir::of("nobody") else { return };
    if find("unshare").is_none() {
        return;
    }
    let home = dir.path().join("home");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c"]).arg(
        "mount -t tmpfs -o noexec,mode=777 none \"$HOME\" || exit 77; exec setpriv --reuid \"$1\" --regid \"$1\" \
         --clear-groups \"$2\" run --no-calibrate --report report.json -- sh -c 'echo \"$LD_PRELOAD\"; echo data > file'",
    );
    command.arg("sh").arg(dir.uid().to_string()).arg(dir.path().join("cawl-cli"));
    command.current_dir(dir.work()).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", &home);
    let finished = Running::start(command).finish();
    if finished.status.code() == Some(77) {
        return skipped("this process may not mount");
    }
    assert!(!finished.stderr.contains("ld.so"), "{finished:#?}");
    let report = cawl_kit::Report::read(&dir.work().join("report.json"), &finished);
    let path = PathBuf::from(finished.success().stdout.trim());
    assert!(path.is_absolute() && !path.starts_with(&home), "{}", path.display());
    report.all_seen();
}
