//! The files that a command writes.
//!
//! The law: **what is not of the same kind is not overwritten.** A report takes the place of a report, a
//! profile that of a profile; whatever else stands there stays, and the error names the remedy. It is asked
//! before the work that makes the content. Traces have the same law where they are created (cawl-host).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use nix::unistd::{AccessFlags, access};

/// Bytes at a file's begin, and at its end, by which its kind is told.
const HEAD: u64 = 4096;
const TAIL: u64 = 64 << 10;

/// A kind of file.
pub struct Kind {
    /// What the error calls it.
    pub name: &'static str,
    /// True for the first and the last bytes of such a file.
    pub is: fn(&str, &str) -> bool,
}

/// The profile of a machine.
pub const PROFILE: Kind = Kind { name: "profile", is: |head, _| head.starts_with("schema = ") };

/// Refuses to write a file of this kind at `path` where that cannot be done, or would overwrite something
/// else.
pub fn check(path: &Path, kind: &Kind) -> anyhow::Result<()> {
    let shown = path.display();
    let about = || format!("cannot write {shown}; name another file");
    let Ok(meta) = fs::metadata(path) else {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        ensure!(folder.is_dir(), "cannot write {shown}: there is no folder {}; create it", folder.display());
        return access(folder, AccessFlags::W_OK).with_context(about);
    };
    ensure!(!meta.is_dir(), "cannot write {shown}: it is a folder; name a file in it");
    access(path, AccessFlags::W_OK).with_context(about)?;
    // One that a shell made (`>(…)`) has no path, and its reader already.
    let waits = meta.file_type().is_fifo() && fs::canonicalize(path).is_ok();
    ensure!(!waits, "cannot write {shown}: it is a named pipe, which waits for a reader; name a file");
    // A pipe or a device takes anything; an empty file is there to be written.
    if !meta.is_file() || meta.len() == 0 {
        return Ok(());
    }
    let part = |from, length| {
        let mut part = Vec::new();
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        file.take(length).read_to_end(&mut part)?;
        io::Result::Ok(String::from_utf8_lossy(&part).into_owned())
    };
    let head = part(0, HEAD).with_context(about)?;
    let tail = part(meta.len().saturating_sub(TAIL), TAIL).with_context(about)?;
    if !(kind.is)(&head, &tail) {
        bail!("{shown} exists and is no {}; name another file, or remove it first", kind.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_of_the_same_kind_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let notes = dir.path().join("c.txt");
        fs::write(&notes, "dear diary").unwrap();
        let why = check(&notes, &PROFILE).unwrap_err().to_string();
        assert!(why.contains("c.txt exists and is no profile") && why.contains("remove it first"), "{why}");
        fs::write(&notes, "").unwrap();
        check(&notes, &PROFILE).unwrap();
        fs::write(&notes, cawl_core::HostProfile::uncalibrated().to_toml()).unwrap();
        check(&notes, &PROFILE).unwrap();
        check(&dir.path().join("new.txt"), &PROFILE).unwrap();
        check(Path::new("/dev/null"), &PROFILE).unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (path, says) in
            [("no/x.toml", "there is no folder"), ("", "it is a folder"), ("pipe", "it is a named pipe")]
        {
            let why = check(&dir.path().join(path), &PROFILE).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
