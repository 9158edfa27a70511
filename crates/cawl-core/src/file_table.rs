//! A table of files, by identity and by name.
//!
//! The latest look-up is remembered, since programs tend to write to one file at a time. A file that was
//! deleted and made anew under its name keeps its row.

use std::collections::HashMap;

use cawl_wire::FileId;

use crate::model::Map;
use crate::names::FileName;

/// A file.
#[derive(Debug, Default)]
pub struct FileRow<T> {
    /// The identity that it had last.
    pub identity: FileId,
    /// Its name, as far as told.
    pub name: FileName,
    /// True if its last link was removed.
    unlinked: bool,
    /// What is counted of it.
    pub counts: T,
}

/// The files, `MAX` at most.
#[derive(Debug, Default)]
pub struct FileTable<T, const MAX: usize> {
    /// Their rows. Who reorders or removes some calls [`FileTable::reindex`].
    pub rows: Vec<FileRow<T>>,
    by_identity: Map<FileId, usize>,
    /// By owner, device and the name that they were written to under.
    by_name: HashMap<(u32, u64, String), usize>,
    /// Rows that are not in use.
    spare: Vec<usize>,
    last: Option<(FileId, usize)>,
}

impl<T: Default, const MAX: usize> FileTable<T, MAX> {
    /// Index of a file's row, a new one if it has none; None if there are too many.
    #[inline]
    pub fn index(&mut self, identity: FileId) -> Option<usize> {
        match self.last {
            Some((last, index)) if last == identity => Some(index),
            _ => self.find(identity),
        }
    }

    fn find(&mut self, identity: FileId) -> Option<usize> {
        let index = match self.by_identity.get(&identity) {
            Some(index) => *index,
            None => {
                if self.spare.is_empty() && self.rows.len() < MAX {
                    self.spare.push(self.rows.len());
                    self.rows.push(FileRow::default());
                }
                let index = self.spare.pop()?;
                self.rows[index].identity = identity;
                self.by_identity.insert(identity, index);
                index
            }
        };
        self.last = Some((identity, index));
        Some(index)
    }

    /// Index of a file's row, if it has one.
    pub fn known(&self, identity: FileId) -> Option<usize> {
        match self.last {
            Some((last, index)) if last == identity => Some(index),
            _ => self.by_identity.get(&identity).copied(),
        }
    }

    /// The row of a file, if it has one.
    pub fn get(&self, identity: FileId) -> Option<&FileRow<T>> {
        self.by_identity.get(&identity).map(|index| &self.rows[*index])
    }

    /// The last link of a file was removed.
    pub fn unlink(&mut self, identity: FileId) {
        if let Some(index) = self.by_identity.get(&identity) {
            self.rows[*index].unlinked = true;
        }
    }

    /// The row that a file written to for the first time goes on in: a file that was deleted and made anew
    /// under its name is one to a reader, however often that happens.
    pub fn succeed(&mut self, index: usize) -> usize {
        let FileRow { identity, name, .. } = &self.rows[index];
        let identity = *identity;
        if name.path().is_empty() {
            return index;
        }
        let key = (name.owner(), identity.dev, name.path().to_owned());
        let before = self.by_name.entry(key).or_insert(index);
        let row = &self.rows[*before];
        if *before == index || !row.unlinked || row.name != *name {
            *before = index;
            return index;
        }
        let before = *before;
        (self.rows[before].identity, self.rows[before].unlinked) = (identity, false);
        self.rows[index] = FileRow::default();
        self.spare.push(index);
        self.by_identity.insert(identity, before);
        self.last = None;
        if self.by_identity.len() > 2 * MAX {
            self.by_identity.retain(|identity, index| self.rows[*index].identity == *identity);
        }
        before
    }

    /// The rows were reordered, or some removed. A file made anew after this begins another row.
    pub fn reindex(&mut self) {
        self.by_identity = self.rows.iter().enumerate().map(|(at, row)| (row.identity, at)).collect();
        self.by_name.clear();
        self.spare.clear();
        self.last = None;
    }
}
