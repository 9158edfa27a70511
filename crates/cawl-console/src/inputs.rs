//! The files that a command reads: profiles, and packed tables.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;
use cawl_core::HostProfile;
use cawl_host::profiles;
use flate2::read::MultiGzDecoder;

use crate::tell;

/// Reads a profile given on the command line.
pub fn read_profile(path: &Path) -> anyhow::Result<HostProfile> {
    Ok(stored_profile(path)?.as_learned())
}

/// A stored profile: measured constants, and learned ones beside them.
pub fn stored_profile(path: &Path) -> anyhow::Result<HostProfile> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the profile {}", path.display()))?;
    HostProfile::from_toml(&text).with_context(|| format!("cannot use the profile {}", path.display()))
}

/// The profile for a folder, this one if none is named. What it lacks is told by `program`: `defaults`, if
/// there is none.
pub fn profile_of(program: &str, folder: Option<&Path>, defaults: &str) -> HostProfile {
    let chosen = profiles::choose(folder.unwrap_or(Path::new(".")));
    let none = || format!("no profile of this machine; {defaults} (see cawl-cli calibrate)");
    if let Some(note) = chosen.note.or_else(|| chosen.file.is_none().then(none)) {
        tell(format_args!("{program}: {note}"));
    }
    chosen.profile
}

/// The content of a file, unpacked if it begins with gzip's magic number.
pub fn unpacked(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(1 << 18, file);
    let is_packed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_packed {
        Box::new(BufReader::with_capacity(1 << 18, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}
