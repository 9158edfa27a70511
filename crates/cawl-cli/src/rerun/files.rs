//! Where each file of a trace lies in the folder of a rerun.
//!
//! A path of the trace is a name in the folder, so that a file which was removed and made again, or renamed
//! to another's name, finds that name as it did. A name that another file still has, which went unseen, is
//! not used again.

use std::collections::{HashMap, VecDeque};

use cawl_core::FileFacts;
use cawl_wire::{Event, FileId, FileKind, Op, flag};

use super::script::{FOLDER, Fill};

/// Characters of a path's last part that a name has.
const SHOWN: usize = 48;
/// Bits of a process's number; above them the number of the copy (`--writers`).
const PIDS: u32 = 22;

#[derive(Debug, Default)]
pub struct Files {
    /// Size when it was first met, and path.
    facts: HashMap<FileId, (u64, String)>,
    /// Told of a file that has another name, before the call that gave it.
    renamed: VecDeque<(FileId, String)>,
    /// The latest of them that was taken.
    latest: Option<(FileId, String)>,
    at: HashMap<FileId, u32>,
    /// The name that stands for a path, of each copy.
    paths: HashMap<(u32, String), u32>,
    /// Who has a name.
    occupants: HashMap<u32, FileId>,
    pub names: Vec<String>,
    /// What is made before.
    pub fills: Vec<Fill>,
}

impl Files {
    pub fn new() -> Files {
        Files { names: vec![".".to_owned(), "0-source".to_owned()], ..Files::default() }
    }

    pub fn set_facts(&mut self, facts: &FileFacts) {
        let id = facts.file();
        self.facts.entry(id).or_insert_with(|| (facts.size.0, facts.path.clone()));
        if facts.renamed {
            self.renamed.push_back((id, facts.path.clone()));
        }
    }

    /// The number of the file that a call is about. One that is met for the first time was there before, and
    /// is filled, unless the call makes it.
    pub fn met(&mut self, event: &Event) -> u32 {
        if event.kind == FileKind::Directory {
            return FOLDER;
        }
        let id = event.file();
        if let Some(name) = self.at.get(&id) {
            return *name;
        }
        let (copy, size, path) = self.known(id, event.pid);
        let opens = matches!(event.op, Op::Open | Op::StreamOpen);
        let is_new = opens
            && event.requested == 0
            && (event.op == Op::Open || event.has(flag::TRUNC | flag::APPEND | flag::TMPFILE));
        let size = if opens { event.requested } else { before(event, size) };
        self.place(id, (copy, path), if is_new { None } else { Some(size) })
    }

    fn known(&self, id: FileId, pid: u32) -> (u32, u64, String) {
        let copy = pid >> PIDS;
        let of = |id: FileId| self.facts.get(&id);
        let of_first = || of(FileId { birth: id.birth ^ copy << 20, ..id }).map(|facts| (copy, facts));
        let found = of(id).map(|facts| (0, facts)).or_else(of_first);
        found.map_or((copy, 0, String::new()), |(copy, (size, path))| (copy, *size, path.clone()))
    }

    /// Gives a file its name. `size`: it was there before the trace.
    fn place(&mut self, id: FileId, path: (u32, String), size: Option<u64>) -> u32 {
        // A name that was in use can be used again, but was not there before for another file.
        let known = self.paths.get(&path).copied().filter(|name| !self.occupants.contains_key(name));
        let name = known.filter(|_| size.is_none()).unwrap_or_else(|| self.name(path));
        if let Some(size) = size {
            self.fills.push(Fill { file: name, size });
        }
        self.occupants.insert(name, id);
        self.at.insert(id, name);
        name
    }

    fn name(&mut self, path: (u32, String)) -> u32 {
        let number = self.names.len();
        let last = path.1.rsplit('/').next().unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-+".contains(c) { c } else { '_' };
        let last: String = last.trim_end_matches(" (deleted)").chars().take(SHOWN).map(plain).collect();
        let last = if last.is_empty() { "file" } else { &last };
        self.names.push(format!("{}-{last}", number - 1));
        self.paths.insert(path, number as u32);
        number as u32
    }

    pub fn has_name(&self, event: &Event) -> bool {
        self.at.get(&event.file()).is_none_or(|name| self.occupants.get(name) == Some(&event.file()))
    }

    /// Its last name went.
    pub fn unlinked(&mut self, event: &Event) {
        if let Some(name) = self.at.get(&event.file())
            && self.occupants.get(name) == Some(&event.file())
        {
            self.occupants.remove(name);
        }
    }

    /// A file got another name: from which to which. None if it is not known which file.
    pub fn renamed(&mut self, event: &Event) -> Option<(u32, u32)> {
        let told = event.renamed();
        let replaces = told.map_or(event.ino != 0, |(_, replaces)| replaces && event.ino != 0);
        let replaced = replaces.then(|| self.met(event));
        let copy = event.pid >> PIDS;
        // The copies' renames come right after the first one's.
        if copy == 0 {
            let wanted = self.known(event.file(), event.pid).2;
            let is_it = |(id, path): &(FileId, String)| match told {
                Some((file, _)) => *id == file,
                None => replaced.is_some() && *path == wanted,
            };
            let found = self.renamed.iter().position(is_it);
            self.latest = self.renamed.remove(found.unwrap_or(0));
        }
        let (id, path) = self.latest.clone()?;
        let id = FileId { birth: id.birth ^ copy << 20, ..id };
        let from = match self.at.get(&id) {
            Some(from) => *from,
            // It was never written to: its former name is not known.
            None => {
                let size = self.facts.get(&id).map_or(0, |(size, _)| *size);
                self.place(id, (copy, format!("{path}.before")), Some(size))
            }
        };
        let to = replaced.unwrap_or_else(|| {
            let free = self.paths.get(&(copy, path.clone())).copied();
            free.filter(|name| !self.occupants.contains_key(name)).unwrap_or_else(|| self.name((copy, path)))
        });
        self.occupants.remove(&from);
        self.occupants.insert(to, id);
        self.at.insert(id, to);
        Some((from, to))
    }
}

/// The size of a file before the first call on it, which was looked at after the call.
fn before(event: &Event, size: u64) -> u64 {
    let reached = |bytes: u64| event.offset.checked_add(bytes).is_some_and(|end| end >= size);
    if event.op.moves_bytes() && event.returned > 0 && reached(event.returned as u64) {
        return size.min(event.offset);
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::Bytes;

    fn file(ino: u64, path: &str, size: u64, renamed: bool) -> FileFacts {
        let (size, path) = (Bytes(size), path.to_owned());
        FileFacts { dev: 1, ino, size, path, renamed, ..FileFacts::default() }
    }

    fn call(op: Op, ino: u64) -> Event {
        Event { dev: 1, ino, kind: FileKind::Regular, offset: 0, ..Event::new(op) }
    }

    #[test]
    fn a_path_is_a_name_until_another_file_has_it() {
        let mut files = Files::new();
        files.set_facts(&file(1, "/tmp/a b", 0, false));
        let first = files.met(&call(Op::Open, 1));
        assert_eq!(files.names[first as usize], "1-a_b");
        files.unlinked(&call(Op::Unlink, 1));
        files.set_facts(&file(2, "/tmp/a b", 0, false));
        assert_eq!(files.met(&call(Op::Open, 2)), first, "made again");
        files.set_facts(&file(3, "/tmp/a b", 0, false));
        assert_ne!(files.met(&call(Op::Open, 3)), first, "the other one went unseen");
        assert_eq!(files.fills, []);
    }

    #[test]
    fn what_was_there_before_is_filled() {
        let mut files = Files::new();
        files.set_facts(&file(1, "log", 5000, false));
        let opened = Event { requested: 5000, ..call(Op::Open, 1) };
        let log = files.met(&opened);
        files.set_facts(&file(2, "out", 300, false));
        let out = files.met(&Event { offset: 200, returned: 100, ..call(Op::Write, 2) });
        assert_eq!(files.fills, [Fill { file: log, size: 5000 }, Fill { file: out, size: 200 }]);
    }

    #[test]
    fn a_rename_takes_the_name_of_the_file_that_it_replaces() {
        let mut files = Files::new();
        files.set_facts(&file(1, "/d/config", 0, false));
        let config = files.met(&call(Op::Open, 1));
        files.set_facts(&file(2, "/d/new", 0, false));
        let new = files.met(&call(Op::Open, 2));
        files.set_facts(&file(2, "/d/config", 0, true));
        assert_eq!(files.renamed(&call(Op::Rename, 1)), Some((new, config)));
        assert_eq!(files.met(&call(Op::Write, 2)), config);
        assert!(!files.has_name(&call(Op::Unlink, 1)) && files.has_name(&call(Op::Unlink, 2)));
        assert_eq!(files.renamed(&call(Op::Rename, 0)), None, "of a directory");
    }
}
