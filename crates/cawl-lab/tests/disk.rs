//! The emulated disk as its users see it: its content, and what is left of it.
//!
//! Needs root, /dev/fuse and loop devices; says `SKIPPED:` where one of them is missing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::util::{
    ENDING, ENDINGS, LAB, alone, beside_others, direct, end_by, ended, mounted, no_mount_is_left, possible,
    sysctl,
};
use cawl_core::Bytes;
use cawl_host::direct::AlignedBuffer;
use cawl_kit::{eventually, find};
use cawl_lab::{DiskSpec, Filesystem, emulated_disk, lowered_limits};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LARGE: usize = 512 << 10;

#[test]
fn what_is_written_is_read_back() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        if filesystem == Filesystem::Xfs && find("mkfs.xfs").is_none() {
            continue;
        }
        let spec = "2000,10,0,0.1,size=2".parse().unwrap();
        let disk = emulated_disk(Path::new(LAB), spec, filesystem, None).unwrap();
        let path = disk.ready.mount.join("file");
        let content: Vec<u8> =
            (0..20_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // Past the page cache, so from the disk.
        let file = direct(&path);
        let mut buffer = AlignedBuffer::new(LARGE);
        for start in (0..content.len() - LARGE).step_by(LARGE) {
            file.read_exact_at(buffer.bytes_mut(), start as u64).unwrap();
            assert!(buffer.bytes() == &content[start..start + LARGE], "{filesystem:?} at {start}");
        }
    }
}

#[test]
fn dirty_limits_are_lowered_and_put_back() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let before = {
        // Nobody else has them lowered while this is held.
        let guard = lowered_limits(Path::new(LAB), Bytes::mib(500), Bytes::mib(600)).unwrap();
        assert_eq!(sysctl("dirty_background_bytes"), Bytes::mib(500).0);
        assert_eq!(sysctl("dirty_bytes"), Bytes::mib(600).0);
        drop(guard);
        ["dirty_background_ratio", "dirty_ratio"].map(sysctl)
    };
    assert!(before.iter().all(|ratio| *ratio != 0) || sysctl("dirty_bytes") != Bytes::mib(600).0);
}

#[test]
#[ignore = "is run by the tests below, in a process of its own"]
fn the_user_of_a_disk() {
    let Ok(ending) = std::env::var(ENDING) else { return };
    let spec = "100,10,0,0.1,size=1".parse().unwrap();
    let limits = Some((Bytes::mib(400), Bytes::mib(700)));
    let disk = emulated_disk(Path::new(LAB), spec, Filesystem::Ext4, limits).unwrap();
    // Dirty pages that are still to be written when the end comes.
    fs::write(disk.ready.mount.join("file"), vec![1; 30 << 20]).unwrap();
    end_by(&ending, &disk.ready);
}

fn nothing_is_left(mount: &Path) {
    no_mount_is_left(mount);
    eventually("the limits are put back", || sysctl("dirty_bytes") != Bytes::mib(700).0);
}

#[test]
fn nothing_is_left_after_a_panic_or_a_signal() {
    if !possible() {
        return;
    }
    let _alone = alone();
    for ending in ENDINGS {
        let (mount, device) = ended("disk::the_user_of_a_disk", ending);
        nothing_is_left(&mount);
        let backing = fs::read_to_string(
            Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file"),
        );
        let ours = mount.parent().unwrap();
        assert!(!backing.is_ok_and(|file| Path::new(file.trim()).starts_with(ours)), "{ending}");
    }
}

#[test]
fn a_killed_disk_is_cleaned_up_by_the_next() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let spec: DiskSpec = "1000,10,0,0.1,size=1".parse().unwrap();
    let disk = emulated_disk(Path::new(LAB), spec, Filesystem::Ext4, None).unwrap();
    let mount = disk.ready.mount.clone();
    kill(Pid::from_raw(disk.pid() as i32), Signal::SIGKILL).unwrap();
    drop(disk);
    assert!(mounted(&mount));
    drop(emulated_disk(Path::new(LAB), spec, Filesystem::None, None).unwrap());
    nothing_is_left(&mount);
}
