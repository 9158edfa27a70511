//! What a copy to look ahead with does without changing files: it notes those that it has cleaned whole and
//! not looked at since. The flusher goes through tens of thousands of small files, and changing them would be
//! copying them.
//!
//! The law: a file noted here is as it was before it was cleaned; whoever wants it otherwise than to ask
//! whether it is dirty or listed has it settled first. A file of which other pages are clean is never noted.

use std::sync::Arc;

use cawl_wire::FileId;

use super::Cache;

/// What a copy has noted instead of doing it.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside {
    /// A bit for each file.
    noted: Vec<u64>,
    /// Those files in the order of their cleaning; what the device had submitted after each, and the running
    /// transaction. One that was settled may still be here.
    pub(super) cleaned: Vec<(u32, (u64, u64))>,
    /// Files that this copy has met for the first time, while they are few: the shared names need not be
    /// copied.
    pub(super) met: Vec<(FileId, u32)>,
}

/// Most files in [`Aside::met`].
pub(super) const MET: usize = 16;

impl Aside {
    #[inline]
    pub(super) fn has(&self, at: u32) -> bool {
        self.noted.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(super) fn note(&mut self, at: u32, files: usize) {
        if self.noted.len() * 64 < files {
            self.noted.resize(files.div_ceil(64), 0);
        }
        self.noted[at as usize / 64] |= 1 << (at % 64);
        self.cleaned.push((at, (0, 0)));
    }

    /// Strikes a file out; what the device had submitted after it was cleaned, and the transaction.
    fn strike(&mut self, at: u32) -> (u64, u64) {
        self.noted[at as usize / 64] &= !(1 << (at % 64));
        self.cleaned
            .iter()
            .rev()
            .find(|(cleaned, _)| *cleaned == at)
            .map_or((0, 0), |(_, submitted)| *submitted)
    }
}

impl Cache {
    /// This copy is to look ahead with, and not for long.
    pub fn look_ahead(&mut self) {
        self.aside.get_or_insert_default();
    }

    #[inline]
    pub(super) fn is_noted(&self, at: u32) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.has(at))
    }

    /// Makes a file what it is.
    #[inline]
    pub(super) fn settle(&mut self, at: u32) {
        if let Some(aside) = &mut self.aside
            && aside.has(at)
        {
            let submitted = aside.strike(at);
            self.files.at_mut(at as usize).flushed(submitted);
        }
    }

    /// Makes all files what they are.
    pub(super) fn settle_all(&mut self) {
        if let Some(aside) = &mut self.aside {
            let cleaned = std::mem::take(&mut aside.cleaned);
            // The latest of a file that is here more than once is the one that holds.
            let mut left = Aside { noted: std::mem::take(&mut aside.noted), ..Aside::default() };
            for (at, submitted) in cleaned.into_iter().rev() {
                if left.has(at) {
                    left.strike(at);
                    self.files.at_mut(at as usize).flushed(submitted);
                }
            }
        }
    }

    /// A file that only this copy has met.
    pub(super) fn met(&self, key: FileId) -> Option<u32> {
        let met = self.aside.as_ref()?.met.iter();
        met.rev().find(|(name, _)| *name == key).map(|(_, at)| *at)
    }

    /// Gives the files that only this copy has met their names.
    pub(super) fn name_met(&mut self) {
        let met = self.aside.as_mut().map(|aside| std::mem::take(&mut aside.met)).unwrap_or_default();
        if !met.is_empty() {
            let names = Arc::make_mut(&mut self.names);
            for (key, at) in met {
                names.keys.push(key);
                names.index.insert(key, at);
            }
        }
    }
}
