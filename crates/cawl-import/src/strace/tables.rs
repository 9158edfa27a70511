//! What descriptors lead to: processes, their descriptor tables, open-file descriptions and files.
//!
//! The law: **as in the kernel.** A descriptor is a slot in a table; tables are copied by fork and shared
//! by threads; a slot leads to an open-file description, which has the position and is shared by dup
//! and fork; a description leads to a file, which has the size and outlives its names.

use std::collections::HashMap;

use cawl_core::host_text::unescape;
use cawl_wire::{FileKind, flag};

use super::lex;

/// A file; its identity is its number.
#[derive(Debug, Default)]
pub(super) struct File {
    pub path: String,
    pub kind: FileKind,
    /// Length in bytes, as far as known.
    pub size: u64,
    /// The length is what the kernel would say.
    pub size_known: bool,
    pub links: u32,
    /// Events about it have been handed on.
    pub met: bool,
    descriptions: u32,
}

/// An open-file description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Description {
    pub file: u64,
    /// Position in bytes.
    pub position: u64,
    /// Bits of [`flag`]; ESTIMATED says that the position is a guess.
    pub flags: u32,
    slots: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    description: u64,
    close_on_exec: bool,
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<i32, Slot>,
    users: u32,
}

/// Every table, description and file of all processes.
#[derive(Debug, Default)]
pub(super) struct Tables {
    tables: HashMap<u64, Table>,
    pub descriptions: HashMap<u64, Description>,
    pub files: HashMap<u64, File>,
    by_path: HashMap<String, u64>,
    last: u64,
    inodes: u64,
}

impl Tables {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// An empty table with one user.
    pub fn create(&mut self) -> u64 {
        let id = self.next();
        self.tables.insert(id, Table { slots: HashMap::new(), users: 1 });
        id
    }

    /// One more process uses the table.
    pub fn share(&mut self, table: u64) -> u64 {
        if let Some(table) = self.tables.get_mut(&table) {
            table.users += 1;
        }
        table
    }

    /// A copy of the table, as fork makes it.
    pub fn copy(&mut self, table: u64) -> u64 {
        let slots = self.tables.get(&table).map(|table| table.slots.clone()).unwrap_or_default();
        for slot in slots.values() {
            if let Some(description) = self.descriptions.get_mut(&slot.description) {
                description.slots += 1;
            }
        }
        let id = self.next();
        self.tables.insert(id, Table { slots, users: 1 });
        id
    }

    /// A user of the table is gone.
    pub fn release(&mut self, table: u64) {
        let Some(entry) = self.tables.get_mut(&table) else { return };
        entry.users = entry.users.saturating_sub(1);
        if entry.users == 0 {
            let slots = self.tables.remove(&table).map(|table| table.slots).unwrap_or_default();
            slots.values().for_each(|slot| self.drop_slot(*slot));
        }
    }

    /// What exec does: the table is the process's own from now on, without descriptors marked so.
    pub fn exec(&mut self, table: u64) -> u64 {
        let table = match self.tables.get(&table) {
            Some(entry) if entry.users > 1 => {
                let copy = self.copy(table);
                self.release(table);
                copy
            }
            _ => table,
        };
        self.remove_if(table, |_, slot| slot.close_on_exec);
        table
    }

    fn remove_if(&mut self, table: u64, gone: impl Fn(i32, &Slot) -> bool) {
        let Some(entry) = self.tables.get_mut(&table) else { return };
        let dropped: Vec<_> = entry.slots.extract_if(|fd, slot| gone(*fd, slot)).collect();
        dropped.into_iter().for_each(|(_, slot)| self.drop_slot(slot));
    }

    fn drop_slot(&mut self, slot: Slot) {
        let Some(description) = self.descriptions.get_mut(&slot.description) else { return };
        description.slots = description.slots.saturating_sub(1);
        if description.slots > 0 {
            return;
        }
        let ino = description.file;
        self.descriptions.remove(&slot.description);
        if let Some(file) = self.files.get_mut(&ino) {
            file.descriptions = file.descriptions.saturating_sub(1);
            // Nothing refers to it, and no event did: forget it, so that searching a million files for
            // reading leaves nothing behind.
            if file.descriptions == 0 && (file.links == 0 || !file.met) {
                let path = std::mem::take(&mut file.path);
                self.files.remove(&ino);
                if self.by_path.get(&path) == Some(&ino) {
                    self.by_path.remove(&path);
                }
            }
        }
    }

    /// The description behind a descriptor.
    pub fn look(&self, table: u64, fd: i32) -> Option<u64> {
        self.tables.get(&table)?.slots.get(&fd).map(|slot| slot.description)
    }

    /// Makes `fd` lead to a description; what it led to before is closed.
    pub fn install(&mut self, table: u64, fd: i32, description: u64, close_on_exec: bool) {
        if let Some(description) = self.descriptions.get_mut(&description) {
            description.slots += 1;
        }
        let Some(entry) = self.tables.get_mut(&table) else { return };
        if let Some(old) = entry.slots.insert(fd, Slot { description, close_on_exec }) {
            self.drop_slot(old);
        }
    }

    /// Closes a descriptor.
    pub fn close(&mut self, table: u64, fd: i32) {
        if let Some(slot) = self.tables.get_mut(&table).and_then(|table| table.slots.remove(&fd)) {
            self.drop_slot(slot);
        }
    }

    /// Closes a range of descriptors, or only marks them to be closed by exec.
    pub fn close_range(&mut self, table: u64, first: i64, last: i64, mark_only: bool) {
        let within = |fd: i32| (first..=last).contains(&i64::from(fd));
        if !mark_only {
            return self.remove_if(table, |fd, _| within(fd));
        }
        let slots = self.tables.get_mut(&table).into_iter().flat_map(|entry| &mut entry.slots);
        slots.filter(|(fd, _)| within(**fd)).for_each(|(_, slot)| slot.close_on_exec = true);
    }

    /// Sets or clears close-on-exec.
    pub fn mark(&mut self, table: u64, fd: i32, close_on_exec: bool) {
        if let Some(slot) = self.tables.get_mut(&table).and_then(|table| table.slots.get_mut(&fd)) {
            slot.close_on_exec = close_on_exec;
        }
    }

    /// A new description of a file, which no slot leads to yet.
    pub fn describe(&mut self, file: u64, flags: u32) -> u64 {
        if let Some(file) = self.files.get_mut(&file) {
            file.descriptions += 1;
        }
        let id = self.next();
        self.descriptions.insert(id, Description { file, position: 0, flags, slots: 0 });
        id
    }

    /// The file behind a description.
    pub fn behind(&self, description: Option<u64>) -> Option<&File> {
        self.files.get(&self.file_of(description?)?)
    }

    /// The file with this name, if one is known.
    pub fn find(&self, path: &str) -> Option<u64> {
        self.by_path.get(path).copied()
    }

    /// The file with this name.
    pub fn named(&mut self, path: &str, kind: FileKind) -> u64 {
        self.find(path).unwrap_or_else(|| self.fresh(path, kind))
    }

    /// A new file with this name; an older one with the same name keeps only its descriptions.
    pub fn fresh(&mut self, path: &str, kind: FileKind) -> u64 {
        if let Some((old, _)) = self.unlink(path) {
            self.forget(old);
        }
        let ino = self.nameless(path, kind);
        self.by_path.insert(path.to_owned(), ino);
        if let Some(file) = self.files.get_mut(&ino) {
            file.links = 1;
        }
        ino
    }

    /// A new file without a name; `path` is only for show.
    pub fn nameless(&mut self, path: &str, kind: FileKind) -> u64 {
        self.inodes += 1;
        self.files.insert(self.inodes, File { path: path.to_owned(), kind, ..File::default() });
        self.inodes
    }

    /// Takes a name away; the file it meant, if any is known, and the links left to it.
    pub fn unlink(&mut self, path: &str) -> Option<(u64, u32)> {
        let ino = self.by_path.remove(path)?;
        let file = self.files.get_mut(&ino)?;
        file.links = file.links.saturating_sub(1);
        Some((ino, file.links))
    }

    /// Forgets a file that has neither names nor descriptions.
    pub fn forget(&mut self, ino: u64) {
        if self.files.get(&ino).is_some_and(|file| file.links == 0 && file.descriptions == 0) {
            self.files.remove(&ino);
        }
    }

    /// Gives a file one more name.
    pub fn link(&mut self, from: &str, to: &str) {
        let Some(&ino) = self.by_path.get(from) else { return };
        if let Some(file) = self.files.get_mut(&ino) {
            file.links += 1;
        }
        self.by_path.insert(to.to_owned(), ino);
    }

    /// Moves a name, or every name below a directory. The caller has unlinked what stood at `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(ino) = self.by_path.remove(from) {
            self.by_path.insert(to.to_owned(), ino);
            if let Some(file) = self.files.get_mut(&ino) {
                file.path = to.to_owned();
                if file.kind == FileKind::Regular {
                    return;
                }
            }
        }
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.by_path.keys().filter(|path| path.starts_with(&below)).cloned().collect();
        for path in moved {
            let target = format!("{to}/{}", &path[below.len()..]);
            let Some(ino) = self.by_path.remove(&path) else { continue };
            if let Some(file) = self.files.get_mut(&ino) {
                file.path.clone_from(&target);
            }
            self.by_path.insert(target, ino);
        }
    }

    /// The description a descriptor argument means: from the table, unless -y says that something
    /// happened to the descriptor which strace was not asked to show.
    pub fn resolve(&mut self, table: u64, fd: i32, argument: &str) -> Option<u64> {
        let known = self.look(table, fd);
        let Some(shown) = lex::annotation(argument) else { return known };
        let path = unescape(bare(shown));
        if let Some(id) = known {
            let file = self.behind(known);
            let same = file.is_some_and(|file| file.path == path || file.links == 0);
            // A file that was deleted has any name, and a name with `/` behind it is a linked one.
            if same || lex::is_deleted(argument) || self.find(&path) == self.file_of(id) {
                return known;
            }
        }
        let kind = kind_of_path(shown);
        let file =
            if lex::is_deleted(argument) { self.nameless(&path, kind) } else { self.named(&path, kind) };
        let id = self.describe(file, flag::INHERITED | flag::ESTIMATED | flag::WRITABLE);
        self.install(table, fd, id, false);
        Some(id)
    }

    /// The number of the file behind a description.
    pub fn file_of(&self, description: u64) -> Option<u64> {
        self.descriptions.get(&description).map(|description| description.file)
    }
}

/// A path as -yy shows it, `/dev/null<char 1:3>`, without the device.
pub(super) fn bare(shown: &str) -> &str {
    shown.split('<').next().unwrap_or(shown)
}

/// What a path, or what -y shows in its place, says about the kind of object.
pub(super) fn kind_of_path(shown: &str) -> FileKind {
    const SOCKETS: [&str; 6] = ["socket:", "TCP", "UDP", "UNIX", "NETLINK", "RAW"];
    const BLOCK: [&str; 9] = ["sd", "nvme", "vd", "hd", "loop", "dm-", "mapper/", "md", "mmcblk"];
    const UNREAL: [&str; 4] = ["/proc/", "/sys/", "/memfd:", "/anon_hugepage"];
    let begins_like = |text: &str, kinds: &[&str]| kinds.iter().any(|kind| text.starts_with(kind));
    let told = |device: &str| shown.ends_with('>') && shown.contains(device);
    match shown.strip_prefix("/dev/") {
        _ if told("<char ") => FileKind::Char,
        _ if told("<block ") => FileKind::Block,
        _ if shown.starts_with("pipe:") => FileKind::Fifo,
        Some(device) if device.starts_with("shm/") => FileKind::Regular,
        Some(device) if begins_like(device, &BLOCK) => FileKind::Block,
        Some(_) => FileKind::Char,
        None if shown.starts_with('/') && begins_like(shown, &UNREAL) => FileKind::Other,
        None if shown.starts_with('/') => FileKind::Regular,
        None if begins_like(shown, &SOCKETS) => FileKind::Socket,
        None if shown.contains(":[") || shown.starts_with("anon_inode:") => FileKind::Other,
        None => FileKind::Regular,
    }
}

/// A path in one form: relative ones below `base`, without `.`, `..` and doubled slashes. Symbolic links
/// are not known, so this is the kernel's idea of it only where there are none.
pub(super) fn join(base: &str, path: &str) -> String {
    let whole =
        if path.starts_with('/') || base.is_empty() { path.to_owned() } else { format!("{base}/{path}") };
    let absolute = whole.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            part => parts.push(part),
        }
    }
    let joined = parts.join("/");
    if absolute { format!("/{joined}") } else { joined }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_path() {
        for (path, kind) in [
            ("/tmp/a", FileKind::Regular),
            ("notes", FileKind::Regular),
            ("/dev/pts/3", FileKind::Char),
            ("/dev/null<char 1:3>", FileKind::Char),
            ("/dev/sda1", FileKind::Block),
            ("/dev/shm/x", FileKind::Regular),
            ("pipe:[123]", FileKind::Fifo),
            ("socket:[123]", FileKind::Socket),
            ("TCP:[127.0.0.1:1->127.0.0.1:2]", FileKind::Socket),
            ("anon_inode:[eventpoll]", FileKind::Other),
            ("/proc/self/oom_score_adj", FileKind::Other),
        ] {
            assert_eq!(kind_of_path(path), kind, "{path}");
        }
    }

    #[test]
    fn paths_in_one_form() {
        assert_eq!(join("/tmp/demo", "a/../b"), "/tmp/demo/b");
        assert_eq!(join("/tmp", "/x//y/./z"), "/x/y/z");
        assert_eq!(join("", "a"), "a");
        assert_eq!(join("", "../a"), "../a");
        assert_eq!(join("/", "../a"), "/a");
    }

    #[test]
    fn fork_copies_slots_and_shares_positions() {
        let mut tables = Tables::default();
        let parent = tables.create();
        let file = tables.named("/tmp/a", FileKind::Regular);
        let id = tables.describe(file, 0);
        tables.install(parent, 3, id, false);
        let child = tables.copy(parent);
        tables.descriptions.get_mut(&id).unwrap().position = 7;
        tables.close(parent, 3);
        assert_eq!(tables.look(parent, 3), None);
        let seen = tables.look(child, 3).unwrap();
        assert_eq!(tables.descriptions.get(&seen).unwrap().position, 7);
        tables.release(child);
        assert!(!tables.descriptions.contains_key(&id));
    }

    #[test]
    fn a_name_taken_away_leaves_the_file() {
        let mut tables = Tables::default();
        let table = tables.create();
        let old = tables.named("/tmp/a", FileKind::Regular);
        let id = tables.describe(old, 0);
        tables.install(table, 3, id, false);
        assert_eq!(tables.unlink("/tmp/a"), Some((old, 0)));
        assert_ne!(tables.named("/tmp/a", FileKind::Regular), old);
        assert_eq!(tables.resolve(table, 3, "3</tmp/a>(deleted)"), Some(id));
        assert_eq!(tables.file_of(id), Some(old));
    }

    #[test]
    fn renamed_directories_take_their_files_along() {
        let mut tables = Tables::default();
        let file = tables.named("/tmp/a/x", FileKind::Regular);
        tables.rename("/tmp/a", "/tmp/b");
        assert_eq!(tables.find("/tmp/b/x"), Some(file));
        assert_eq!(tables.find("/tmp/a/x"), None);
    }
}
