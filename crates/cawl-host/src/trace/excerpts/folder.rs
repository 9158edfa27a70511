//! The folder of excerpts, which never takes more than its room.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Most files, so that a folder of small ones stays readable.
const FILES: usize = 1000;

/// A file takes whole blocks of the filesystem.
const BLOCK: u64 = 4096;

/// The folder. What else lies in it is left alone, and not counted.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    room: u64,
    /// Numbers and bytes of the excerpts, the oldest first.
    files: VecDeque<(u64, u64)>,
    next: u64,
    /// Locked: two daemons would remove each other's files.
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is missing, and looks at what it has.
    pub fn open(path: &Path, room: u64) -> io::Result<Folder> {
        let of_folder =
            |error| named(error, &format!("the folder {} cannot be used; name another one", path.display()));
        make(path).map_err(of_folder)?;
        let lock = File::open(path).map_err(of_folder)?;
        lock.try_lock().map_err(|error| {
            named(
                error.into(),
                &format!("another daemon keeps its traces in {}; name another folder", path.display()),
            )
        })?;
        let mut folder = Folder { path: path.to_owned(), room, files: VecDeque::new(), next: 1, _lock: lock };
        folder.scan().map_err(of_folder)?;
        folder.make_room(0)?;
        Ok(folder)
    }

    fn scan(&mut self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(number) {
                files.push((number, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        self.next = files.last().map_or(self.next, |(last, _)| self.next.max(last + 1));
        self.files = files.into();
        Ok(())
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("excerpt-{number:06}.trace"))
    }

    /// Creates the next excerpt, empty.
    pub fn create(&mut self) -> io::Result<(File, PathBuf)> {
        // Files, or the folder, may have been removed.
        make(&self.path)?;
        self.scan()?;
        self.make_room(1)?;
        let path = self.file(self.next);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        self.files.push_back((self.next, 0));
        self.next += 1;
        Ok((file, path))
    }

    /// Most bytes of an excerpt.
    pub fn most(&self) -> u64 {
        self.room / 4
    }

    /// Room for so many more bytes in the latest excerpt: the oldest go.
    pub fn make_room(&mut self, more: u64) -> io::Result<()> {
        let taken = |bytes: u64| bytes.next_multiple_of(BLOCK);
        loop {
            let latest = self.files.back().map_or(0, |(_, bytes)| *bytes);
            let all: u64 = self.files.iter().map(|(_, bytes)| taken(*bytes)).sum();
            let wanted = all - taken(latest) + taken(latest + more);
            if wanted <= self.room && self.files.len() < FILES {
                return Ok(());
            }
            let oldest = self.files.front().filter(|_| self.files.len() > 1);
            let Some((oldest, _)) = oldest else {
                return Err(io::Error::other("its room is too small"));
            };
            let path = self.file(*oldest);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(named(error, &format!("{} cannot be removed", path.display())));
                }
                _ => drop(self.files.pop_front()),
            }
        }
    }

    /// The latest excerpt has this length now.
    pub fn has(&mut self, length: u64) {
        if let Some((_, bytes)) = self.files.back_mut() {
            *bytes = length;
        }
    }

    /// Removes the latest excerpt.
    pub fn discard_latest(&mut self) {
        if let Some((number, _)) = self.files.pop_back() {
            drop(fs::remove_file(self.file(number)));
        }
    }

    /// The number of excerpts, and their bytes.
    pub fn sums(&self) -> (u64, u64) {
        (self.files.len() as u64, self.files.iter().map(|(_, bytes)| bytes).sum())
    }
}

/// A folder for its owner alone: traces name the files of programs.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The number in the name of an excerpt.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("excerpt-")?.strip_suffix(".trace")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn named(error: io::Error, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
