//! A bounded folder of files that others take away: tables of calls, sums by minute.
//!
//! The laws of this module: **a file is whole or absent, no name is given twice, and no row is missing
//! uncounted.** A file is written beside the folder's partitions, synced and then renamed. Its name has the
//! node, the writer's start and a number. A ledger beside the files counts rows, so that the next writer
//! knows what one that was killed had not written.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::clock::{Clocks, utc};
use crate::output::FOR_ITS_OWNER;

/// A file takes whole blocks of the filesystem.
const BLOCK: u64 = 4096;
/// Length of a start, as in names.
const START: usize = "20261129T143103Z-0123abcd".len();
/// How names of what is no whole file begin; readers of tables pass such names over.
const HIDDEN: &str = ".cawl-";
/// Where files are that a receiver refused, with their number in the file `count`: `files=1 rows=20`. Who
/// takes files away makes and bounds it, beside the room of the other files.
const REFUSED: &str = ".cawl-refused";
/// Why files are not taken away at present, as who takes them away has it; absent while they are.
const UNDELIVERED: &str = ".cawl-undelivered";
/// Interval of looks at what was taken away.
const LOOK: Duration = Duration::from_secs(1);
/// A ledger has this length always, so that a full disk does not keep it from being written again.
const LEDGER: usize = 160;

/// What became of the rows that were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolStatus {
    /// Rows taken since the start.
    pub rows_taken: u64,
    /// Rows in whole files since the start.
    pub rows_written: u64,
    /// Rows left out since the start, because the folder or the way to it was full.
    pub rows_dropped: u64,
    /// Rows that writers before had taken and not written when they were killed.
    pub rows_lost: u64,
    /// Whole files since the start.
    pub files_written: u64,
    /// Files that could not be written.
    pub files_dropped: u64,
    /// Rows written whose receiver refused them, since the start; as of the latest look.
    pub rows_refused: u64,
    /// Files that it refused as a whole.
    pub files_refused: u64,
    /// Bytes of files in the folder, as of the latest look.
    pub bytes: u64,
    /// The latest file.
    pub latest: Option<PathBuf>,
    /// Why the latest attempt to write failed, if it did.
    pub failure: Option<String>,
    /// Why files are not taken away, if someone tries; as of the latest look.
    pub undelivered: Option<String>,
}

/// A status that others read.
pub type Shared = Arc<Mutex<SpoolStatus>>;

/// Locks a status.
pub fn lock(status: &Mutex<SpoolStatus>) -> MutexGuard<'_, SpoolStatus> {
    status.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where files go, and how they are called.
#[derive(Clone, Debug)]
pub struct SpoolOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The part of the folder that has this writer's files, and whose bytes are bounded; empty for all of it.
    pub own: PathBuf,
    /// Name of the node.
    pub node: String,
    /// How names end, with the dot.
    pub ending: &'static str,
    /// Bytes that the files take at most.
    pub room: u64,
}

/// The folder, and its one writer.
#[derive(Debug)]
pub struct Spool {
    options: SpoolOptions,
    /// `NODE-START`.
    name: String,
    start: String,
    /// Number of the next file, from 1.
    next: u64,
    ledger: Option<File>,
    ledger_path: PathBuf,
    /// Ledgers of writers that have ended, and what they had not written.
    earlier: Vec<Earlier>,
    /// Beginning of the latest row, in ns of CLOCK_MONOTONIC.
    until: u64,
    /// Files and rows refused before the start.
    refused_before: [u64; 2],
    looked: Instant,
    status: Shared,
}

/// A writer that was killed, or had dropped rows.
#[derive(Debug)]
struct Earlier {
    ledger: PathBuf,
    start: String,
    lost: u64,
    dropped: u64,
    until: u64,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Begun(NamedTempFile);

impl Begun {
    /// The open file.
    pub fn file(&self) -> &File {
        self.0.as_file()
    }
}

/// The program that takes files away, beside this one or in PATH; the error says how to get it.
pub fn shipper() -> io::Result<PathBuf> {
    const PROGRAM: &str = "cawl-ship";
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_path).find(|path| path.is_file()).ok_or_else(|| {
        let why = format!(
            "the program {PROGRAM} is neither beside this one nor in PATH; install it with cargo install --path \
             crates/{PROGRAM}"
        );
        io::Error::new(ErrorKind::NotFound, why)
    })
}

/// A name for paths and keys: letters, digits, `.`, `_` and `-` stay, all else is `%XX` as in partitions of
/// Hive.
pub fn encoded(name: &str) -> String {
    let keeps = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let text = |byte: u8| if keeps(byte) { (byte as char).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(text).collect()
}

impl Spool {
    /// Makes the folder if it is missing, and looks at what writers of this node that were killed left.
    pub fn open(options: SpoolOptions, status: Shared) -> io::Result<Spool> {
        make(&options.folder)?;
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let [year, month, day, hour, minute, second] = utc((Clocks::now().real.0 / 1_000_000_000) as i64);
        let start = format!(
            "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{:08x}",
            u32::from_le_bytes(random)
        );
        let node = encoded(&options.node);
        let ledger_path = options.folder.join(format!("{HIDDEN}{node}-{start}.ledger"));
        let mut spool = Spool {
            name: format!("{node}-{start}"),
            start,
            next: 1,
            ledger: None,
            ledger_path,
            earlier: Vec::new(),
            until: 0,
            refused_before: refused(&options.folder),
            looked: Instant::now(),
            status,
            options,
        };
        spool.recover(&node)?;
        spool.count()?;
        let ledger = File::options().write(true).create_new(true).open(&spool.ledger_path)?;
        ledger.set_permissions(fs::Permissions::from_mode(FOR_ITS_OWNER))?;
        ledger.try_lock()?;
        spool.ledger = Some(ledger);
        spool.tell(0);
        Ok(spool)
    }

    /// Name of the node.
    pub fn node(&self) -> &str {
        &self.options.node
    }

    /// When this writer began, as names have it.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Number of the next file.
    pub fn sequence(&self) -> u64 {
        self.next
    }

    /// What a file with `rows` rows says of this writer: what is in files, this one included, and what is in
    /// none.
    pub fn facts(&self, rows: u64) -> Vec<(&'static str, String)> {
        let status = lock(&self.status);
        let mut facts = vec![
            ("node", self.options.node.clone()),
            ("daemon_start", self.start.clone()),
            ("sequence", self.next.to_string()),
            ("rows_written", (status.rows_written + rows).to_string()),
            ("rows_dropped", status.rows_dropped.to_string()),
            ("files_dropped", status.files_dropped.to_string()),
        ];
        if !self.earlier.is_empty() {
            let told = self.earlier.iter().map(|Earlier { start, lost, dropped, until, .. }| {
                format!("{start}: {lost} rows not written when it ended, {dropped} dropped before; last row at {until} ns")
            });
            facts.push(("rows_lost_before", status.rows_lost.to_string()));
            facts.push(("ended_before", told.collect::<Vec<_>>().join("\n")));
        }
        facts
    }

    /// `rows` rows were taken, the latest of which began at `until` (CLOCK_MONOTONIC, ns).
    pub fn take(&mut self, rows: u64, until: u64) {
        lock(&self.status).rows_taken += rows;
        self.until = self.until.max(until);
        self.tell(0);
    }

    /// Begins a file.
    pub fn begin(&self) -> io::Result<Begun> {
        make(&self.options.folder)?;
        let name = format!("{HIDDEN}{}-{:06}", self.name, self.next);
        let permissions = fs::Permissions::from_mode(FOR_ITS_OWNER);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&name).suffix(".tmp").rand_bytes(0).permissions(permissions);
        builder.tempfile_in(&self.options.folder).map(Begun)
    }

    /// Gives a file of `rows` rows its name, in a partition of the folder. On an error nothing is left of it,
    /// and its rows are still to be counted ([`Spool::lose`]).
    pub fn keep(&mut self, begun: Begun, partition: &Path, rows: u64) -> io::Result<()> {
        let bytes = begun.file().metadata()?.len();
        self.warn_refused();
        if !self.has_room(bytes) {
            self.count()?;
            if !self.has_room(bytes) {
                let room = cawl_core::Bytes(self.options.room);
                let folder = self.options.folder.join(&self.options.own);
                let why = format!("{} has its {room} of files already; take some away", folder.display());
                return Err(io::Error::new(ErrorKind::StorageFull, why));
            }
        }
        begun.file().sync_all()?;
        // From now on a writer that is killed has written them, if the file has lost its first name.
        self.tell(rows);
        let folder = self.options.folder.join(partition);
        let path = folder.join(format!("{}-{:06}{}", self.name, self.next, self.options.ending));
        let mut file = begun.0;
        for attempt in 0.. {
            make(&folder)?;
            match file.persist_noclobber(&path) {
                Ok(_) => break,
                // Who takes files away removes empty folders.
                Err(error) if error.error.kind() == ErrorKind::NotFound && attempt < 3 => file = error.file,
                Err(error) => return Err(error.error),
            }
        }
        // It is there, whatever comes: its name is never given again.
        self.next += 1;
        let ours = folder.ancestors().take_while(|folder| folder.starts_with(&self.options.folder));
        let synced = ours.map(|folder| File::open(folder)?.sync_all());
        // Who takes files away may have been faster.
        let failed = synced.filter_map(Result::err).find(|error| error.kind() != ErrorKind::NotFound);
        {
            let mut status = lock(&self.status);
            status.rows_written += rows;
            status.files_written += 1;
            status.bytes += taken(bytes);
            status.latest = Some(path);
            status.failure = failed.map(|error| format!("{}: {error}", folder.display()));
        }
        self.tell(0);
        // It has told of them.
        for earlier in std::mem::take(&mut self.earlier) {
            drop(fs::remove_file(earlier.ledger));
        }
        Ok(())
    }

    /// Rows are in no file; `file`: the reason, if it is a file that could not be written.
    pub fn lose(&mut self, rows: u64, file: Option<&io::Error>) {
        {
            let mut status = lock(&self.status);
            status.rows_dropped += rows;
            if let Some(error) = file {
                status.files_dropped += 1;
                status.failure = Some(error.to_string());
            }
        }
        self.tell(0);
    }

    /// Looks at what was taken away, once in a while.
    pub fn poll(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.warn_refused();
            // The next file's error says why the folder cannot be read.
            drop(self.count());
            self.looked = Instant::now();
        }
    }

    /// What who takes files away tells.
    fn warn_refused(&self) {
        let [files, rows] = refused(&self.options.folder);
        let why = fs::read_to_string(self.options.folder.join(UNDELIVERED)).unwrap_or_default();
        let mut status = lock(&self.status);
        status.files_refused = files.saturating_sub(self.refused_before[0]);
        status.rows_refused = rows.saturating_sub(self.refused_before[1]);
        status.undelivered = Some(why.trim().to_owned()).filter(|why| !why.is_empty());
    }

    fn has_room(&self, more: u64) -> bool {
        lock(&self.status).bytes + taken(more) <= self.options.room
    }

    /// Counts the bytes in the folder: files may have been taken away.
    fn count(&mut self) -> io::Result<()> {
        let (mut bytes, mut folders) = (0, vec![self.options.folder.join(&self.options.own)]);
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                match entry.metadata() {
                    _ if entry.file_name().as_encoded_bytes().starts_with(HIDDEN.as_bytes()) => {}
                    Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                    Ok(meta) => bytes += taken(meta.len()),
                    // Taken away just now.
                    Err(_) => {}
                }
            }
        }
        lock(&self.status).bytes = bytes;
        Ok(())
    }

    /// Writes the ledger. A failure is none of the rows'.
    fn tell(&mut self, pending: u64) {
        let Some(ledger) = &self.ledger else { return };
        let SpoolStatus { rows_taken, rows_written, rows_dropped, .. } = *lock(&self.status);
        let text = format!(
            "taken={rows_taken} written={rows_written} dropped={rows_dropped} file={} pending={pending} until={}",
            self.next, self.until
        );
        drop(ledger.write_all_at(format!("{text:<width$}\n", width = LEDGER - 1).as_bytes(), 0));
    }

    /// Reads the ledgers of writers that were killed, and removes the files that they had begun.
    fn recover(&mut self, node: &str) -> io::Result<()> {
        let prefix = format!("{HIDDEN}{node}-");
        let names = fs::read_dir(&self.options.folder)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<String> = names.filter(|name| name.starts_with(&prefix)).collect();
        for name in &names {
            let Some(start) =
                name[prefix.len()..].strip_suffix(".ledger").filter(|start| start.len() == START)
            else {
                continue;
            };
            let ledger = self.options.folder.join(name);
            let Ok(file) = File::open(&ledger) else { continue };
            // Its writer lives.
            if file.try_lock().is_err() {
                continue;
            }
            let text = fs::read_to_string(&ledger).unwrap_or_default();
            let read = |key| number(&text, key);
            let begun = format!("{prefix}{start}-");
            let was_kept = !names.contains(&format!("{begun}{:06}.tmp", read("file")));
            let written = read("written") + if was_kept { read("pending") } else { 0 };
            let dropped = read("dropped");
            let lost = read("taken").saturating_sub(written).saturating_sub(dropped);
            for begun in names.iter().filter(|name| name.starts_with(&begun) && name.ends_with(".tmp")) {
                drop(fs::remove_file(self.options.folder.join(begun)));
            }
            lock(&self.status).rows_lost += lost;
            self.earlier.push(Earlier {
                ledger,
                start: start.to_owned(),
                lost,
                dropped,
                until: read("until"),
            });
        }
        Ok(())
    }
}

impl Drop for Spool {
    /// The ledger stays where it counts what no file does.
    fn drop(&mut self) {
        let SpoolStatus { rows_taken, rows_written, .. } = *lock(&self.status);
        if rows_taken == rows_written {
            drop(fs::remove_file(&self.ledger_path));
        }
    }
}

/// The number of a key in `key=number key=number …`.
fn number(text: &str, key: &str) -> u64 {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Files refused as a whole, and rows refused.
fn refused(folder: &Path) -> [u64; 2] {
    let text = fs::read_to_string(folder.join(REFUSED).join("count")).unwrap_or_default();
    ["files", "rows"].map(|key| number(&text, key))
}

fn taken(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK)
}

/// A folder for its owner alone: tables name the files of programs.
fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests;
