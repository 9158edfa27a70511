//! Tells files apart that had the same inode number, where their filesystem, or an old trace, does not say.
//!
//! **A number whose last link went is given to another file by the next open**, or by the next record that
//! names it. Until then calls go to the file that was there: it may still be open. A call of a
//! tracer that cannot tell (the daemon, which looks at mappings) goes to the file that was told of last.

use cawl_wire::{Event, FileKind, Op};

use crate::model::LruMap;
use crate::record::{FileFacts, Record};

type Number = (u64, u64);

/// The latest file of a number.
#[derive(Clone, Debug, Default)]
struct Latest {
    birth: u32,
    /// The name that it was told by.
    path: String,
    /// Its last link went.
    unlinked: bool,
    /// Told while this one was there: names travel faster than calls, so it may be about the next.
    next: Option<FileFacts>,
}

/// What becomes of a record.
#[derive(Debug, PartialEq)]
pub enum Told {
    /// It is to be taken.
    AsItIs,
    /// It is to be taken after this record.
    After(Record),
    /// It is about a file that comes later, and is not to be taken now.
    Later,
}

/// The files that had a number last, for as many numbers as are in use.
#[derive(Clone, Debug, Default)]
pub struct Births {
    files: LruMap<Number, Latest>,
    /// The number of the latest call, and the birth of the file.
    last: Option<(Number, u32)>,
}

impl Births {
    /// Completes the identities in the next record.
    pub fn take(&mut self, record: &mut Record) -> Told {
        match record {
            Record::Event(event) if event.birth == 0 && event.ino != 0 && event.kind == FileKind::Regular => {
                self.event(event)
            }
            // Of another user's, the daemon makes the identities.
            Record::File(file) if FileKind::from_mode(file.mode) == FileKind::Regular && file.owner == 0 => {
                self.file(file)
            }
            _ => Told::AsItIs,
        }
    }

    fn event(&mut self, event: &mut Event) -> Told {
        if let Some((renamed, _)) = event.renamed() {
            event.buffer = self.files.peek(&(renamed.dev, renamed.ino)).map_or(0, |latest| latest.birth);
        }
        let number = (event.dev, event.ino);
        let opens = matches!(event.op, Op::Open | Op::StreamOpen) && event.errno == 0;
        let unlinks = event.takes_last_link();
        if let Some((last, birth)) = self.last
            && last == number
            && !opens
            && !unlinks
        {
            event.birth = birth;
            return Told::AsItIs;
        }
        let latest = self.files.of(number);
        let mut told = Told::AsItIs;
        if opens && latest.unlinked {
            latest.succeed();
            if let Some(facts) = latest.next.take() {
                latest.path.clone_from(&facts.path);
                told = Told::After(Record::File(FileFacts { birth: latest.birth, ..facts }));
            }
        }
        latest.unlinked |= unlinks;
        event.birth = latest.birth;
        self.last = Some((number, latest.birth));
        told
    }

    fn file(&mut self, file: &mut FileFacts) -> Told {
        self.last = None;
        let number = (file.dev, file.ino);
        if file.birth != 0 {
            self.files.put(number, Latest { birth: file.birth, ..Latest::default() });
            return Told::AsItIs;
        }
        let latest = self.files.of(number);
        if latest.unlinked {
            latest.succeed();
            latest.next = None;
        } else if !file.renamed && !latest.path.is_empty() {
            latest.next = Some(file.clone());
            if latest.path != file.path {
                return Told::Later;
            }
        }
        latest.path.clone_from(&file.path);
        file.birth = latest.birth;
        Told::AsItIs
    }
}

impl Latest {
    /// Another file has the number.
    fn succeed(&mut self) {
        self.birth = self.birth.wrapping_add(1).max(1);
        self.path.clear();
        self.unlinked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(op: Op) -> Record {
        let mut event = Event::new(op);
        (event.dev, event.ino, event.kind) = (1, 7, FileKind::Regular);
        Record::Event(event)
    }

    fn name(path: &str, birth: u32) -> Record {
        let path = path.to_owned();
        Record::File(FileFacts { dev: 1, ino: 7, birth, mode: 0o100_644, path, ..FileFacts::default() })
    }

    /// Births and names as they come out.
    fn resolved(births: &mut Births, records: &[Record]) -> String {
        let mut out = String::new();
        let mut say = |record: &Record| match record {
            Record::Event(event) => out.push_str(&format!("{} {}, ", event.op.name(), event.birth)),
            Record::File(file) => out.push_str(&format!("{} {}, ", file.path, file.birth)),
            _ => {}
        };
        for record in records {
            let mut record = record.clone();
            match births.take(&mut record) {
                Told::AsItIs => say(&record),
                Told::After(first) => {
                    say(&first);
                    say(&record);
                }
                Told::Later => {}
            }
        }
        out
    }

    #[test]
    fn an_open_after_the_last_unlink_begins_another_file() {
        use Op::{Open, Unlink, Write};
        let mut births = Births::default();
        let records = [name("a", 0), call(Open), call(Write), call(Unlink), call(Write)];
        assert_eq!(resolved(&mut births, &records), "a 0, open 0, write 0, unlink 0, write 0, ");
        // Of an old trace, which did not tell the name.
        assert_eq!(resolved(&mut births, &[call(Open), call(Write)]), "open 1, write 1, ");
        // The name comes before the calls that came before it.
        let records = [name("b", 0), name("c", 0), call(Write), call(Unlink), call(Open), call(Write)];
        assert_eq!(resolved(&mut births, &records), "b 1, write 1, unlink 1, c 2, open 2, write 2, ");
        // The name comes in time.
        let records = [call(Unlink), name("d", 0), call(Open), call(Write)];
        assert_eq!(resolved(&mut births, &records), "unlink 2, d 3, open 3, write 3, ");
    }

    #[test]
    fn another_link_or_process_is_no_other_file() {
        let mut births = Births::default();
        let linked = Event { aux: 1, ..Event::new(Op::Unlink) };
        let linked = Record::Event(Event { dev: 1, ino: 7, kind: FileKind::Regular, ..linked });
        let records = [name("a", 0), name("a", 0), call(Op::Open), linked, call(Op::Open), name("a", 0)];
        assert_eq!(resolved(&mut births, &records), "a 0, a 0, open 0, unlink 0, open 0, a 0, ");
    }

    #[test]
    fn who_cannot_tell_means_the_file_that_was_told_of_last() {
        let mut births = Births::default();
        assert_eq!(resolved(&mut births, &[name("a", 9), call(Op::MmapWrite)]), "a 9, mmap_write 9, ");
        assert_eq!(resolved(&mut births, &[name("b", 5), call(Op::MmapWrite)]), "b 5, mmap_write 5, ");
    }
}
