//! Stores through mappings, and what is mapped.

use cawl_wire::{Event, FileKind, Op, flag};

use super::{Told, Translator};
use crate::files::{self, Seen};
use crate::record::{Call, Naming};

/// A mapping as /proc/PID/maps tells it.
struct Mapping<'a> {
    from: u64,
    to: u64,
    dev: u64,
    ino: u64,
    path: &'a str,
}

fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    maps.lines().filter_map(move |line| {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let dev = libc::makedev(hex(major)? as u32, hex(minor)? as u32);
        let ino = words.next()?.parse().ok()?;
        Some(Mapping { from: hex(from)?, to: hex(to)?, dev, ino, path: words.next()?.trim_start() })
    })
}

fn maps(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default()
}

impl Translator {
    /// Pages became dirty by stores. The call that tells them ends with the next page that is not in a row.
    pub(super) fn stored(&mut self, mut event: Event, call: &Call, tell: &mut impl FnMut(Told)) {
        if !self.files.knows(&call.identity) {
            self.name_mapped(call, tell);
        }
        event.op = Op::MmapWrite;
        event.set_file(self.files.met(&call.identity));
        event.kind = FileKind::Regular;
        event.flags = flag::ESTIMATED | flag::WRITABLE;
        (event.offset, event.requested) = (call.args[0] * files::page(), call.args[1] * files::page());
        event.returned = event.requested as i64;
        self.stored_to.insert(event.pid, event.file());
        if let Some(before) = &mut self.stores
            && (before.pid, before.tid, before.file()) == (event.pid, event.tid, event.file())
            && before.offset + before.requested == event.offset
        {
            before.requested += event.requested;
            before.returned += event.returned;
            return;
        }
        self.tell_stores(tell);
        self.stores = Some(event);
    }

    /// Tells the latest stores.
    pub fn tell_stores(&mut self, mut tell: impl FnMut(Told)) {
        self.stores.take().into_iter().for_each(|event| tell(Told::Event(event)));
    }

    /// Names a file that was mapped before its process was followed.
    fn name_mapped(&mut self, call: &Call, tell: &mut impl FnMut(Told)) {
        let maps = maps(call.tgid);
        let Some(mapping) = mappings(&maps).find(|mapping| mapping.ino == call.identity.ino) else { return };
        let path = mapping.path.trim_end_matches(" (deleted)").into();
        let naming = Naming { tgid: call.tgid, identity: call.identity, path, ..Naming::default() };
        let named = self.files.name(&naming);
        tell(Told::File(call.tgid, named));
    }

    pub(super) fn mapped(&self, pid: u32, address: u64) -> Option<Seen> {
        let maps = maps(pid);
        let mapping = mappings(&maps).find(|mapping| (mapping.from..mapping.to).contains(&address))?;
        self.files.find(mapping.dev, mapping.ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Identity, Record};

    fn store(ino: u64, page: u64, pages: u64) -> Record {
        let identity = Identity { ino, size: 1 << 20, mode: 0o100644, ..Identity::default() };
        let args = [page, pages, 0, 0, 0, 0];
        Record::Call(Call { tgid: 1, tid: 1, row: 14, identity, args, ..Call::default() })
    }

    #[test]
    fn stores_in_a_row_are_told_together() {
        let mut translator = Translator::default();
        let mut told = Vec::new();
        let mut tell = |one| {
            if let Told::Event(event) = one {
                told.push((event.ino, event.offset / files::page(), event.returned as u64 / files::page()));
            }
        };
        for record in [store(2, 0, 1), store(2, 1, 4), store(2, 5, 1), store(2, 8, 1), store(3, 9, 2)] {
            translator.take(record, &mut tell);
        }
        translator.tell_stores(&mut tell);
        assert_eq!(told, [(2, 0, 6), (2, 8, 1), (3, 9, 2)]);
    }

    #[test]
    fn mappings_have_names_with_blanks() {
        let text = "7f00-7f10 rw-s 00001000 fd:00 77                         /a b\n\
                    7f20-7f30 rw-p 00000000 00:00 0 \nnonsense\n";
        let found: Vec<_> = mappings(text).map(|found| (found.from, found.ino, found.path)).collect();
        assert_eq!(found, [(0x7f00, 77, "/a b"), (0x7f20, 0, "")]);
    }
}
