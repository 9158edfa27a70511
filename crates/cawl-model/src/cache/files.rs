//! The table of files, of which copies share what neither changes.

use std::sync::Arc;

use super::File;

/// Files in a chunk, and chunks in a row.
const CHUNK: usize = 16;
const ROW: usize = 32;
const FILES: usize = ROW * CHUNK;

type Row = Vec<Arc<[File; CHUNK]>>;

/// Files by number, in chunks that copies share until one of them changes a chunk: a copy to look ahead with
/// is made while programs write, for each call that may have to wait, and touches few files. Rows of chunks,
/// so that few counts are to be touched by a copy of tens of thousands of files.
///
/// Invariant: one file, that changed last, is in `held` and nowhere else, and blank in its chunk; at first
/// that is file 0. So changing it again, as most calls do several times, asks of no chunk whether it is
/// shared: without it a write of 4 KiB takes a fifth more instructions (2026-12-01).
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    rows: Vec<Arc<Row>>,
    pub(super) length: usize,
    pub(super) held: (usize, File),
}

impl Files {
    pub(super) fn push(&mut self) {
        if self.length.is_multiple_of(FILES) {
            self.rows.push(Arc::default());
        }
        if self.length.is_multiple_of(CHUNK)
            && let Some(row) = self.rows.last_mut()
        {
            Arc::make_mut(row).push(Arc::default());
        }
        self.length += 1;
    }

    #[inline]
    pub(super) fn at(&self, at: usize) -> &File {
        if at == self.held.0 { &self.held.1 } else { &self.rows[at / FILES][at / CHUNK % ROW][at % CHUNK] }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: usize) -> &mut File {
        if at != self.held.0 {
            self.hold(at);
        }
        &mut self.held.1
    }

    /// Another file is held. Swapped, as what is held and its blank in the chunk are where they are to be.
    #[inline(never)]
    fn hold(&mut self, at: usize) {
        let Files { rows, held: (held, file), .. } = self;
        std::mem::swap(place(rows, *held), file);
        std::mem::swap(place(rows, at), file);
        *held = at;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &File> {
        (0..self.length).map(|at| self.at(at))
    }
}

/// A file's place in its chunk, no longer shared with a copy.
fn place(rows: &mut [Arc<Row>], at: usize) -> &mut File {
    &mut Arc::make_mut(&mut Arc::make_mut(&mut rows[at / FILES])[at / CHUNK % ROW])[at % CHUNK]
}
