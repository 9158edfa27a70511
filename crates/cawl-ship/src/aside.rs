//! Files that their receiver refused: kept for a person to look at, and counted for the daemon.
//!
//! `.cawl-refused/NAME` is the file, `NAME.why` has the reason, and `count` has `files=N rows=N`, all that
//! were refused since the folder was made. cawld reads it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The folder's name, in that of the files.
pub const NAME: &str = ".cawl-refused";
/// Bytes that are kept; the earliest go.
const KEPT: u64 = 16 << 20;

/// Where refused files of a folder are.
pub fn folder(of: &Path) -> PathBuf {
    of.join(NAME)
}

/// Counts files and rows.
pub fn count(of: &Path, files: u64, rows: u64) -> anyhow::Result<()> {
    let (folder, path) = (folder(of), folder(of).join("count"));
    let text = fs::read_to_string(&path).unwrap_or_default();
    let known = |key: &str| {
        let word = text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    let text = format!("files={} rows={}\n", known("files") + files, known("rows") + rows);
    let write = || {
        fs::create_dir_all(&folder)?;
        let new = folder.join("count.new");
        fs::write(&new, text)?;
        fs::rename(new, &path)
    };
    write().with_context(|| format!("cannot count in {}", path.display()))
}

/// Sets a file aside.
pub fn set(of: &Path, file: &Path, why: &str) -> anyhow::Result<()> {
    let folder = folder(of);
    let name = file.file_name().unwrap_or_default();
    let mut reason = name.to_owned();
    reason.push(".why");
    let set = || {
        fs::write(folder.join(reason), format!("{why}\n"))?;
        fs::rename(file, folder.join(name))?;
        let mut kept: Vec<_> = fs::read_dir(&folder)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let meta = entry.metadata().ok().filter(|_| entry.file_name() != "count")?;
                Some((meta.modified().ok()?, entry.path(), meta.len().next_multiple_of(4096)))
            })
            .collect();
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(.., bytes)| bytes).sum();
        for (_, path, size) in kept {
            if bytes <= KEPT {
                break;
            }
            fs::remove_file(path)?;
            bytes -= size;
        }
        std::io::Result::Ok(())
    };
    set().with_context(|| format!("cannot set {} aside", file.display()))
}
