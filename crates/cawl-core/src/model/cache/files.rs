//! The table of files, of which copies share what neither changes.

use std::sync::Arc;

use super::File;

/// Files in a chunk, and chunks in a row.
const CHUNK: usize = 16;
const ROW: usize = 64;

/// Files by number, in chunks that copies share until one of them changes a chunk: a copy to look ahead with is
/// made while programs write, for each call that may have to wait, and touches few files. Rows of chunks, so that
/// few counts are to be touched by a copy of tens of thousands of files.
///
/// The law: one file, that changed last, is in `held` and nowhere else, and blank in its chunk; at first that is
/// file 0. So changing it again, as most calls do several times, asks of no chunk whether it is shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    rows: Vec<Arc<Vec<Arc<[File; CHUNK]>>>>,
    pub(super) length: usize,
    pub(super) held: (usize, File),
}

impl Files {
    pub(super) fn push(&mut self) {
        if self.length.is_multiple_of(ROW * CHUNK) {
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
        if at == self.held.0 {
            &self.held.1
        } else {
            &self.rows[at / CHUNK / ROW][at / CHUNK % ROW][at % CHUNK]
        }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: usize) -> &mut File {
        if at != self.held.0 {
            let file = std::mem::take(self.place(at));
            let (before, last) = std::mem::replace(&mut self.held, (at, file));
            *self.place(before) = last;
        }
        &mut self.held.1
    }

    /// A file's place in its chunk, which is nobody else's from now on.
    fn place(&mut self, at: usize) -> &mut File {
        let row = Arc::make_mut(&mut self.rows[at / CHUNK / ROW]);
        &mut Arc::make_mut(&mut row[at / CHUNK % ROW])[at % CHUNK]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &File> {
        (0..self.length).map(|at| self.at(at))
    }
}
