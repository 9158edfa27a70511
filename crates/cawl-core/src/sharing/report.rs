//! What is told of the files.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cawl_wire::Rank;
use serde::{Serialize, Serializer};

use super::file::{Conflict, FileState, Found, Meeting, Part, Touch};
use super::{PAGE, Sharing, Writer};
use crate::mode::Mode;
use crate::named::named;
use crate::record::{ARE_MISSING, ENDED_UNHEARD, EndKind, LOST_REQUESTS, USES_IO_URING};
use crate::tally::Tally;

/// Version of the JSON that [`SharingReport`] becomes.
pub const SHARING_SCHEMA: u32 = 1;
const TOLD: usize = 1000;
/// Processes of a file that are told one by one.
const WRITERS: usize = 8;
/// The part of the bytes that is all of those of a process which was met or left while it ran.
const WHOLE: f64 = 0.99;
/// What is in a note that tells of calls or stores that are not in the trace.
const LOSSES: [&str; 4] = [USES_IO_URING, LOST_REQUESTS, ENDED_UNHEARD, ARE_MISSING];
/// A size is the file's record where it has this part of at least so many calls.
const RECORD: (f64, u64) = (0.9, 4);

named! {
    /// Whether pages would keep what was written, from the safest on.
    #[derive(PartialOrd, Ord)]
    Verdict {
        /// One process writes the file.
        OneProcess = "one process",
        /// Several do, but each page is written by one of them.
        OwnPages = "own pages",
        /// Several write to the same pages, each in order after the others.
        InOrder = "in order",
        /// Several write the same pages as a whole, without an order: no bytes that only one wrote are lost.
        WholePages = "whole pages",
        /// Several write, or may have, but where is not known of all calls and stores.
        NotJudged = "not judged",
        /// Several write parts of the same page without an order.
        NotSafe = "not safe",
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What of the calls is not in the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Calls that were recorded but could not be sent.
    pub dropped: u64,
    /// Calls that passed through unrecorded.
    pub unseen: u64,
    /// Bytes that the kernel counted and that no call wrote.
    pub bytes: u64,
    /// Processes whose count nobody could read.
    pub uncounted_processes: u64,
    /// Notes that tell of calls or stores that are not in a trace: of io_uring, of a process that was killed
    /// before it could tell all.
    pub notes: Vec<String>,
}

/// What processes write to pages that others write, too.
#[derive(Clone, Debug, Serialize)]
pub struct SharingReport {
    /// [`SHARING_SCHEMA`].
    pub schema: u32,
    /// The worst verdict of a file that was judged.
    pub verdict: Verdict,
    /// Processes that wrote to a file.
    pub processes: u64,
    /// Writes to regular files.
    pub calls: u64,
    /// Bytes of these writes.
    pub bytes: u64,
    /// Files by verdict, also those that were deleted.
    pub verdicts: BTreeMap<Verdict, u64>,
    /// The files, the worst first, then those with most bytes; not those that were deleted, unless they are
    /// not safe.
    pub files: Vec<FileSharing>,
    /// Further ones.
    pub more_files: u64,
    /// Writes to files for which there was no room.
    pub calls_omitted: u64,
    /// Calls that are not in the trace.
    pub missing: Missing,
}

/// A file and the pages in it.
#[derive(Clone, Debug, Serialize)]
pub struct FileSharing {
    /// Path, or device and inode number.
    pub path: String,
    /// Its first path, if it was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_path: Option<String>,
    /// Whether its pages would keep what was written.
    pub verdict: Verdict,
    /// Writes to it.
    pub calls: u64,
    /// Bytes written to it.
    pub bytes: u64,
    /// The processes that wrote, most bytes first.
    pub processes: Vec<WriterReport>,
    /// Further ones.
    pub more_processes: u64,
    /// True if some appended (O_APPEND).
    pub appends: bool,
    /// Pages of which two processes wrote the same bytes without an order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<PageReport>,
    /// Pages of which two processes wrote different bytes without an order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<PageReport>,
    /// Pages that two processes wrote as a whole without an order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<PageReport>,
    /// Writes that met bytes of another process in order.
    pub in_order: u64,
    /// Those of them that only locks of other files put in order.
    pub in_order_by_other_files: u64,
    /// Writes of parts of pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial: Option<PartialReport>,
    /// Records of one size that do not fit the pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordReport>,
    /// Stores through mappings, estimated, whose place is not known.
    pub mapped: u64,
    /// Writes whose place is not known.
    pub unplaced: u64,
    /// Writes for which there was no room.
    pub omitted: u64,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WriterReport {
    /// Number of its trace among those given, from 1.
    pub trace: u32,
    /// Process id.
    pub pid: u32,
    /// Name of its program, as far as known.
    pub program: String,
    /// Its number in a parallel program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// Pages of which the same is to be told.
#[derive(Clone, Debug, Serialize)]
pub struct PageReport {
    /// How many.
    pub pages: u64,
    /// Where that came first.
    pub first: MeetingReport,
}

/// Two writes that met in a page.
#[derive(Clone, Debug, Serialize)]
pub struct MeetingReport {
    /// Offset of the page, in bytes.
    pub page: u64,
    /// True if the first one was flushed before the second one came.
    pub flushed: bool,
    /// The first one.
    pub first: TouchReport,
    /// The second one.
    pub second: TouchReport,
}

/// A write, or several that wrote a range together.
#[derive(Clone, Debug, Serialize)]
pub struct TouchReport {
    /// The process.
    pub process: WriterReport,
    /// Offset of the first byte.
    pub from: u64,
    /// Offset of the byte behind the last one.
    pub to: u64,
    /// When the latest of them began, in s since the first call.
    pub at_s: f64,
}

/// Writes of parts of pages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartialReport {
    /// Writes that begin or end within a page.
    pub calls: u64,
    /// Pages of which a client had to read other bytes for it.
    pub reads: u64,
}

/// Records of one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RecordReport {
    /// The size, in bytes.
    pub bytes: u64,
    /// Writes of this size.
    pub calls: u64,
    /// Writes that begin within a page, of all.
    pub begin_within_page: u64,
}

impl FileState {
    /// Something was written, though it may not be known where.
    pub(super) fn is_written(&self) -> bool {
        self.count.calls > 0
    }

    /// Bytes of a process went where is not known.
    pub(super) fn lost(&mut self, writer: u32, bytes: u64, by_mapping: bool) {
        self.parts.entry(writer).or_default().count.add(bytes);
        self.count.add(bytes);
        self.mapped += u64::from(by_mapping);
        self.unplaced += u64::from(!by_mapping);
    }

    /// As far as the calls on the file tell: other processes may have stored to it, too
    /// ([`Sharing::verdict`]).
    fn verdict(&self) -> Verdict {
        let is_found = |level: Conflict| self.found[level as usize].first.is_some();
        if is_found(Conflict::Overlap) || is_found(Conflict::Shared) {
            Verdict::NotSafe
        } else if self.parts.values().filter(|part| part.count.calls > 0).count() <= 1 {
            Verdict::OneProcess
        } else if self.mapped + self.unplaced + self.omitted > 0 {
            Verdict::NotJudged
        } else if is_found(Conflict::WholePage) {
            Verdict::WholePages
        } else if self.ordered > 0 {
            Verdict::InOrder
        } else {
            Verdict::OwnPages
        }
    }

    fn record(&self) -> Option<RecordReport> {
        let (bytes, calls) = *self.sizes.frequent().first()?;
        let (part, least) = RECORD;
        let is_record = calls >= least && calls as f64 >= part * self.count.calls as f64;
        let fits = bytes.is_multiple_of(PAGE) && self.within * 2 <= self.count.calls;
        (is_record && !fits).then_some(RecordReport { bytes, calls, begin_within_page: self.within })
    }
}

impl Sharing {
    /// Stores are seen where they make a clean page dirty. Those of another process in pages that are dirty
    /// already are not, so that a file is not judged where others may have it mapped.
    pub(super) fn verdict(&self, file: &FileState) -> Verdict {
        match file.verdict() {
            Verdict::OneProcess if file.mapped > 0 && self.may_have_others(file) => Verdict::NotJudged,
            verdict => verdict,
        }
    }

    /// True if other processes than the one that stored to a file may have it mapped: they opened it for
    /// writing and had not ended when that one did, or the mapping is one that fork copied.
    fn may_have_others(&self, file: &FileState) -> bool {
        let stored = file.parts.iter().find(|(_, part)| part.count.calls > 0);
        let Some((own, Part { opened, .. })) = stored else { return false };
        let Writer { trace, pid, .. } = self.writers[*own as usize];
        let Some(opened) = *opened else { return self.crowded.contains(&trace) };
        let lived = |other: u32| self.writers[other as usize].ended.is_none_or(|at| at > opened);
        let mut others = file.parts.iter().filter(|(other, part)| *other != own && part.opened.is_some());
        self.forks.get(&(trace, pid)).is_some_and(|at| *at > opened) || others.any(|(other, _)| lived(*other))
    }

    fn missing(&self) -> Missing {
        let mut missing = Missing::default();
        for seen in self.seen.values().map(|seen| seen.report(Mode::OpenLoop, false, &[], &[])) {
            let (wrote, told) = seen.wrote_and_seen();
            missing.dropped += seen.drops;
            missing.unseen += seen.unseen;
            // Of a process that was met or left while it ran, calls at the begin and the end are cut.
            let is_cut = seen.seen_by_probes().is_some()
                || seen.sessions.iter().any(|session| session.ended == EndKind::Running);
            if !is_cut || seen.coverage.is_none_or(|part| part < WHOLE) {
                missing.bytes += wrote.saturating_sub(told).0;
            }
            missing.uncounted_processes += seen.uncounted_processes;
            let tells = |note: &String| LOSSES.iter().any(|loss| note.contains(loss));
            missing.notes.extend(seen.notes.into_iter().filter(tells));
        }
        missing
    }

    /// What is known by now; calls that have not ended are taken as ended.
    pub fn report(&mut self) -> SharingReport {
        self.arrive(u64::MAX);
        let mut files: Vec<(String, &FileState)> = self
            .files
            .iter()
            .map(|((_, id), file)| match file.name.path() {
                "" => (format!("dev {} inode {}", id.dev, id.ino), file),
                path => (path.to_owned(), file),
            })
            .chain(self.gone.iter().map(|file| (file.name.path().to_owned(), file)))
            .filter(|(_, file)| file.is_written())
            .collect();
        files.sort_by(|(path, file), (other_path, other)| {
            let key = |file: &FileState| (Reverse(self.verdict(file)), Reverse(file.count.bytes));
            key(file).cmp(&key(other)).then_with(|| path.cmp(other_path))
        });
        let mut verdicts = self.gone_safely.clone();
        files.iter().for_each(|(_, file)| *verdicts.entry(self.verdict(file)).or_default() += 1);
        let judged = verdicts.keys().rev().find(|verdict| **verdict != Verdict::NotJudged);
        let worst = judged.or(verdicts.keys().next_back()).copied();
        let mut written = Tally::default();
        self.writers.iter().for_each(|writer| written.add_all(writer.count));
        SharingReport {
            schema: SHARING_SCHEMA,
            verdict: worst.unwrap_or(Verdict::OneProcess),
            processes: self.writers.iter().filter(|writer| writer.count.calls > 0).count() as u64,
            calls: written.calls,
            bytes: written.bytes,
            verdicts,
            files: files.iter().take(TOLD).map(|(path, file)| self.tell(path, file)).collect(),
            more_files: files.len().saturating_sub(TOLD) as u64,
            calls_omitted: self.files_omitted,
            missing: self.missing(),
        }
    }

    fn tell(&self, path: &str, file: &FileState) -> FileSharing {
        let parts = file.parts.iter().filter(|(_, part)| part.count.calls > 0);
        let mut parts: Vec<(u32, u64)> = parts.map(|(writer, part)| (*writer, part.count.bytes)).collect();
        parts.sort_by_key(|(writer, bytes)| (Reverse(*bytes), *writer));
        let processes = parts.iter().take(WRITERS).map(|(writer, _)| self.process(*writer));
        let level = |level: Conflict| self.pages(&file.found[level as usize]);
        let partial = PartialReport { calls: file.partial, reads: file.reads };
        FileSharing {
            path: path.to_owned(),
            first_path: file.name.first_path().map(str::to_owned),
            verdict: self.verdict(file),
            calls: file.count.calls,
            bytes: file.count.bytes,
            processes: processes.collect(),
            more_processes: parts.len().saturating_sub(WRITERS) as u64,
            appends: file.appends,
            overlap: level(Conflict::Overlap),
            shared: level(Conflict::Shared),
            whole: level(Conflict::WholePage),
            in_order: file.ordered,
            in_order_by_other_files: file.elsewhere,
            partial: (file.partial > 0).then_some(partial),
            record: file.record(),
            mapped: file.mapped,
            unplaced: file.unplaced,
            omitted: file.omitted,
        }
    }

    fn pages(&self, found: &Found) -> Option<PageReport> {
        let Meeting { page, ref first, ref second, flushed } = found.first?;
        let [first, second] = [first, second].map(|touch| self.touch(touch));
        let first = MeetingReport { page: page * PAGE, flushed, first, second };
        Some(PageReport { pages: found.pages.pages(), first })
    }

    fn touch(&self, touch: &Touch) -> TouchReport {
        let since = touch.at.saturating_sub(self.origin.unwrap_or(0));
        let Touch { writer, from, to, .. } = *touch;
        TouchReport { process: self.process(writer), from, to, at_s: since as f64 / 1e9 }
    }

    fn process(&self, writer: u32) -> WriterReport {
        let Writer { trace, pid, ref program, rank, .. } = self.writers[writer as usize];
        let rank = rank.map(|rank: Rank| rank.number);
        WriterReport { trace: trace + 1, pid, program: program.clone(), rank }
    }
}
