//! The network mount as its users see it: what files contain, which requests each policy makes, and what is
//! left of it. How long requests take is `cawl-lab verify net`.
//!
//! Needs root and /dev/fuse; says `SKIPPED:` where one of them is missing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::util::{
    ENDING, ENDINGS, LAB, alone, beside_others, content, direct, end_by, ended, no_mount_is_left, sysctl,
};
use cawl_core::{Bytes, CachePolicy};
use cawl_host::direct::AlignedBuffer;
use cawl_lab::emulated::Lab;
use cawl_lab::{NetSpec, Requests, network_mount};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;

/// True where a network mount can be had; else says what is missing.
fn possible() -> bool {
    cawl_lab::no_mounts().map(cawl_kit::skipped).is_none()
}

/// A link so fast that it does not count.
fn spec(policy: CachePolicy, options: &str) -> NetSpec {
    format!("0us,100GB/s,policy={}{options}", policy.name()).parse().unwrap()
}

fn mount(policy: CachePolicy, options: &str) -> Lab {
    network_mount(Path::new(LAB), spec(policy, options), None).unwrap()
}

/// Bytes of which no two pages are alike.
fn random(length: usize) -> Vec<u8> {
    (0..length as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

/// Requests to write of a mount so far, and to read.
fn data_requests(mount: &Path) -> (u64, u64) {
    let requests = Requests::of(mount).unwrap();
    (requests.write, requests.read)
}

#[test]
fn what_is_written_is_read_back() {
    if !possible() {
        return;
    }
    for policy in CachePolicy::ALL {
        let net = mount(policy, "");
        let path = net.ready.mount.join("file");
        let mut content = random(20_000_000);
        let file = create(&path);
        // Pieces that begin and end within pages.
        for (index, piece) in content.chunks(777_777).enumerate() {
            file.write_all_at(piece, index as u64 * 777_777).unwrap();
        }
        file.write_all_at(b"over", 5_000_001).unwrap();
        content[5_000_001..5_000_005].copy_from_slice(b"over");
        file.set_len(19_000_001).unwrap();
        file.set_len(19_500_000).unwrap();
        content.truncate(19_500_000);
        content[19_000_001..].fill(0);
        drop(file);
        let right = |read: &[u8]| assert!(read == content, "{policy:?}");
        right(&fs::read(&path).unwrap());
        // Past the page cache, so from the other end.
        let file = direct(&path);
        let mut buffer = AlignedBuffer::new(512 << 10);
        for start in (0..content.len() - buffer.bytes().len()).step_by(512 << 10) {
            file.read_exact_at(buffer.bytes_mut(), start as u64).unwrap();
            assert!(buffer.bytes() == &content[start..start + buffer.bytes().len()], "{policy:?} at {start}");
        }
    }
}

#[test]
fn a_large_file_takes_little_memory() {
    if !possible() {
        return;
    }
    let net = mount(CachePolicy::WriteThrough, ",request=1M");
    let path = net.ready.mount.join("large");
    let file = create(&path);
    let piece = vec![7; 8 * MIB];
    for index in 0..128 {
        file.write_all_at(&piece, index * piece.len() as u64).unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", net.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 300 << 10, "{kib} KiB for 1 GiB of equal bytes");
    let mut end = [0; 2];
    file.read_exact_at(&mut end, (1 << 30) - 2).unwrap();
    assert_eq!((end, file.metadata().unwrap().len()), ([7, 7], 1 << 30));
}

/// Requests to write of 256 blocks before they are closed and together, then requests to read of two readers
/// after each other.
fn requests_of(policy: CachePolicy) -> (u64, u64, u64, u64) {
    let net = mount(policy, "");
    let path = net.ready.mount.join("file");
    let file = create(&path);
    for block in 0..256 {
        file.write_all_at(&[block as u8; BLOCK], block * BLOCK as u64).unwrap();
    }
    let open = data_requests(&net.ready.mount);
    drop(file);
    let closed = data_requests(&net.ready.mount);
    assert_eq!((open.1, closed.1), (0, 0), "{policy:?} read what it wrote");
    let read = || {
        let before = data_requests(&net.ready.mount).1;
        assert_eq!(fs::read(&path).unwrap().len(), 256 * BLOCK);
        data_requests(&net.ready.mount).1 - before
    };
    (open.0, closed.0, read(), read())
}

#[test]
fn policies_differ_in_their_requests() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let none = requests_of(CachePolicy::None);
    assert_eq!((none.0, none.1), (256, 256));
    assert!(none.2 >= 8 && none.3 >= 8, "{none:?}");
    let read_only = requests_of(CachePolicy::ReadOnly);
    assert_eq!((read_only.0, read_only.1, read_only.3), (256, 256, 0));
    assert!(read_only.2 >= 8, "{read_only:?}");
    // What was written is kept, too.
    assert_eq!(requests_of(CachePolicy::WriteThrough), (256, 256, 0, 0));
    // A request has up to 128 KiB, if the flusher took nothing before; open drops what is kept.
    let write_back = requests_of(CachePolicy::WriteBack);
    assert!((8..64).contains(&write_back.1), "{write_back:?}");
    assert!(write_back.2 >= 8 && write_back.3 >= 8, "{write_back:?}");
}

#[test]
fn a_request_has_at_most_its_size() {
    if !possible() {
        return;
    }
    for policy in [CachePolicy::None, CachePolicy::WriteThrough] {
        for (option, requests) in [(",request=64K", 16), (",request=1M", 1)] {
            let net = mount(policy, option);
            let file = create(&net.ready.mount.join("file"));
            // Direct requests have 256 pages of memory at most, so one that begins within a page is divided.
            let mut data = AlignedBuffer::new(MIB);
            data.bytes_mut().copy_from_slice(&random(MIB));
            file.write_all_at(data.bytes(), 0).unwrap();
            assert_eq!(data_requests(&net.ready.mount).0, requests, "{policy:?}{option}");
            data.bytes_mut().fill(0);
            direct(&net.ready.mount.join("file")).read_exact_at(data.bytes_mut(), 0).unwrap();
            assert!(data.bytes() == random(MIB));
            assert_eq!(data_requests(&net.ready.mount).1, requests, "{policy:?}{option}");
        }
    }
}

#[test]
fn a_part_of_a_page_is_read_first_by_write_back_only() {
    if !possible() {
        return;
    }
    for (policy, reads) in
        [(CachePolicy::None, 0), (CachePolicy::WriteThrough, 0), (CachePolicy::WriteBack, 1)]
    {
        let net = mount(policy, "");
        let path = net.ready.mount.join("file");
        fs::write(&path, random(4 * BLOCK)).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        // Drops what write-through keeps of what was written.
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        let before = data_requests(&net.ready.mount).1;
        file.write_all_at(&[9; BLOCK], 2 * BLOCK as u64).unwrap();
        file.write_all_at(b"end", 4 * BLOCK as u64).unwrap();
        assert_eq!(data_requests(&net.ready.mount).1, before, "{policy:?}: a whole page, and beyond the end");
        file.write_all_at(b"part", BLOCK as u64 + 7).unwrap();
        assert_eq!(data_requests(&net.ready.mount).1 - before, reads, "{policy:?}: a part of a page");
    }
}

#[test]
fn close_and_open_are_requests() {
    if !possible() {
        return;
    }
    let net = mount(CachePolicy::None, "");
    let path = net.ready.mount.join("file");
    let file = create(&path);
    file.sync_all().unwrap();
    drop(file);
    drop(File::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    let requests = Requests::of(&net.ready.mount).unwrap();
    assert_eq!(requests, Requests::of(&net.ready.mount).unwrap(), "reading them counts");
    // RELEASE is not waited for.
    let expected = Requests { lookup: 3, create: 1, open: 1, flush: 2, fsync: 1, unlink: 1, ..requests };
    assert_eq!(requests, expected);
    assert_eq!(content(&net.ready.mount), Vec::<String>::new());
}

#[test]
fn a_reader_of_a_read_only_cache_sees_what_is_written() {
    if !possible() {
        return;
    }
    let net = mount(CachePolicy::ReadOnly, "");
    let path = net.ready.mount.join("file");
    fs::write(&path, random(MIB)).unwrap();
    let mut reader = File::open(&path).unwrap();
    let mut before = Vec::new();
    reader.read_to_end(&mut before).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    writer.write_all_at(b"anew", 70_000).unwrap();
    let mut after = [0; 4];
    reader.read_exact_at(&mut after, 70_000).unwrap();
    assert_eq!((before == random(MIB), &after), (true, b"anew"));
}

#[test]
fn a_full_store_says_so() {
    if !possible() {
        return;
    }
    let full = |result: io::Result<()>| {
        assert_eq!(result.map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
    };
    for policy in [CachePolicy::None, CachePolicy::WriteThrough, CachePolicy::WriteBack] {
        let net = mount(policy, ",size=4M");
        let file = create(&net.ready.mount.join("file"));
        file.write_all_at(&random(MIB), 0).unwrap();
        // Written back, the error comes when it is flushed.
        full(file.write_all_at(&random(4 * MIB), MIB as u64).and_then(|()| file.sync_all()));
    }
}

#[test]
fn programs_find_a_filesystem() {
    if !possible() {
        return;
    }
    for policy in CachePolicy::ALL {
        let net = mount(policy, "");
        let script = "set -e
            mkdir -p a/b; seq 1 20000 >a/b/numbers; ln -s b/numbers a/link; ln a/b/numbers a/hard
            tar cf all.tar a; mkdir copy; tar xf all.tar -C copy; diff -r a copy/a
            mv copy/a moved; echo more >>moved/b/numbers; test $(wc -l <moved/hard) = 20001
            cp moved/link plain; truncate -s 10 plain; test $(stat -c %s plain) = 10
            chmod 640 plain; test $(stat -c %a plain) = 640; touch -d 2001-02-03 plain
            test $(stat -c %y plain | cut -c1-10) = 2001-02-03
            rm -r a copy moved; rmdir nothing 2>/dev/null && exit 1; ls | sort | tr '\\n' ' '";
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script]).current_dir(&net.ready.mount).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{policy:?}: {errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "all.tar plain ", "{policy:?}");
    }
}

#[test]
#[ignore = "is run by the test below, in a process of its own"]
fn the_user_of_a_mount() {
    let Ok(ending) = std::env::var(ENDING) else { return };
    let spec = "100us,10MB/s,policy=write-back".parse().unwrap();
    let net = network_mount(Path::new(LAB), spec, None).unwrap();
    // Dirty pages that are still to be written when the end comes.
    create(&net.ready.mount.join("file")).write_all_at(&random(MIB), 0).unwrap();
    let open = create(&net.ready.mount.join("open"));
    open.write_all_at(&random(MIB), 0).unwrap();
    end_by(&ending, &net.ready);
}

#[test]
fn nothing_is_left_after_a_panic_or_a_signal() {
    if !possible() {
        return;
    }
    for ending in ENDINGS {
        let (mount, _) = ended("net::the_user_of_a_mount", ending);
        no_mount_is_left(&mount);
    }
}

#[test]
fn a_killed_mount_is_cleaned_up_by_the_next() {
    if !possible() {
        return;
    }
    let net = mount(CachePolicy::WriteBack, "");
    let left = net.ready.mount.clone();
    fs::write(left.join("file"), random(MIB)).unwrap();
    kill(Pid::from_raw(net.pid() as i32), Signal::SIGKILL).unwrap();
    drop(net);
    assert!(File::open(left.join("file")).is_err());
    drop(mount(CachePolicy::None, ""));
    no_mount_is_left(&left);
}

#[test]
fn limits_are_lowered_with_a_mount() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let limits = Some((Bytes::mib(500), Bytes::mib(650)));
    let net = network_mount(Path::new(LAB), spec(CachePolicy::WriteBack, ""), limits).unwrap();
    assert_eq!(sysctl("dirty_bytes"), Bytes::mib(650).0);
    drop(net);
    assert_ne!(sysctl("dirty_bytes"), Bytes::mib(650).0);
}
