//! What descriptors lead to: processes, their descriptor tables, open-file descriptions and files.
//!
//! The law: **as in the kernel.** A descriptor is an entry of a table; tables are copied by fork and shared
//! by threads; a descriptor leads to an open-file description, which has the position and is shared by dup
//! and fork; a description leads to a file, which has the size and outlives its names.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};

use cawl_core::host_text::unescape;
use cawl_wire::{FileKind, flag};

use super::text;

/// What several others lead to; it is gone with the last of them.
pub(super) type Shared<T> = Rc<RefCell<T>>;

/// Descriptors: of one process, or of several that share them. What fork has copied is one map until one of
/// both changes it, so that forks take no memory in proportion to descriptors.
pub(super) type Table = Shared<Rc<HashMap<i32, Descriptor>>>;

#[derive(Clone, Debug)]
pub(super) struct Descriptor {
    pub description: Shared<Description>,
    pub close_on_exec: bool,
}

/// An open-file description.
#[derive(Debug)]
pub(super) struct Description {
    pub file: Shared<File>,
    /// Position in bytes.
    pub position: u64,
    /// Bits of [`flag`]; ESTIMATED says that the position is a guess.
    pub flags: u32,
}

#[derive(Debug, Default)]
pub(super) struct File {
    /// Its identity.
    pub ino: u64,
    pub path: String,
    pub kind: FileKind,
    /// Length in bytes, as far as known.
    pub size: u64,
    /// The length is what the kernel would say.
    pub size_known: bool,
    pub links: u32,
    /// Events about it have been handed on.
    pub met: bool,
    /// It was opened by a name that is not known, at this time in ns.
    pub unnamed: Option<u64>,
}

impl Description {
    pub fn new(file: Shared<File>, flags: u32) -> Shared<Description> {
        Rc::new(RefCell::new(Description { file, position: 0, flags }))
    }
}

/// A copy of a table, as fork makes it.
pub(super) fn forked(table: &Table) -> Table {
    Rc::new(RefCell::new(Rc::clone(&table.borrow())))
}

/// The part of a table that exec leaves.
pub(super) fn executed(table: &Table) -> Table {
    let kept = table.borrow();
    let kept = kept.iter().filter(|(_, descriptor)| !descriptor.close_on_exec);
    Rc::new(RefCell::new(Rc::new(kept.map(|(fd, descriptor)| (*fd, descriptor.clone())).collect())))
}

/// A table, to change.
pub(super) fn change(table: &Table) -> RefMut<'_, HashMap<i32, Descriptor>> {
    RefMut::map(table.borrow_mut(), Rc::make_mut)
}

pub(super) fn description(table: &Table, fd: i32) -> Option<Shared<Description>> {
    table.borrow().get(&fd).map(|descriptor| Rc::clone(&descriptor.description))
}

/// The `count` lowest numbers that are free, as the kernel gives them out; those of the standard streams are
/// taken.
pub(super) fn free(table: &Table, count: usize) -> Vec<i32> {
    let table = table.borrow();
    (3..).filter(|fd| !table.contains_key(fd)).take(count).collect()
}

/// Makes `fd` lead to a description; what it led to before is closed.
pub(super) fn install(table: &Table, fd: i32, description: &Shared<Description>, close_on_exec: bool) {
    change(table).insert(fd, Descriptor { description: Rc::clone(description), close_on_exec });
}

/// The files of all processes, by their names.
#[derive(Debug, Default)]
pub(super) struct Files {
    by_path: BTreeMap<String, Weak<RefCell<File>>>,
    /// Files that have a name and that events were about. The others are gone with their last description, so
    /// that searching a million files for reading leaves nothing behind.
    kept: HashMap<u64, Shared<File>>,
    last: u64,
    /// Number of names from which on those of files that are gone are removed.
    most_names: usize,
}

impl Files {
    /// The file with this name, if one is known.
    pub fn find(&self, path: &str) -> Option<Shared<File>> {
        self.by_path.get(path)?.upgrade()
    }

    /// The file with this name.
    pub fn named(&mut self, path: &str, kind: FileKind) -> Shared<File> {
        self.find(path).unwrap_or_else(|| self.fresh(path, kind))
    }

    /// A new file with this name; an older one with the same name keeps only its descriptions.
    pub fn fresh(&mut self, path: &str, kind: FileKind) -> Shared<File> {
        self.unlink(path);
        let file = self.nameless(path, kind);
        self.add_name(path, &file);
        file
    }

    /// A new file without a name; `path` is only for show.
    pub fn nameless(&mut self, path: &str, kind: FileKind) -> Shared<File> {
        self.last += 1;
        Rc::new(RefCell::new(File { ino: self.last, path: path.to_owned(), kind, ..File::default() }))
    }

    /// An event is about the file; false if one was before.
    pub fn meet(&mut self, file: &Shared<File>) -> bool {
        let mut facts = file.borrow_mut();
        let is_first = !std::mem::replace(&mut facts.met, true);
        if is_first && facts.links > 0 {
            self.kept.insert(facts.ino, Rc::clone(file));
        }
        is_first
    }

    /// Names a file that was opened by a name that was not known.
    pub fn name(&mut self, file: &Shared<File>, path: &str, kind: FileKind) {
        let mut facts = file.borrow_mut();
        (facts.unnamed, facts.kind) = (None, kind);
        path.clone_into(&mut facts.path);
        if facts.met {
            self.kept.insert(facts.ino, Rc::clone(file));
        }
        drop(facts);
        self.add_name(path, file);
    }

    fn add_name(&mut self, path: &str, file: &Shared<File>) {
        file.borrow_mut().links += 1;
        self.by_path.insert(path.to_owned(), Rc::downgrade(file));
        if self.by_path.len() > self.most_names {
            self.by_path.retain(|_, file| file.strong_count() > 0);
            self.most_names = 2 * self.by_path.len() + 1024;
        }
    }

    /// Takes a name away; the links left to its file, 0 if none is known.
    pub fn unlink(&mut self, path: &str) -> u32 {
        let Some(file) = self.by_path.remove(path).and_then(|file| file.upgrade()) else { return 0 };
        let mut file = file.borrow_mut();
        file.links = file.links.saturating_sub(1);
        if file.links == 0 {
            self.kept.remove(&file.ino);
        }
        file.links
    }

    /// Gives a file one more name.
    pub fn link(&mut self, from: &str, to: &str) {
        if let Some(file) = self.find(from) {
            self.add_name(to, &file);
        }
    }

    /// Moves a name, or every name below a directory. The caller has unlinked what stood at `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        if self.move_name(from, to) == Some(FileKind::Regular) {
            return;
        }
        let below = format!("{from}/");
        let from_there = self.by_path.range(below.clone()..).map(|(path, _)| path);
        let moved: Vec<String> = from_there.take_while(|path| path.starts_with(&below)).cloned().collect();
        for path in moved {
            self.move_name(&path, &format!("{to}/{}", &path[below.len()..]));
        }
    }

    /// Moves one name; the kind of its file, if any is known.
    fn move_name(&mut self, from: &str, to: &str) -> Option<FileKind> {
        let file = self.by_path.remove(from)?.upgrade()?;
        to.clone_into(&mut file.borrow_mut().path);
        self.by_path.insert(to.to_owned(), Rc::downgrade(&file));
        Some(file.borrow().kind)
    }

    /// The description a descriptor argument means: from the table, unless -y says that something
    /// happened to the descriptor which strace was not asked to show.
    pub fn resolve(&mut self, table: &Table, fd: i32, argument: &str) -> Option<Shared<Description>> {
        let known = description(table, fd);
        let Some(shown) = text::annotation(argument) else { return known };
        let (path, is_deleted) = (unescape(bare(shown)), text::is_deleted(argument));
        let is_meant = |file: &Shared<File>| {
            let same = file.borrow().path == path || file.borrow().links == 0;
            // A file that was deleted has any name, and a name with `/` behind it is a linked one.
            same || is_deleted || self.find(&path).is_some_and(|named| Rc::ptr_eq(&named, file))
        };
        if known.as_ref().is_some_and(|known| is_meant(&known.borrow().file)) {
            return known;
        }
        let kind = kind_of_path(shown);
        let file = if is_deleted { self.nameless(&path, kind) } else { self.named(&path, kind) };
        let found = Description::new(file, flag::INHERITED | flag::ESTIMATED | flag::WRITABLE);
        install(table, fd, &found, false);
        Some(found)
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
    fn fork_copies_descriptors_and_shares_positions() {
        let (mut files, parent) = (Files::default(), Table::default());
        let opened = Description::new(files.named("/tmp/a", FileKind::Regular), 0);
        install(&parent, 3, &opened, false);
        let child = forked(&parent);
        opened.borrow_mut().position = 7;
        let left = Rc::downgrade(&opened);
        drop(opened);
        change(&parent).remove(&3);
        assert!(description(&parent, 3).is_none());
        assert_eq!(description(&child, 3).unwrap().borrow().position, 7);
        drop(child);
        assert!(left.upgrade().is_none());
        assert!(files.find("/tmp/a").is_none(), "no event was about it");
    }

    #[test]
    fn a_name_taken_away_leaves_the_file() {
        let (mut files, table) = (Files::default(), Table::default());
        let old = files.named("/tmp/a", FileKind::Regular);
        let opened = Description::new(Rc::clone(&old), 0);
        install(&table, 3, &opened, false);
        assert_eq!(files.unlink("/tmp/a"), 0);
        assert!(!Rc::ptr_eq(&files.named("/tmp/a", FileKind::Regular), &old));
        let found = files.resolve(&table, 3, "3</tmp/a>(deleted)").unwrap();
        assert!(Rc::ptr_eq(&found, &opened));
    }

    #[test]
    fn renamed_directories_take_their_files_along() {
        let mut files = Files::default();
        let file = files.named("/tmp/a/x", FileKind::Regular);
        files.rename("/tmp/a", "/tmp/b");
        assert!(Rc::ptr_eq(&files.find("/tmp/b/x").unwrap(), &file));
        assert!(files.find("/tmp/a/x").is_none());
    }

    #[test]
    fn names_of_files_that_were_only_read_are_forgotten() {
        let mut files = Files::default();
        let kept = files.named("/tmp/kept", FileKind::Regular);
        assert!(files.meet(&kept) && !files.meet(&kept));
        drop(kept);
        (0..5000).for_each(|number| drop(files.named(&format!("/tmp/{number}"), FileKind::Regular)));
        assert!(files.by_path.len() < 2000, "{}", files.by_path.len());
        assert!(files.find("/tmp/kept").is_some());
    }
}
