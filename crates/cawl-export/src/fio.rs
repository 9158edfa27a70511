//! fio's log of I/O, version 3, which `fio --read_iolog` replays.
//!
//! The law: **a replay writes below the folder that it is started in.** Names are relative, and none leads
//! up.

use std::io::{self, Write};

use cawl_core::Report;
use cawl_wire::{Event, Op, flag};
use rustc_hash::FxHashSet;

use super::traffic::{FAILED, Losses, Transfer, is_silent};
use super::{Call, Exporter, Output};

/// fio compares only the beginning; `import --from fio` decodes the names of a log that has the end, too.
pub const BEGIN: &str = "fio version 3 iolog, of cawl-cli export\n";
/// fio reads no longer name.
const LONGEST: usize = 255;
/// fio has a buffer for the largest transfer of a log, and 32 bits for its length.
const LARGEST: u64 = 1 << 30;

/// What became of a call on a file whose name is longer, or empty.
const UNNAMED: &str = "under device and inode instead of a name, which fio's log cannot hold";
const NO_ACTION: &str = "left out: fio's log has no such action";
const NO_FLAGS: &str = "without O_SYNC, O_DSYNC or O_DIRECT: fio takes these for a job (--sync, --direct)";

pub struct Fio {
    out: Output,
    /// Start of the first call, in ns.
    first: Option<u64>,
    /// Names that were added, and those that are open in the replay: two files may have one name in turn, and
    /// fio opens none twice.
    added: FxHashSet<String>,
    open: FxHashSet<String>,
    losses: Losses,
}

impl Fio {
    pub fn new(mut out: Output) -> io::Result<Fio> {
        out.write_all(BEGIN.as_bytes())?;
        let (added, open) = Default::default();
        Ok(Fio { out, first: None, added, open, losses: Losses::default() })
    }

    fn transfers(&mut self, at: u64, name: &str, event: &Event, moved: &Transfer) -> io::Result<()> {
        if moved.writes && event.has(flag::SYNC | flag::DSYNC | flag::DIRECT) {
            self.losses.count(event, NO_FLAGS);
        }
        self.opened(at, name)?;
        let action = if moved.writes { "write" } else { "read" };
        for done in (0..moved.bytes).step_by(LARGEST as usize) {
            let bytes = LARGEST.min(moved.bytes - done);
            writeln!(self.out, "{at} {name} {action} {} {bytes}", moved.offset + done)?;
        }
        Ok(())
    }

    fn opened(&mut self, at: u64, name: &str) -> io::Result<()> {
        if self.added.insert(name.to_owned()) {
            writeln!(self.out, "{at} {name} add")?;
        }
        if self.open.insert(name.to_owned()) { writeln!(self.out, "{at} {name} open") } else { Ok(()) }
    }
}

impl Exporter for Fio {
    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let event = call.event;
        // fio takes a time of 0 for none.
        let at = event.start.saturating_sub(*self.first.get_or_insert(event.start)) / 1000 + 1;
        let moved = match Transfer::placed(event) {
            _ if event.errno != 0 => Err(FAILED),
            moved => moved,
        };
        let name = call.path.map(replayed).unwrap_or_default();
        let is_unnamed = name.is_empty() || name.len() > LONGEST;
        let name = if is_unnamed { format!("dev{}/inode{}", event.dev, event.ino) } else { name };
        let is_sync = matches!(event.op, Op::Fsync | Op::Fdatasync);
        if is_unnamed && moved.as_ref().is_ok_and(|moved| moved.is_some() || is_sync) {
            self.losses.count(event, UNNAMED);
        }
        match (moved, event.op) {
            (Err(why), _) => self.losses.count(event, why),
            (Ok(Some(moved)), _) => self.transfers(at, &name, event, &moved)?,
            (Ok(None), _) if is_sync => {
                self.opened(at, &name)?;
                let action = if event.op == Op::Fsync { "sync" } else { "datasync" };
                writeln!(self.out, "{at} {name} {action} 0 0")?;
            }
            (Ok(None), op) if is_silent(op) => {}
            (Ok(None), _) => self.losses.count(event, NO_ACTION),
        }
        if matches!(event.op, Op::Close | Op::StreamClose) && self.open.remove(&name) {
            writeln!(self.out, "{at} {name} close")?;
        }
        Ok(())
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        self.out.flush()
    }

    fn losses(&self) -> Vec<String> {
        self.losses.notes()
    }
}

/// The name of a file in a replay: its path without the first slash. What fio's log cannot hold in a name is
/// written as %20, and `%` as %25, so that `import` finds the path again.
fn replayed(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let encoded = |part: &str| {
        let (is_up, mut name) = (part == "..", String::with_capacity(part.len()));
        for c in part.chars() {
            if is_up || c == '%' || c.is_whitespace() || c.is_control() || turns(c) {
                name.extend(c.encode_utf8(&mut [0; 4]).bytes().map(|byte| format!("%{byte:02X}")));
            } else {
                name.push(c);
            }
        }
        name
    };
    parts.map(encoded).collect::<Vec<_>>().join("/")
}

/// True of a mark of the direction of text.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_below_the_folder() {
        assert_eq!(replayed("/data/a b"), "data/a%20b");
        assert_eq!(replayed("/data/50%20"), "data/50%2520");
        assert_eq!(replayed("../../etc/./passwd"), "%2E%2E/%2E%2E/etc/passwd");
        assert_eq!(replayed("/größe\n\u{202e}"), "größe%0A%E2%80%AE");
        assert_eq!(replayed("/"), "");
    }
}
