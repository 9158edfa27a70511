//! The files that a command writes.
//!
//! The law: **what is not of the same kind is not overwritten.** A report takes the place of a report, a
//! profile that of a profile; whatever else stands there stays, and the error names the remedy. It is asked
//! before the work that makes the content. Traces have the same law where they are created, too (cawl-host).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use cawl_host::trace::TRACE_MAGIC;
use nix::unistd::{AccessFlags, access};

use crate::export;

/// Bytes at a file's begin, and at its end, by which its kind is told.
const HEAD: u64 = 4096;
const TAIL: u64 = 64 << 10;

/// A kind of file: its name, and whether what begins and ends so is one.
pub struct Kind {
    name: &'static str,
    is: fn(&str, &str) -> bool,
}

pub const PROFILE: Kind = Kind { name: "profile", is: |head, _| head.starts_with("schema = ") };
pub const TRACE: Kind = Kind { name: "trace", is: |head, _| head.as_bytes().starts_with(&TRACE_MAGIC) };
pub const PICTURE: Kind = Kind { name: "picture of cawl", is: |head, _| head.starts_with("<svg") };
pub const COSTS: Kind =
    Kind { name: "table of cawl", is: |head, _| head.starts_with("profile,pattern,order,") };
pub const PAGE: Kind = Kind { name: "manual page of cawl", is: |head, _| head.contains("\n.TH cawl") };
pub const EXPORT: Kind = Kind { name: "export of cawl", is: export::is_one };

/// The kind of a report with this name.
pub fn report(path: &Path) -> Kind {
    let is: fn(&str, &str) -> bool = match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => {
            |head, _| head.starts_with('{') && head.contains("\"schema\":") && head.contains("\"mode\":")
        }
        Some("html") => |head, _| head.starts_with("<!DOCTYPE html>") && head.contains("<title>cawl: "),
        _ => |head, _| ["cawl  ", "calls  "].iter().any(|begin| head.starts_with(begin)),
    };
    Kind { name: "report of cawl", is }
}

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
        let profile = cawl_core::HostProfile::uncalibrated().to_toml();
        for (name, text, is_ours) in [
            ("a.txt", "cawl       1 s in write, 1 ms would do\n", true),
            ("b.txt", "calls      3 calls, 3 B to files in 1 ms; assimilated\n", true),
            ("c.txt", "dear diary", false),
            ("d.json", "{\n  \"schema\": 1,\n  \"mode\": \"lockstep\"", true),
            ("e.json", "{\"schema\": 1, \"name\": \"mine\"}", false),
            ("f.html", "<!DOCTYPE html><html lang=\"en\"><head><title>cawl: dd</title>", true),
            ("g.html", "<!DOCTYPE html><html><title>mine</title>", false),
            ("empty.html", "", true),
        ] {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            let checked = check(&file, &report(&file));
            assert_eq!(checked.is_ok(), is_ours, "{name}: {checked:?}");
        }
        let notes = dir.path().join("c.txt");
        for kind in [PROFILE, TRACE, PICTURE, COSTS, PAGE, EXPORT] {
            let why = check(&notes, &kind).unwrap_err().to_string();
            assert!(why.contains("c.txt exists and is no ") && why.contains("remove it first"), "{why}");
        }
        for strangers in [
            "\nmy shopping list\n",
            "\n2: clean the page cache\n",
            "PAR1 is where we meet\nPAR1",
            "call,who\n",
            "call,start_ns,duration_ns,op\n",
            "{\"call\":1}\n",
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"X\"}]}",
        ] {
            fs::write(&notes, strangers).unwrap();
            assert!(check(&notes, &EXPORT).is_err(), "{strangers}");
        }
        fs::write(&notes, profile).unwrap();
        check(&notes, &PROFILE).unwrap();
        check(&dir.path().join("new.txt"), &PROFILE).unwrap();
        check(Path::new("/dev/null"), &PROFILE).unwrap();
        for (path, says) in [("no/x.html", "there is no folder"), ("", "it is a folder")] {
            let path = dir.path().join(path);
            let why = check(&path, &report(&path)).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
