//! What several processes write to the same pages, as text and as JSON.

use cawl_core::sharing::{
    FileSharing, MeetingReport, Missing, SharingReport, TouchReport, Verdict, WriterReport,
};
use cawl_core::{Bytes, renamed_path};
use serde::Serialize;

use super::{below_paths, bold, compact, counted, headed, line, shown, table, time, warn_if};

/// Files that are not safe and explained, and files in the table.
const EXPLAINED: usize = 5;
const LISTED: usize = 20;
const PAGE: u64 = 4096;

/// The whole answer.
#[derive(Serialize)]
pub struct Answer {
    #[serde(flatten)]
    pub report: SharingReport,
    /// Which file it is says its `identity`, or where traces are of several hosts its `path`.
    pub files_by: &'static str,
    pub traces: Vec<TraceRead>,
}

/// A trace that was read.
#[derive(Serialize)]
pub struct TraceRead {
    pub path: String,
    /// Name of its host, if it has one.
    pub host: Option<String>,
    /// Its calls, of all kinds.
    pub calls: u64,
    /// What of it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

impl Answer {
    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let report = &self.report;
        let files = report.verdicts.values().sum();
        let checked = format!(
            "{}, {}, of {} to {}",
            counted(report.calls, "write"),
            Bytes(report.bytes),
            processes(report.processes),
            counted(files, "file")
        );
        line(&mut out, "checked", &checked, terminal);
        let is_unsafe = !self.is_whole() || report.verdict == Verdict::NotSafe;
        let verdict = bold(&warn_if(&self.verdict(), is_unsafe, terminal), terminal);
        line(&mut out, "verdict", &verdict, terminal);
        let of = report.verdicts.iter().rev().map(|(verdict, files)| format!("{files} {}", verdict.name()));
        if files > 0 {
            line(&mut out, "files", &of.collect::<Vec<_>>().join(", "), terminal);
        }
        self.notes(&mut out, terminal);
        let told = &report.files;
        for file in told.iter().filter(|file| file.verdict == Verdict::NotSafe).take(EXPLAINED) {
            self.explain(&mut out, file, terminal);
        }
        if !told.is_empty() {
            headed(&mut out, &listed(told), terminal);
            let more = told.len().saturating_sub(LISTED) as u64 + report.more_files;
            if more > 0 {
                out.push_str(&format!("and {more} more\n"));
            }
        }
        out
    }

    /// All calls are known: traces could be read to their ends, and nothing is missing in them.
    pub fn is_whole(&self) -> bool {
        self.traces.iter().all(|trace| trace.damage.is_none()) && self.report.missing == Missing::default()
    }

    fn verdict(&self) -> String {
        let report = &self.report;
        let count = |verdict| report.verdicts.get(&verdict).copied().unwrap_or(0);
        let text = match report.verdict {
            Verdict::NotJudged if !self.is_whole() => "not judged: not all of the calls are known".to_owned(),
            _ if report.calls == 0 => "safe: no file was written".to_owned(),
            Verdict::OneProcess if report.processes == 1 => "safe: one process writes".to_owned(),
            Verdict::OneProcess => "file per process: safe".to_owned(),
            Verdict::OwnPages => "safe: each page is written by one process".to_owned(),
            Verdict::InOrder => "safe by locks and flushes, in the order of these calls".to_owned(),
            Verdict::WholePages => format!(
                "safe for what one process wrote; in {} several write the same pages as a whole, and which of \
                 these stays is for the program to order",
                counted(count(Verdict::WholePages), "file")
            ),
            Verdict::NotJudged => {
                "not judged: where was written, or by whom, is not known of all calls and stores".to_owned()
            }
            Verdict::NotSafe => format!(
                "not safe: in {} several processes write parts of the same page without an order",
                counted(count(Verdict::NotSafe), "file")
            ),
        };
        match count(Verdict::NotJudged) {
            1.. if report.verdict != Verdict::NotJudged => {
                format!("{text}; {} not judged", counted(count(Verdict::NotJudged), "file"))
            }
            _ => text,
        }
    }

    /// What a reader must know of the whole.
    fn notes(&self, out: &mut String, terminal: bool) {
        let files = &self.report.files;
        let sum = |of: fn(&FileSharing) -> u64| files.iter().map(of).sum::<u64>();
        let (partial, reads) = (
            sum(|file| file.partial.map_or(0, |partial| partial.calls)),
            sum(|file| file.partial.map_or(0, |partial| partial.reads)),
        );
        if partial > 0 {
            let calls = if partial == 1 {
                "1 write begins or ends".to_owned()
            } else {
                format!("{partial} writes begin or end")
            };
            let text = format!("{calls} within a page; a client reads {} first", counted(reads, "page"));
            line(out, "partial", &text, terminal);
        }
        let elsewhere = sum(|file| file.in_order_by_other_files);
        if elsewhere > 0 {
            let text = format!(
                "{} in order by locks of another file only: not safe with clients that drop the pages of the \
                 locked file alone",
                if elsewhere == 1 { "1 write is".to_owned() } else { format!("{elsewhere} writes are") }
            );
            line(out, "by others", &text, terminal);
        }
        if self.files_by == "path" {
            let text =
                "the traces are of several hosts or do not name theirs: files of one path are one file";
            line(out, "files by", text, terminal);
        }
        let missing = &self.report.missing;
        let (lost, omitted) = (missing.dropped + missing.unseen, self.report.calls_omitted);
        let omitted = omitted + sum(|file| file.omitted);
        if lost > 0 {
            let text = format!("{} or mappings, lost on the way or passed unrecorded", counted(lost, "call"));
            line(out, "missing", &text, terminal);
        }
        if missing.bytes > 0 {
            let text = format!("{}, which the kernel counted and no call wrote", Bytes(missing.bytes));
            line(out, "missing", &text, terminal);
        }
        if missing.uncounted_processes > 0 {
            let text = format!(
                "what {} wrote: nobody could read the kernel's count",
                processes(missing.uncounted_processes)
            );
            line(out, "missing", &text, terminal);
        }
        for note in &missing.notes {
            line(out, "missing", &shown(note), terminal);
        }
        if omitted > 0 {
            let text = format!(
                "{} not remembered for want of room: later ones are compared with the others only",
                counted(omitted, "write")
            );
            line(out, "omitted", &text, terminal);
        }
        for trace in &self.traces {
            if let Some(damage) = &trace.damage {
                line(out, "note", &format!("{}: {damage}", shown(&trace.path)), terminal);
            }
        }
    }

    /// The first place of a file that is not safe, and what helps.
    fn explain(&self, out: &mut String, file: &FileSharing, terminal: bool) {
        let Some(pages) = file.overlap.as_ref().or(file.shared.as_ref()) else { return };
        out.push('\n');
        let path = renamed_path(&file.path, file.first_path.as_deref());
        line(out, "file", &bold(&shown(&path), terminal), terminal);
        let level = |pages: Option<u64>, what: &str| {
            pages.map(|pages| format!("{} with {what} of two processes", counted(pages, "page")))
        };
        let levels = [
            level(file.overlap.as_ref().map(|of| of.pages), "the same bytes"),
            level(file.shared.as_ref().map(|of| of.pages), "different bytes"),
        ];
        line(out, "not safe", &levels.into_iter().flatten().collect::<Vec<_>>().join(", "), terminal);
        let MeetingReport { page, flushed, ref first, ref second } = pages.first;
        let text = format!(
            "page {} (from byte {page}): {}, then {}",
            page / PAGE,
            self.touch(first),
            self.touch(second)
        );
        line(out, "first", &text, terminal);
        let [one, other] = [first, second].map(|touch| self.process(&touch.process));
        let missing = if flushed {
            format!("{one} flushed; {other} did not open or lock the file after that")
        } else {
            format!("{one} did not flush: no fsync, close or unlock")
        };
        line(out, "between", &missing, terminal);
        line(out, "remedy", &remedy(file), terminal);
    }

    fn touch(&self, touch: &TouchReport) -> String {
        let TouchReport { ref process, from, to, at_s } = *touch;
        let (process, last, at) = (self.process(process), to.saturating_sub(1), time(at_s));
        format!("{process} wrote {from} to {last} at {at}")
    }

    fn process(&self, process: &WriterReport) -> String {
        let WriterReport { trace, pid, ref program, rank } = *process;
        let name = program.rsplit('/').next().unwrap_or_default();
        let rank = rank.map(|rank| format!(" (rank {rank})")).unwrap_or_default();
        let of = if self.traces.len() > 1 { format!(" of trace {trace}") } else { String::new() };
        match name {
            "" => format!("process {pid}{rank}{of}"),
            name => format!("{} {pid}{rank}{of}", shown(name)),
        }
    }
}

fn processes(count: u64) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

fn remedy(file: &FileSharing) -> String {
    if file.appends {
        return "let one process write this file, or give each process its own".to_owned();
    }
    if file.overlap.is_some() {
        return "around each write lock the range (fcntl F_SETLKW), then fsync and unlock".to_owned();
    }
    let pages = match file.record {
        Some(record) if record.bytes > PAGE => {
            format!("pad records to {} B", record.bytes.next_multiple_of(PAGE))
        }
        _ => format!("let each process write whole pages (multiples of {PAGE} B)"),
    };
    format!("{pages}, or give each its own file; else lock before each write, then fsync and unlock")
}

fn listed(files: &[FileSharing]) -> String {
    let header = ["VERDICT", "PROCESSES", "WRITES", "BYTES", "PARTIAL", "READ", "RECORD"];
    let files = &files[..files.len().min(LISTED)];
    let rows = files.iter().map(|file| {
        let partial = |count: Option<u64>| count.map_or("-".to_owned(), compact::count);
        [
            file.verdict.name().to_owned(),
            (file.processes.len() as u64 + file.more_processes).to_string(),
            compact::count(file.calls),
            Bytes(file.bytes).to_string(),
            partial(file.partial.map(|partial| partial.calls)),
            partial(file.partial.map(|partial| partial.reads)),
            file.record.map_or("-".to_owned(), |record| format!("{} B", record.bytes)),
        ]
    });
    let named = files.iter().enumerate();
    let paths = named.map(|(at, file)| (at, renamed_path(&file.path, file.first_path.as_deref())));
    below_paths(&table(&header, [0], rows), paths)
}
