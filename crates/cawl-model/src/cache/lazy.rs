//! Files that a copy to look ahead with has cleaned lazily: they are listed as clean, and unchanged.
//!
//! The only purpose is the 99th percentile of `predict`. The flusher of such a copy goes through tens of
//! thousands of small files, and to change one is to copy the chunk that it shares with the model. A file is
//! listed when it is cleaned whole and no page of it was clean. Before anything is read of a listed file but
//! whether it is dirty or on the flusher's lists, [`Cache::settle`] must clean it.

use std::sync::Arc;

use cawl_wire::FileId;

use super::Cache;

/// What a copy to look ahead with keeps apart from what it shares.
#[derive(Clone, Debug, Default)]
pub(super) struct Lazy {
    /// A bit for each file: it is cleaned lazily.
    bits: Vec<u64>,
    /// Those files in the order of their cleaning; what the device had submitted after each, and the running
    /// transaction. One that was settled may still be here.
    pub(super) cleaned: Vec<(u32, (u64, u64))>,
    /// Files that this copy has met for the first time, while they are few: the shared names need not be
    /// copied.
    pub(super) met: Vec<(FileId, u32)>,
}

/// Most files in [`Lazy::met`].
pub(super) const MET: usize = 16;

impl Lazy {
    #[inline]
    pub(super) fn has(&self, at: u32) -> bool {
        self.bits.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(super) fn list(&mut self, at: u32, files: usize) {
        if self.bits.len() * 64 < files {
            self.bits.resize(files.div_ceil(64), 0);
        }
        self.bits[at as usize / 64] |= 1 << (at % 64);
        self.cleaned.push((at, (0, 0)));
    }

    /// Takes a file off the list; what the device had submitted after it was cleaned, and the transaction.
    fn delist(&mut self, at: u32) -> (u64, u64) {
        self.bits[at as usize / 64] &= !(1 << (at % 64));
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
        self.lazy.get_or_insert_default();
        self.eviction = None;
    }

    #[inline]
    pub(super) fn is_cleaned_lazily(&self, at: u32) -> bool {
        self.lazy.as_ref().is_some_and(|lazy| lazy.has(at))
    }

    /// Cleans a file that is cleaned lazily.
    #[inline]
    pub(super) fn settle(&mut self, at: u32) {
        if let Some(lazy) = &mut self.lazy
            && lazy.has(at)
        {
            let submitted = lazy.delist(at);
            self.files.at_mut(at as usize).flushed(submitted);
        }
    }

    /// Cleans all files that are cleaned lazily.
    pub(super) fn settle_all(&mut self) {
        if let Some(lazy) = &mut self.lazy {
            let cleaned = std::mem::take(&mut lazy.cleaned);
            // The latest of a file that is here more than once is the one that holds.
            let mut left = Lazy { bits: std::mem::take(&mut lazy.bits), ..Lazy::default() };
            for (at, submitted) in cleaned.into_iter().rev() {
                if left.has(at) {
                    left.delist(at);
                    self.files.at_mut(at as usize).flushed(submitted);
                }
            }
        }
    }

    /// A file that only this copy has met.
    pub(super) fn met(&self, key: FileId) -> Option<u32> {
        let met = self.lazy.as_ref()?.met.iter();
        met.rev().find(|(name, _)| *name == key).map(|(_, at)| *at)
    }

    /// Gives the files that only this copy has met their names.
    pub(super) fn name_met(&mut self) {
        let met = self.lazy.as_mut().map(|lazy| std::mem::take(&mut lazy.met)).unwrap_or_default();
        if !met.is_empty() {
            let names = Arc::make_mut(&mut self.names);
            for (key, at) in met {
                names.keys.push(key);
                names.index.insert(key, at);
            }
        }
    }
}
