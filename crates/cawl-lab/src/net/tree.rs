//! The files at the other end of the link, in memory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use cawl_core::Bytes;
use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::store::{Store, attributes};

/// Permissions of a mode, which has the type too.
pub fn permissions(mode: u32) -> u16 {
    mode as u16 & 0o7777
}

#[derive(Debug)]
pub enum Kind {
    /// A file with its content.
    File(Store),
    /// A folder with its names.
    Folder(BTreeMap<OsString, INodeNo>),
    /// A symbolic link with its target.
    Symlink(OsString),
}

/// Who owns a node, and who may use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// Permissions, without the type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    attributes: FileAttr,
    /// Lookups that the kernel has not forgotten.
    lookups: u64,
}

/// All files, and the room that there is for them.
#[derive(Debug)]
pub struct Tree {
    nodes: HashMap<INodeNo, Node>,
    next: u64,
    room: Bytes,
    used: u64,
}

impl Tree {
    /// An empty folder. Numbers of nodes begin at `first`; files may be `room` long together.
    pub fn new(first: INodeNo, room: Bytes) -> Tree {
        let mut tree = Tree { nodes: HashMap::new(), next: INodeNo::ROOT.0, room, used: 0 };
        let owner = Owner { mode: 0o755, ..Owner::default() };
        let root = tree.add(Kind::Folder(BTreeMap::new()), owner);
        tree.nodes.entry(root).and_modify(|root| root.attributes.nlink = 1);
        tree.next = first.0;
        tree
    }

    fn add(&mut self, kind: Kind, owner: Owner) -> INodeNo {
        let ino = INodeNo(self.next);
        self.next += 1;
        let (of, size) = match &kind {
            Kind::File(_) => (FileType::RegularFile, 0),
            Kind::Folder(_) => (FileType::Directory, 0),
            Kind::Symlink(target) => (FileType::Symlink, target.len() as u64),
        };
        let Owner { mode, uid, gid } = owner;
        let made = attributes(ino, of, permissions(mode), size, SystemTime::now());
        let attributes = FileAttr { nlink: 0, uid, gid, ..made };
        self.nodes.insert(ino, Node { kind, attributes, lookups: 0 });
        ino
    }

    fn node(&mut self, ino: INodeNo) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }

    fn names(&mut self, folder: INodeNo) -> Result<&mut BTreeMap<OsString, INodeNo>, Errno> {
        match &mut self.node(folder)?.kind {
            Kind::Folder(names) => Ok(names),
            Kind::File(_) | Kind::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }

    /// Bytes that files may still grow by.
    pub fn free(&self) -> Bytes {
        self.room.saturating_sub(Bytes(self.used))
    }

    pub fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    pub fn attributes(&mut self, ino: INodeNo) -> Result<FileAttr, Errno> {
        self.node(ino).map(|node| node.attributes)
    }

    /// Finds a name; the kernel remembers the node until it says [`Tree::forget`].
    pub fn look_up(&mut self, folder: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let ino = *self.names(folder)?.get(name).ok_or(Errno::ENOENT)?;
        self.node(ino)?.lookups += 1;
        self.attributes(ino)
    }

    /// The kernel has forgotten this many lookups of a node. What it had, if it is gone: to free that takes
    /// time.
    pub fn forget(&mut self, ino: INodeNo, lookups: u64) -> Option<Kind> {
        let node = self.node(ino).ok()?;
        node.lookups = node.lookups.saturating_sub(lookups);
        self.collect(ino)
    }

    /// Removes a node that has no name, and that the kernel does not know.
    fn collect(&mut self, ino: INodeNo) -> Option<Kind> {
        let is_gone = |node: &Node| node.attributes.nlink == 0 && node.lookups == 0;
        self.nodes.get(&ino).filter(|node| is_gone(node))?;
        let Node { kind, attributes, .. } = self.nodes.remove(&ino)?;
        if matches!(kind, Kind::File(_)) {
            self.used -= attributes.size;
        }
        Some(kind)
    }

    /// Makes a node; the kernel remembers it like one found.
    pub fn make(
        &mut self,
        folder: INodeNo,
        name: &OsStr,
        kind: Kind,
        owner: Owner,
    ) -> Result<FileAttr, Errno> {
        if self.names(folder)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let ino = self.add(kind, owner);
        self.link(ino, folder, name)
    }

    /// Gives a node one more name.
    pub fn link(&mut self, ino: INodeNo, folder: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let names = self.names(folder)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), ino);
        self.touch(folder)?;
        self.node(ino)?.attributes.nlink += 1;
        self.look_up(folder, name)
    }

    /// Takes a name away: of a folder that is empty, or of something else.
    pub fn remove(&mut self, parent: INodeNo, name: &OsStr, is_folder: bool) -> Result<(), Errno> {
        let ino = *self.names(parent)?.get(name).ok_or(Errno::ENOENT)?;
        match (&self.node(ino)?.kind, is_folder) {
            (Kind::Folder(_), false) => return Err(Errno::EISDIR),
            (Kind::Folder(names), true) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
            (Kind::File(_) | Kind::Symlink(_), true) => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.names(parent)?.remove(name);
        self.touch(parent)?;
        self.node(ino)?.attributes.nlink -= 1;
        self.collect(ino);
        Ok(())
    }

    /// Moves a name, onto another one if there is one and `may_replace`.
    pub fn rename(
        &mut self,
        (from, name): (INodeNo, &OsStr),
        (to, new): (INodeNo, &OsStr),
        may_replace: bool,
    ) -> Result<(), Errno> {
        let ino = *self.names(from)?.get(name).ok_or(Errno::ENOENT)?;
        match self.names(to)?.get(new) {
            Some(other) if *other == ino => return Ok(()),
            Some(_) if !may_replace => return Err(Errno::EEXIST),
            Some(_) => {
                let is_folder = matches!(self.node(ino)?.kind, Kind::Folder(_));
                self.remove(to, new, is_folder)?;
            }
            None => {}
        }
        self.names(from)?.remove(name);
        self.names(to)?.insert(new.to_owned(), ino);
        self.touch(from)?;
        self.touch(to)
    }

    fn touch(&mut self, ino: INodeNo) -> Result<(), Errno> {
        let attributes = &mut self.node(ino)?.attributes;
        (attributes.mtime, attributes.ctime) = (SystemTime::now(), SystemTime::now());
        Ok(())
    }

    /// Changes attributes, and the length if one is given.
    pub fn change(
        &mut self,
        ino: INodeNo,
        size: Option<u64>,
        change: impl FnOnce(&mut FileAttr),
    ) -> Result<FileAttr, Errno> {
        if let Some(size) = size {
            self.resize(ino, size)?;
        }
        let attributes = &mut self.node(ino)?.attributes;
        change(attributes);
        attributes.ctime = SystemTime::now();
        Ok(*attributes)
    }

    /// The room is checked before anything changes.
    fn resize(&mut self, ino: INodeNo, size: u64) -> Result<(), Errno> {
        let free = self.free().0;
        let Node { kind, attributes, .. } = self.node(ino)?;
        let Kind::File(store) = kind else { return Err(Errno::EISDIR) };
        if size.saturating_sub(attributes.size) > free {
            return Err(Errno::ENOSPC);
        }
        if size < attributes.size {
            store.cut(size);
        }
        let before = std::mem::replace(&mut attributes.size, size);
        attributes.blocks = size.div_ceil(512);
        self.used = self.used - before + size;
        self.touch(ino)
    }

    pub fn write(&mut self, ino: INodeNo, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        let size = self.node(ino)?.attributes.size;
        self.resize(ino, size.max(end))?;
        if let Kind::File(store) = &mut self.node(ino)?.kind {
            store.write(offset, data);
        }
        Ok(())
    }

    /// Reads from a file; returns how much there was before its end.
    pub fn read(&mut self, ino: INodeNo, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let node = self.node(ino)?;
        let Kind::File(store) = &node.kind else { return Err(Errno::EISDIR) };
        let length = node.attributes.size.saturating_sub(offset).min(out.len() as u64) as usize;
        store.read(offset, &mut out[..length]);
        Ok(length)
    }

    /// The target of a symbolic link.
    pub fn target(&mut self, ino: INodeNo) -> Result<OsString, Errno> {
        match &self.node(ino)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            Kind::File(_) | Kind::Folder(_) => Err(Errno::EINVAL),
        }
    }

    /// Nodes, kinds and names in a folder, in order of their names.
    pub fn list(&mut self, folder: INodeNo) -> Result<Vec<(INodeNo, FileType, OsString)>, Errno> {
        let names = self.names(folder)?.clone();
        let listed = names.into_iter().map(|(name, ino)| Ok((ino, self.node(ino)?.attributes.kind, name)));
        listed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "file";

    fn tree() -> (Tree, INodeNo) {
        let mut tree = Tree::new(INodeNo(9), Bytes(10_000));
        let file = tree.make(INodeNo::ROOT, FILE.as_ref(), Kind::File(Store::default()), Owner::default());
        (tree, file.unwrap().ino)
    }

    #[test]
    fn a_file_without_a_name_lives_until_it_is_forgotten() {
        let (mut tree, file) = tree();
        tree.write(file, 100, b"abc").unwrap();
        assert_eq!((tree.free(), tree.attributes(file).unwrap().size), (Bytes(9_897), 103));
        tree.remove(INodeNo::ROOT, FILE.as_ref(), false).unwrap();
        let mut out = [1; 8];
        assert_eq!(tree.read(file, 98, &mut out), Ok(5));
        assert_eq!(&out[..5], b"\0\0abc");
        assert!(tree.forget(file, 1).is_some());
        assert_eq!((tree.free(), tree.read(file, 0, &mut out)), (Bytes(10_000), Err(Errno::ENOENT)));
    }

    #[test]
    fn what_finds_no_room_changes_nothing() {
        let (mut tree, file) = tree();
        tree.write(file, 0, &[1; 9_000]).unwrap();
        assert_eq!(tree.write(file, 9_000, &[2; 1_001]), Err(Errno::ENOSPC));
        assert_eq!(tree.write(file, u64::MAX, &[2; 2]), Err(Errno::EFBIG));
        assert_eq!(tree.attributes(file).unwrap().size, 9_000);
        tree.change(file, Some(10), |_| ()).unwrap();
        assert_eq!(tree.free(), Bytes(9_990));
    }

    #[test]
    fn names_move_and_replace() {
        let (mut tree, file) = tree();
        let (root, empty) = (INodeNo::ROOT, || Kind::Folder(BTreeMap::new()));
        let folder = tree.make(root, "folder".as_ref(), empty(), Owner::default()).unwrap().ino;
        tree.link(file, folder, "other".as_ref()).unwrap();
        assert_eq!(tree.attributes(file).unwrap().nlink, 2);
        assert_eq!(tree.remove(root, "folder".as_ref(), true), Err(Errno::ENOTEMPTY));
        assert_eq!(tree.remove(root, "folder".as_ref(), false), Err(Errno::EISDIR));
        assert_eq!(tree.remove(root, FILE.as_ref(), true), Err(Errno::ENOTDIR));
        let onto = (root, "new".as_ref());
        tree.rename((folder, "other".as_ref()), onto, false).unwrap();
        let link = tree.make(root, "link".as_ref(), Kind::Symlink("far".into()), Owner::default()).unwrap();
        assert_eq!((link.size, tree.target(link.ino)), (3, Ok("far".into())));
        assert_eq!(tree.rename((root, "link".as_ref()), onto, false), Err(Errno::EEXIST));
        tree.rename((root, "link".as_ref()), onto, true).unwrap();
        assert_eq!(tree.attributes(file).unwrap().nlink, 1);
        let names: Vec<_> =
            tree.list(root).unwrap().into_iter().map(|(_, kind, name)| (name, kind)).collect();
        let named = |name: &str, kind: FileType| (OsString::from(name), kind);
        let kinds = [FileType::RegularFile, FileType::Directory, FileType::Symlink];
        assert_eq!(names, [named(FILE, kinds[0]), named("folder", kinds[1]), named("new", kinds[2])]);
        tree.remove(root, "folder".as_ref(), true).unwrap();
    }
}
