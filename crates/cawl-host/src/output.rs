//! Files that programs of cawl write: reports, exports, profiles, traces of an importer.
//!
//! The law of this module: **a file is complete under its name, or absent.** It is written beside its name,
//! in the same folder, and gets the name when all of it was taken; on any failure what was written is removed
//! and the file that had the name before stays as it was. What is no plain file (a pipe, a device, a
//! descriptor in /proc), and a file in a folder where nothing can be created, is written in place.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Mode of what any user may read, as far as the user's umask allows.
pub const FOR_ALL: u32 = 0o666;
/// Mode of what names the files of programs.
pub const FOR_ITS_OWNER: u32 = 0o600;

/// A file that is being written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// To be renamed to `path`.
    Beside(NamedTempFile),
    InPlace(File),
}

impl Output {
    /// Begins a file at `path`; a new one gets this mode, one that exists keeps its own, and its owner if
    /// that is possible. A symbolic link stays one.
    pub fn create(path: &Path, mode: u32) -> io::Result<Output> {
        let is_descriptor =
            ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|place| path.starts_with(place));
        let in_place = || {
            let target = Target::InPlace(File::options().write(true).truncate(true).open(path)?);
            Ok(Output { path: path.to_owned(), target })
        };
        let before = fs::metadata(path).ok();
        if is_descriptor || before.as_ref().is_some_and(|before| !before.is_file()) {
            return in_place();
        }
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let permissions = Permissions::from_mode(mode);
        let beside = tempfile::Builder::new().prefix(".cawl-").permissions(permissions).tempfile_in(folder);
        let beside = match (beside, &before) {
            (Err(error), Some(_))
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                return in_place();
            }
            (beside, _) => beside?,
        };
        if let Some(before) = before {
            beside.as_file().set_permissions(Permissions::from_mode(before.mode() & 0o777))?;
            drop(fchown(beside.as_file(), Some(before.uid()), Some(before.gid())));
        }
        Ok(Output { path: path.clone(), target: Target::Beside(beside) })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        match &self.target {
            Target::Beside(file) => file.as_file(),
            Target::InPlace(file) => file,
        }
    }

    /// Gives the file its name; all of it must have been written to [`Output::file`].
    pub fn keep(self) -> io::Result<()> {
        self.finish(true)
    }

    /// Gives the file its name, unless there is such a file by now ([`ErrorKind::AlreadyExists`]).
    pub fn keep_new(self) -> io::Result<()> {
        self.finish(false)
    }

    fn finish(self, may_replace: bool) -> io::Result<()> {
        match self.target {
            // A filesystem on a server says only now that it is full.
            Target::InPlace(file) => Ok(nix::unistd::close(file.into_raw_fd())?),
            Target::Beside(file) => {
                nix::unistd::close(file.as_file().try_clone()?.into_raw_fd())?;
                let kept =
                    if may_replace { file.persist(&self.path) } else { file.persist_noclobber(&self.path) };
                kept.map(drop).map_err(|error| error.error)
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a whole file, whose mode is `mode` if it is new.
pub fn write(path: impl AsRef<Path>, mode: u32, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut output = Output::create(path.as_ref(), mode)?;
    output.write_all(bytes.as_ref())?;
    output.keep()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a folder, and the text of `f`.
    fn found(folder: &Path) -> (Vec<String>, String) {
        let names = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (names, fs::read_to_string(folder.join("f")).unwrap_or_default())
    }

    #[test]
    fn a_file_is_complete_or_absent_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut begun = Output::create(&path, FOR_ALL).unwrap();
        begun.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(begun);
        assert_eq!(found(dir.path()), (vec![], String::new()));
        write(&path, FOR_ITS_OWNER, "first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut begun = Output::create(&path, FOR_ALL).unwrap();
        begun.write_all(b"half").unwrap();
        drop(begun);
        assert_eq!(found(dir.path()), (vec!["f".to_owned()], "first".to_owned()));
        // A link to it stays one, and the file its mode.
        std::os::unix::fs::symlink("f", dir.path().join("link")).unwrap();
        write(dir.path().join("link"), FOR_ALL, "second").unwrap();
        assert_eq!(found(dir.path()), (vec!["f".to_owned(), "link".to_owned()], "second".to_owned()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        let refused = Output::create(&path, FOR_ALL).unwrap().keep_new().unwrap_err();
        assert_eq!((refused.kind(), found(dir.path()).1), (ErrorKind::AlreadyExists, "second".to_owned()));
        assert_eq!(found(dir.path()).0.len(), 2, "what could not be kept is removed");
    }

    #[test]
    fn a_device_is_written_in_place_and_says_that_it_is_full() {
        let full = write(Path::new("/dev/full"), FOR_ALL, "text").unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        write(Path::new("/dev/null"), FOR_ALL, "text").unwrap();
        assert!(fs::metadata("/dev/null").is_ok_and(|meta| !meta.is_file()));
        let missing = write(Path::new("/no/such/folder/f"), FOR_ALL, "text").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    }
}
