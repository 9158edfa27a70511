//! What changes must know of a trace before its calls come.

use cawl_wire::{Event, FileId, FileKind, Op};

use crate::buffers::{Fill, Language, ProgramBuffer, Seen};
use crate::call::kernel_bytes;
use crate::model::Map;
use crate::record::Record;

/// What changes must know of a trace before its calls come: how large its files become, and through which
/// buffers its programs write them.
#[derive(Clone, Debug, Default)]
pub struct TraceFacts {
    files: Map<FileId, File>,
    languages: Map<u32, Language>,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// In bytes.
    size: u64,
    /// `st_blksize`, in bytes.
    block: u32,
    /// That of the process whose writes the sizes are of.
    language: Option<Language>,
    fill: Option<Box<Fill>>,
    calls: u64,
    closes: u64,
}

impl TraceFacts {
    /// Takes the next record of the trace.
    pub fn take(&mut self, record: &Record) {
        match record {
            Record::Session(session) => {
                match session.language() {
                    Some(language) => self.languages.insert(session.pid, language),
                    None => self.languages.remove(&session.pid),
                };
            }
            Record::File(facts) => self.files.entry(facts.file()).or_default().block = facts.block,
            Record::Event(event) => {
                let bytes = kernel_bytes(event);
                let closes = is_close(event);
                if bytes == 0 && !closes {
                    return;
                }
                let file = self.files.entry(event.file()).or_default();
                file.closes += u64::from(closes);
                if bytes == 0 {
                    return;
                }
                if let Some(end) = event.offset.checked_add(bytes) {
                    file.size = end.max(file.size);
                }
                file.calls += 1;
                if Fill::take(&mut file.fill, event, bytes) {
                    file.language = self.languages.get(&event.pid).copied();
                }
            }
            _ => {}
        }
    }

    /// The size of a file in bytes; 0 if nothing was written to it.
    pub(super) fn size_of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |file| file.size)
    }

    /// How often a file is closed.
    pub(super) fn closes_of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |file| file.closes)
    }

    /// The files that are written through a buffer of the program, with its process.
    pub(super) fn buffers(&self) -> Map<FileId, (u32, ProgramBuffer)> {
        let buffer = |file: &File| {
            let fill = file.fill.as_ref()?;
            let File { language, block, calls, .. } = *file;
            Some((fill.pid, fill.buffer(Seen { language, block, calls, sought: false })?))
        };
        self.files.iter().filter_map(|(id, file)| Some((*id, buffer(file)?))).collect()
    }
}

/// The end of a descriptor of something that can be synced.
pub(super) fn is_close(event: &Event) -> bool {
    matches!(event.op, Op::Close | Op::StreamClose)
        && matches!(event.kind, FileKind::Regular | FileKind::Directory)
}
