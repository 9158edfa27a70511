//! Commands on network filesystems that are not emulated: sshfs on this machine, NFS in user-mode-linux.
//!
//! They need root and programs that may be missing; then they say `SKIPPED:`, and so does `cawl-lab run`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::util::{LAB, mounted, no_mount_is_left};
use cawl_kit::eventually;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Writes, reads back, tells where it is and on what, and ends with 3.
const SCRIPT: &str = "seq 1 100000 >f; sum=$(md5sum <f); cp f g; test \"$sum\" = \"$(md5sum <g)\" || exit 9
    pwd; stat -f -c %T .; ls; echo failed >&2; exit 3";

/// True if a place can be had; else says what is missing.
fn possible(place: &str) -> bool {
    let programs: &[&str] = match place {
        "nfs" => &["linux.uml", "rpc.nfsd", "mount.nfs", "modprobe", "tc"],
        "sshfs" => &["sshfs", "sshd", "ssh-keygen", "setpriv"],
        _ => &[],
    };
    cawl_lab::no_mounts().map(cawl_kit::skipped).is_none()
        && programs.iter().all(|program| cawl_kit::find(program).is_some())
}

fn run(place: &str, script: &str) -> Output {
    Command::new(LAB).args(["run", place, "--", "sh", "-c", script]).output().unwrap()
}

/// Runs the script at a place; returns where that was, and its kind of filesystem.
fn ran(place: &str) -> Option<(String, String)> {
    possible(place.split(',').next().unwrap()).then(|| {
        let output = run(place, SCRIPT);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.trim()), (Some(3), "failed"), "{place}");
        let told = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = told.lines().collect();
        let [at, kind, "f", "g"] = lines[..] else { panic!("{place}: {told}") };
        (at.to_owned(), kind.to_owned())
    })
}

#[test]
fn a_command_runs_on_an_emulated_mount() {
    let Some((at, kind)) = ran("100us,100MB/s,policy=write-back") else { return };
    assert_eq!(kind, "fuseblk");
    no_mount_is_left(Path::new(&at));
}

#[test]
fn a_command_runs_on_sshfs() {
    for place in ["sshfs", "sshfs,1ms,100MB/s"] {
        let Some((at, kind)) = ran(place) else { return };
        assert_eq!(kind, "fuseblk");
        no_mount_is_left(Path::new(&at));
    }
}

#[test]
fn a_command_runs_on_nfs() {
    let Some((_, kind)) = ran("nfs,1ms,100MB/s") else { return };
    assert_eq!(kind, "nfs");
}

#[test]
fn a_connection_is_delayed() {
    if !possible("sshfs") {
        return;
    }
    // A lower bound, which no other work on the machine can break: 20 names are 20 round trips at least.
    let script = "date +%s%N; for i in $(seq 20); do echo >$i; done; date +%s%N";
    let output = run("sshfs,20ms,100MB/s", script);
    let told = String::from_utf8_lossy(&output.stdout);
    let times: Vec<u64> = told.lines().map(|line| line.parse().unwrap()).collect();
    assert!(times[1] - times[0] >= 400_000_000, "{told}");
}

#[test]
fn nothing_is_left_of_a_killed_sshfs() {
    if !possible("sshfs") {
        return;
    }
    let mut command = Command::new(LAB);
    command.args(["run", "sshfs", "--", "sleep", "60"]).process_group(0).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let folder = std::env::temp_dir().join(format!("cawl-lab-{}", child.id()));
    let (mount, room) = (folder.join("mnt"), folder.join("disk"));
    eventually("the command runs", || {
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = fs::read_to_string(children).unwrap();
        let is_sleep =
            |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
        children.split_whitespace().any(is_sleep)
    });
    assert!(mounted(&mount) && mounted(&room));
    // With the command: it has the mount as its working directory.
    kill(Pid::from_raw(-(child.id() as i32)), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    assert!(run("10us,100MB/s", "true").status.success());
    no_mount_is_left(&mount);
    assert!(!mounted(&room));
    // Their arguments name the folder.
    eventually("its processes are gone", || {
        Command::new("pgrep").arg("-f").arg(&folder).output().unwrap().stdout.is_empty()
    });
}

#[test]
fn a_place_that_is_none_is_refused() {
    let output = Command::new(LAB).args(["run", "smb", "--", "true"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && errors.contains("sshfs, nfs or"), "{errors}");
}
