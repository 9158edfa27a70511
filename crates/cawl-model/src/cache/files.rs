//! The table of files, of which copies share what neither changes.

use std::sync::Arc;

use super::File;

/// Files in a chunk, and chunks in a row.
const CHUNK: usize = 16;
const ROW: usize = 32;
const FILES: usize = ROW * CHUNK;

/// Files by number, in chunks that copies share until one of them changes a chunk: a copy to look ahead with
/// is made while programs write, for each call that may have to wait, and touches few files. Rows of chunks,
/// so that few counts are to be touched by a copy of tens of thousands of files.
///
/// Invariant: one file, that changed last, is in `held` and nowhere else, and blank in its chunk; at first
/// that is file 0. So changing it again, as most calls do several times, asks of no chunk whether it is
/// shared. Of every other file there is a [`Brief`] in its row, which is right.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    rows: Vec<Arc<Row>>,
    pub(super) length: usize,
    pub(super) held: (usize, File),
}

/// Files that follow one another.
#[derive(Clone, Debug)]
struct Row {
    chunks: Vec<Arc<[File; CHUNK]>>,
    briefs: [Brief; FILES],
}

/// What the flusher asks first of a file, in few bytes, side by side: a file by itself is a few hundred, and
/// looking at tens of thousands of them is waiting for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Brief {
    pub(super) generation: u32,
    /// It is on one of the flusher's lists.
    pub(super) listed: bool,
    /// Its dirty pages do not begin at its cursor.
    pub(super) jumps: bool,
    /// Its dirty pages, where it is simple: they are one run within a block and none is padding, the cursor
    /// is not among them, and no other page is clean. Else 0.
    pub(super) pages: u16,
}

impl Brief {
    fn of(file: &File) -> Brief {
        let &File { generation, listed, cursor, .. } = file;
        let only = file.dirty.only_run().filter(|_| file.clean.pages() == 0 && file.padding.is_none());
        let only = only.filter(|run| cursor <= run.0 || run.1 <= cursor);
        let (start, end) = only.unwrap_or((cursor, cursor));
        Brief { generation, listed, jumps: start != cursor, pages: (end - start) as u16 }
    }
}

impl Default for Row {
    fn default() -> Row {
        Row { chunks: Vec::new(), briefs: [Brief::default(); FILES] }
    }
}

impl Files {
    pub(super) fn push(&mut self) {
        if self.length.is_multiple_of(FILES) {
            self.rows.push(Arc::default());
        }
        if self.length.is_multiple_of(CHUNK)
            && let Some(row) = self.rows.last_mut()
        {
            Arc::make_mut(row).chunks.push(Arc::default());
        }
        self.length += 1;
    }

    #[inline]
    pub(super) fn at(&self, at: usize) -> &File {
        if at == self.held.0 {
            &self.held.1
        } else {
            &self.rows[at / FILES].chunks[at / CHUNK % ROW][at % CHUNK]
        }
    }

    #[inline]
    pub(super) fn brief(&self, at: usize) -> Brief {
        if at == self.held.0 { Brief::of(&self.held.1) } else { self.rows[at / FILES].briefs[at % FILES] }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, at: usize) -> &mut File {
        if at != self.held.0 {
            self.hold(at);
        }
        &mut self.held.1
    }

    /// Another file is held. Swapped, as what is held and its blank in the chunk are where they are to be.
    fn hold(&mut self, at: usize) {
        let Files { rows, held: (held, file), .. } = self;
        // No longer shared with a copy.
        let row = Arc::make_mut(&mut rows[*held / FILES]);
        row.briefs[*held % FILES] = Brief::of(file);
        std::mem::swap(row.file(*held), file);
        std::mem::swap(Arc::make_mut(&mut rows[at / FILES]).file(at), file);
        *held = at;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &File> {
        (0..self.length).map(|at| self.at(at))
    }
}

impl Row {
    /// A file's place in its chunk, no longer shared with a copy.
    fn file(&mut self, at: usize) -> &mut File {
        &mut Arc::make_mut(&mut self.chunks[at / CHUNK % ROW])[at % CHUNK]
    }
}
