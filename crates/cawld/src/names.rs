//! Names of files, programs and ways for rows that outlive the engine's tables.
//!
//! The law of this module: **bounded for any program.**

use std::collections::VecDeque;
use std::sync::Arc;

use cawl_core::{Record, Stack};
use cawl_export::{folded_way, unnamed};
use cawl_wire::{Event, FileId};
use rustc_hash::FxHashMap;

use crate::totals::Totals;

/// Files whose names are kept; all are forgotten when there are more, and asked for again.
const FILES: usize = 16_384;
/// Stacks, likewise; one that is forgotten has no name any more.
const STACKS: usize = 16_384;
/// Images of a process that may have calls not seen yet.
const IMAGES: usize = 4;

/// What records told.
#[derive(Default)]
pub struct Names {
    paths: FxHashMap<FileId, Arc<str>>,
    /// By process: session, beginning and program of its latest images, the earliest first.
    programs: FxHashMap<u32, VecDeque<(u32, u64, Arc<str>)>>,
    ways: FxHashMap<u32, Arc<str>>,
}

impl Names {
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::File(file) => drop(self.paths.remove(&file.file())),
            Record::Session(session) => {
                let images = self.programs.entry(session.pid).or_default();
                if images.len() == IMAGES {
                    images.pop_front();
                }
                images.push_back((session.id, session.started.0, session.program.as_str().into()));
            }
            // Its process may have another image by now.
            Record::End(end) => self.programs.retain(|_, images| {
                images.retain(|(session, ..)| *session != end.id);
                !images.is_empty()
            }),
            Record::Stack(stack) => self.stack(stack),
            _ => {}
        }
    }

    fn stack(&mut self, stack: &Stack) {
        if self.ways.len() == STACKS {
            self.ways.clear();
        }
        self.ways.insert(stack.id, folded_way(&stack.frames, stack.truncated).into());
    }

    /// Path of a call's file, or the file's identity; None if it has no file.
    pub fn path(&mut self, event: &Event, totals: Option<&Totals>) -> Option<Arc<str>> {
        let file = event.file();
        if file == FileId::default() {
            return None;
        }
        if self.paths.len() == FILES {
            self.paths.clear();
        }
        let named = || totals.and_then(|totals| totals.path(file)).map(Arc::from);
        let path = self
            .paths
            .entry(file)
            .or_insert_with(|| named().unwrap_or_else(|| unnamed(file.dev, file.ino).into()));
        Some(Arc::clone(path))
    }

    /// Program of a call's process.
    pub fn program(&self, event: &Event) -> Option<Arc<str>> {
        let images = self.programs.get(&event.pid)?;
        let begun = images.iter().rev().find(|(_, started, _)| *started <= event.start);
        begun.or(images.front()).map(|(.., program)| Arc::clone(program))
    }

    /// Where in its program a call came from.
    pub fn way(&self, event: &Event) -> Option<Arc<str>> {
        self.ways.get(&event.stack).filter(|_| event.stack != 0).map(Arc::clone)
    }
}
