//! The folder that files are taken from.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::{aside, tell};

/// Interval of looks at a folder that is followed.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after a failure: at first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Attempts where the folder is not followed.
const ATTEMPTS: u32 = 4;
/// Time for the rest when standard input has ended.
const REST: Duration = Duration::from_secs(10);
/// Time beyond it for a delivery that has begun.
const GRACE: Duration = Duration::from_secs(1);
/// Beginning of a daemon, as names of files have it between node and number.
const START: &str = "00000000T000000Z-00000000";

/// The file with the reason why files are not delivered.
const UNDELIVERED: &str = ".cawl-undelivered";

/// Longest wait that a receiver can ask for.
const MAX: Duration = Duration::from_secs(300);

/// Takes files.
pub trait Deliver {
    /// Delivers a file, whose path in the folder is `key`. It may have been delivered before. Returns how
    /// many of its rows were refused.
    fn deliver(&mut self, file: &Path, key: &str) -> Result<u64, Failure>;
}

/// Why a file was not taken.
pub enum Failure {
    /// It may be taken later: after this wait, where the receiver named one.
    Later(anyhow::Error, Option<Duration>),
    /// It will never be, with so many rows. Those behind it may.
    Refused(anyhow::Error, u64),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Later(error, None)
    }
}

/// Why a pass did not come to its end, and the wait that was asked for.
type Stop = (anyhow::Error, Option<Duration>);

/// Delivers the files in a folder, whose names end so, the earliest first, and removes them.
pub fn ship(folder: &Path, ending: &str, follow: bool, to: &mut dyn Deliver) -> anyhow::Result<()> {
    let cannot = || format!("cannot use the folder {}", folder.display());
    // Two at a time would deliver each file twice: no harm, but no use.
    let lock = File::open(folder).with_context(cannot)?;
    let input = follow.then(|| input(folder));
    if lock.try_lock().is_err() {
        if !follow {
            bail!("another cawl-ship delivers the files of {}", folder.display());
        }
        lock.lock().with_context(cannot)?;
    }
    let (mut wait, mut attempts, mut told) = (AGAIN.0, 0, String::new());
    let (mut until, mut refused) = (None, 0);
    loop {
        let mut not_before = None;
        let delivered = pass(folder, ending, to, &mut refused);
        let pause = match delivered {
            Ok(()) if input.is_none() || until.is_some() => {
                ensure!(
                    refused == 0,
                    "{refused} files were refused; they are in {}",
                    aside::folder(folder).display()
                );
                others(folder).iter().for_each(|name| {
                    tell(&format!("{name} was not taken: it is no file of cawld for this target"))
                });
                return Ok(());
            }
            Ok(()) => {
                if !told.is_empty() {
                    tell("files are delivered again");
                }
                undelivered(folder, "");
                (wait, attempts, told) = (AGAIN.0, 0, String::new());
                LOOK
            }
            Err((error, asked)) => {
                attempts += 1;
                let asked = asked.map(|asked| asked.min(MAX));
                not_before = asked.map(|asked| Instant::now() + asked);
                let is_over = until.is_some_and(|until| not_before.unwrap_or_else(Instant::now) >= until);
                if is_over || input.is_none() && attempts == ATTEMPTS {
                    return Err(error);
                }
                let why = format!("{error:#}");
                undelivered(folder, &why);
                if why != told {
                    tell(&format!("{why}; it is tried again"));
                    told = why;
                }
                let pause = if input.is_some() && until.is_none() { wait } else { wait.min(REST / 10) };
                wait = (wait * 2).min(AGAIN.1);
                asked.map_or(pause, |asked| asked.max(pause))
            }
        };
        match &input {
            Some(input) if until.is_none() => {
                if let Ok(end) = input.recv_timeout(pause) {
                    // The receiver wants its wait also now.
                    if let Some(not_before) = not_before {
                        ensure!(not_before < end, "{told}");
                        std::thread::sleep(not_before.saturating_duration_since(Instant::now()));
                    }
                    until = Some(end);
                }
            }
            _ => std::thread::sleep(pause),
        }
    }
}

/// Delivers what is there, and counts files that are refused.
fn pass(folder: &Path, ending: &str, to: &mut dyn Deliver, refused: &mut u64) -> Result<(), Stop> {
    let stop = |error| (error, None);
    let files = whole(folder, ending).with_context(|| format!("cannot read the folder {}", folder.display()));
    for file in files.map_err(stop)? {
        let key = file.strip_prefix(folder).unwrap_or(&file);
        let key = key.to_str().with_context(|| format!("the name of {} is no UTF-8", file.display()));
        match to.deliver(&file, key.map_err(stop)?) {
            Ok(0) => {}
            Ok(rows) => aside::count(folder, 0, rows).map_err(stop)?,
            Err(Failure::Later(error, asked)) => return Err((error, asked)),
            Err(Failure::Refused(error, rows)) => {
                let why = format!("{error:#}");
                tell(&format!("{why}; it is set aside"));
                *refused += 1;
                aside::count(folder, 1, rows).and_then(|()| aside::set(folder, &file, &why)).map_err(stop)?;
            }
        }
        let removed = remove(folder, &file);
        removed
            .with_context(|| format!("{} is delivered, but cannot be removed", file.display()))
            .map_err(stop)?;
    }
    Ok(())
}

/// The whole files, the earliest first. What else lies there is none of ours.
fn whole(folder: &Path, ending: &str) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && entry.file_name() != aside::NAME {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_str().is_some_and(|name| is_ours(name, ending)) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Leaves the reason why files are not delivered for cawld's status; none takes it away.
fn undelivered(folder: &Path, why: &str) {
    let path = folder.join(UNDELIVERED);
    drop(if why.is_empty() { fs::remove_file(path) } else { fs::write(path, format!("{why}\n")) });
}

/// Names of what lies in the folder itself and is none of ours, nor hidden.
fn others(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = files.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// True for NODE-START-NUMBER and the ending.
fn is_ours(name: &str, ending: &str) -> bool {
    let parts = || {
        let (rest, number) = name.strip_suffix(ending)?.rsplit_once('-')?;
        let at = rest.len().checked_sub(START.len())?;
        Some((rest.get(..at)?, rest.get(at..)?, number))
    };
    parts().is_some_and(|(node, start, number)| {
        let is_like = |(letter, like): (u8, u8)| match like {
            b'0' => letter.is_ascii_hexdigit(),
            other => letter == other,
        };
        node.len() > 1
            && node.ends_with('-')
            && !node.starts_with('.')
            && start.bytes().zip(START.bytes()).all(is_like)
            && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Removes a file, if it is still there, and the folders that are empty then.
fn remove(folder: &Path, file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    for empty in file.ancestors().skip(1).take_while(|parent| *parent != folder) {
        if fs::remove_dir(empty).is_err() {
            break;
        }
    }
    Ok(())
}

/// When standard input has ended, tells until when the rest is delivered. Soon after that this process ends:
/// a receiver may take a request and never answer.
fn input(folder: &Path) -> Receiver<Instant> {
    let (ended, told) = channel();
    let folder = folder.to_owned();
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut [0; 512]), Ok(1..)) {}
        let _ = ended.send(Instant::now() + REST);
        std::thread::sleep(REST + GRACE);
        tell(&format!("{} s are over: what was not taken waits in {}", REST.as_secs(), folder.display()));
        std::process::exit(1);
    });
    told
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_files_of_the_daemon_are_taken() {
        assert!(is_ours("db-1-20261129T143103Z-0123abcd-000001.parquet", ".parquet"));
        for other in [
            "db-1-20261129T143103Z-0123abcd-000001.csv",
            "20261129T143103Z-0123abcd-000001.parquet",
            "-20261129T143103Z-0123abcd-000001.parquet",
            ".cawl-db-20261129T143103Z-0123abcd-000001.parquet",
            "db-20261129T143103Z-0123abcd-00000x.parquet",
            "report.parquet",
            "größe-größe-größe-größe-1.parquet",
        ] {
            assert!(!is_ours(other, ".parquet"), "{other}");
        }
    }
}
