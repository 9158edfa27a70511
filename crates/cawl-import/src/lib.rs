//! Importers: recorded calls in other formats, as records.
//!
//! The law of this crate: **text in, records out, and every line is accounted for.** A line becomes records,
//! or is counted under the reason why not, or ends the import with an error that says where and what to do.
//! An importer never reads a file and never holds the whole input: its memory grows with the number of files,
//! processes and calls in flight, not with the number of lines.
#![forbid(unsafe_code)]

mod blkparse;
mod bpftrace;
mod by_line;
mod calls;
mod csv;
mod dftracer;
mod dxt;
mod fio;
mod fio_lat;
mod ftrace;
mod names;
mod perf_script;
mod perf_trace;
mod recorder;
mod rows;
mod strace;
mod syscalls;
#[cfg(test)]
mod testing;
mod tracepoints;

use std::collections::BTreeMap;

use cawl_core::Record;
use cawl_wire::flag;

pub use bpftrace::{BpftraceImporter, Pattern};
pub use by_line::ByLine;
pub use csv::{Columns, CsvImporter, CsvOptions};
pub use ftrace::FtraceImporter;
pub use perf_script::PerfScriptImporter;
pub use perf_trace::PerfTraceImporter;
pub use strace::{LineTime, StraceImporter, line_time};

/// Turns lines of text into records, one line at a time.
pub trait Importer {
    /// Takes one line, with or without its line ending, and appends the records it leads to. The
    /// caller takes them out of `out` as often as memory asks for. An error leaves the importer as it was
    /// before the line, so that the caller may go on with the next one.
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError>;

    /// There is one more input, of this name; all are told of before the first line, if there are several. An
    /// error says why the input is none of this format.
    fn begin(&mut self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    /// The lines that follow are those of this input, from 0.
    fn select(&mut self, _input: usize) {}

    /// When the line's call was, in ns, near enough to join several inputs; None: as the line before.
    fn time(&self, _line: &[u8]) -> Option<u64> {
        None
    }

    /// There are no more lines: appends the last records and says what was read.
    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError>;
}

/// Where an import ended before its time, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}{}: {fault}", if *field == 0 { String::new() } else { format!(", field {field}") })]
pub struct ImportError {
    /// Line of the input, from 1.
    pub line: u64,
    /// Field within the line, from 1; 0 when the fault is the line's or the input's as a whole.
    pub field: usize,
    /// What is wrong, and the remedy.
    pub fault: String,
}

/// Reads what darshan-dxt-parser prints.
pub type DxtImporter = ByLine<dxt::Dxt>;
/// Reads fio's logs of what it did (`write_iolog`).
pub type FioImporter = ByLine<fio::Iolog>;
/// Reads fio's latency logs (`write_lat_log`).
pub type FioLatImporter = ByLine<fio_lat::Latencies>;
/// Reads DFTracer's JSON lines.
pub type DftracerImporter = ByLine<dftracer::Dftracer>;
/// Reads what Recorder's recorder2text makes.
pub type RecorderImporter = ByLine<recorder::Recorder>;
/// Reads what blkparse prints.
pub type BlkparseImporter = ByLine<blkparse::Blkparse>;

impl DxtImporter {
    /// An importer at the start of its input; every file was open with these flags ([`flag`]).
    pub fn new(flags: u32) -> DxtImporter {
        by_line::by_line(dxt::Dxt::new(flags))
    }
}

impl FioImporter {
    /// An importer at the start of its input; every file was open with these flags ([`flag`]).
    pub fn new(flags: u32) -> FioImporter {
        by_line::by_line(fio::Iolog::new(flags))
    }
}

impl FioLatImporter {
    /// An importer at the start of its input; every file was open with these flags ([`flag`]).
    pub fn new(flags: u32) -> FioLatImporter {
        by_line::by_line(fio_lat::Latencies::new(flags))
    }
}

/// Flags of an open-file description ([`flag`]) as a person writes them: `O_SYNC,O_DIRECT`; `|` and `+`
/// separate as well as commas do.
pub fn open_flags(text: &str) -> Result<u32, String> {
    let mut bits = 0;
    for name in text.split(['|', ',', '+']).map(str::trim).filter(|name| !name.is_empty()) {
        bits |= match name {
            "O_CREAT" | "O_EXCL" | "O_CLOEXEC" | "O_LARGEFILE" | "O_NOATIME" | "O_NOCTTY" | "O_NOFOLLOW"
            | "O_NONBLOCK" => 0,
            _ => open_flag(name).ok_or_else(|| {
                let name = shown(name);
                format!(
                    "flag \"{name}\" is not known; use O_SYNC, O_DSYNC, O_DIRECT, O_APPEND, O_TRUNC or an access mode"
                )
            })?,
        };
    }
    Ok(bits)
}

/// What the names of open flags, with `|` between, mean for an event.
fn open_bits(names: &str) -> u32 {
    names.split('|').filter_map(open_flag).fold(0, |bits, bit| bits | bit)
}

/// What the name of an open flag means for an event; None if it means nothing.
fn open_flag(name: &str) -> Option<u32> {
    Some(match name {
        "O_RDONLY" => 0,
        "O_WRONLY" | "O_RDWR" => flag::WRITABLE,
        "O_APPEND" => flag::APPEND,
        "O_SYNC" => flag::SYNC,
        "O_DSYNC" => flag::DSYNC,
        "O_DIRECT" => flag::DIRECT,
        "O_TRUNC" => flag::TRUNC,
        "O_TMPFILE" => flag::TMPFILE,
        _ => return None,
    })
}

/// What an import came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportSummary {
    /// Lines read.
    pub lines: u64,
    /// Calls imported: events among the records.
    pub calls: u64,
    /// Bytes that those calls handed to the kernel or to a stream, in bytes.
    pub bytes: u64,
    /// Files met by those calls.
    pub files: u64,
    /// Process images.
    pub sessions: u64,
    /// Calls that start before the one on the line before, which the models take as it is.
    pub out_of_order: u64,
    /// Rows that stand behind later ones: all rows were put in order of their starts.
    pub sorted: u64,
    /// Wall-clock time of the records' time 0, in ns since 1970-01-01 UTC, where the input tells.
    pub epoch: Option<u64>,
    /// What the format does not tell, or what was inferred for it, in sentences for a person.
    pub notes: Vec<String>,
    /// Lines that did not become a call, by reason.
    pub skipped: Vec<Skipped>,
}

/// Lines that did not become a call for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Why.
    pub reason: SkipReason,
    /// How many.
    pub lines: u64,
    /// The first of them, from 1.
    pub first: u64,
    /// The input that the first of them is in, from 0.
    pub input: usize,
}

/// Why a line did not become a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SkipReason {
    /// The line could not be read: it was cut off, or the program's own output got in between.
    #[error("not readable: cut off, of another format, or the program's own output")]
    Unreadable,
    /// The line has no time in front; strace was run without -ttt.
    #[error("without time (record with -ttt)")]
    Timeless,
    /// The line does not say which of several processes it is about; strace was run with neither -f nor -o.
    #[error("without process id while several run (record with -f -o)")]
    Anonymous,
    /// The rest of a call whose beginning is not there.
    #[error("calls without beginning")]
    Headless,
    /// A call without result: the process was killed in it, or it is begun anew after a signal.
    #[error("calls without result")]
    Endless,
    /// A call without duration; strace was run without -T. It was imported all the same.
    #[error("calls without duration, which are predicted and not compared (strace records it with -T)")]
    Durationless,
    /// A call of which the format tells less than models need, as this text says; it was imported all the
    /// same.
    #[error("{0}")]
    Vague(&'static str),
    /// A call of which the time is known to the second; it was imported all the same, behind the thread's
    /// call before it. strace was run with -t.
    #[error("calls with times in whole seconds, put one behind the other (record with -ttt)")]
    WholeSeconds,
    /// A call that can write, which no importer knows: what it wrote is missing from the trace.
    #[error("{0}: can write, but is not imported")]
    Unmodelled(String),
    /// Events that the recorder could not keep up with.
    #[error("lost by the recorder: the calls they were of are missing (record with larger buffers)")]
    Lost,
    /// A call whose effect stands behind a pointer that the recording does not follow.
    #[error("{0}: what it did stands behind a pointer")]
    Hidden(String),
    /// A call on a name that stands behind a pointer; it was imported all the same.
    #[error("{0}: its file is not told, for the name stands behind a pointer")]
    Nameless(String),
    /// A call that changes no file, which is not needed where each row names its file.
    #[error("{0}: changes no file")]
    Harmless(String),
    /// What is told elsewhere in the input, or is a step of a call that is told.
    #[error("{0}")]
    Elsewhere(&'static str),
    /// A call that failed before it had any effect on a file.
    #[error("failed calls without effect")]
    Failed,
    /// A call that only looks, on a descriptor that is only for reading.
    #[error("calls that only read")]
    ReadOnly,
    /// A call that has nothing to do with files.
    #[error("{0}: no call that opens, reads, writes or syncs a file")]
    Other(String),
}

impl SkipReason {
    /// The call that it is about, where each has a count of its own.
    pub fn call(&self) -> Option<&str> {
        use SkipReason::{Harmless, Hidden, Nameless, Other, Unmodelled};
        match self {
            Unmodelled(call) | Hidden(call) | Nameless(call) | Harmless(call) | Other(call) => Some(call),
            _ => None,
        }
    }

    /// What is counted: lines, or what a line tells of.
    pub const fn unit(&self) -> &'static str {
        if matches!(self, SkipReason::Lost) { "event" } else { "line" }
    }

    /// True if the call was imported all the same.
    pub const fn is_imported(&self) -> bool {
        use SkipReason::{Durationless, Nameless, Vague, WholeSeconds};
        matches!(self, Durationless | WholeSeconds | Nameless(_) | Vague(_))
    }

    /// True when the trace lacks something because of it.
    pub const fn is_loss(&self) -> bool {
        !matches!(
            self,
            SkipReason::Failed
                | SkipReason::ReadOnly
                | SkipReason::Harmless(_)
                | SkipReason::Elsewhere(_)
                | SkipReason::Other(_)
        )
    }
}

/// Counts lines by reason.
#[derive(Debug, Default)]
struct SkipCounts {
    /// How many, and the first with its input, losses first.
    reasons: BTreeMap<SkipReason, (u64, u64, usize)>,
    /// The input whose lines come, from 0.
    input: usize,
}

impl SkipCounts {
    /// Reasons kept apart; only noise that looks like calls has more.
    const MAX: usize = 1000;

    fn count(&mut self, reason: SkipReason, line: u64) {
        self.count_many(reason, line, 1);
    }

    fn count_many(&mut self, reason: SkipReason, line: u64, number: u64) {
        let count = &mut self.reasons.entry(reason).or_insert((0, line, self.input)).0;
        *count = count.saturating_add(number);
    }

    /// A call that has nothing to do with files; most lines are of this kind.
    fn count_other(&mut self, name: &str, line: u64) {
        let reason = SkipReason::Other(name.to_owned());
        let is_new = self.reasons.len() >= SkipCounts::MAX && !self.reasons.contains_key(&reason);
        self.count(if is_new { SkipReason::Other("further calls".to_owned()) } else { reason }, line);
    }

    /// All of them, losses first.
    fn list(&self) -> Vec<Skipped> {
        let skipped = |(reason, &(lines, first, input)): (&SkipReason, _)| {
            let reason = reason.clone();
            Skipped { reason, lines, first, input }
        };
        self.reasons.iter().map(skipped).collect()
    }
}

/// What kept a text from being a time, and the remedy.
const MALFORMED: &str = "not a decimal number of seconds; write it as 12.000345678";
const NEGATIVE: &str = "but times are not negative; add a constant to all starts";
const LATE: &str = "over 584 years; subtract a constant from all starts";

/// Decimal seconds as nanoseconds, exact: the tenth decimal rounds, and no float comes between.
/// Exponents (`1e-05`) are understood.
fn nanoseconds(text: &[u8]) -> Result<u64, &'static str> {
    scaled(text, 9)
}

/// A decimal number in units of 10^`scale` ns as nanoseconds, as exact as [`nanoseconds`].
fn scaled(text: &[u8], scale: u8) -> Result<u64, &'static str> {
    let text = text.trim_ascii();
    let (negative, digits) = signed(text);
    let (mantissa, exponent) = match digits.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => (&digits[..at], parse_exponent(&digits[at + 1..])?),
        None => (digits, 0),
    };
    let point = mantissa.iter().position(|&b| b == b'.');
    let whole = &mantissa[..point.unwrap_or(mantissa.len())];
    let fraction = point.map_or(&[][..], |at| &mantissa[at + 1..]);
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    // Decimal places of the mantissa that make whole nanoseconds; the next one rounds.
    let places = (whole.len() as i64 + i64::from(scale)).saturating_add(exponent);
    let mut places = places.max(-1);
    let mut ns: u64 = 0;
    let mut digits = whole.iter().chain(fraction);
    while places > 0 {
        let digit = match digits.next() {
            Some(digit) => u64::from(digit - b'0'),
            None if ns == 0 => break,
            None => 0,
        };
        ns = ns.checked_mul(10).and_then(|ns| ns.checked_add(digit)).ok_or(LATE)?;
        places -= 1;
    }
    if places == 0 && digits.next().is_some_and(|&digit| digit >= b'5') {
        ns = ns.checked_add(1).ok_or(LATE)?;
    }
    if negative && ns > 0 { Err(NEGATIVE) } else { Ok(ns) }
}

/// A decimal exponent, with a sign or without; far out of range is kept at the edge of it.
fn parse_exponent(text: &[u8]) -> Result<i64, &'static str> {
    let (negative, digits) = signed(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    let value =
        digits.iter().fold(0i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(1_000_000));
    Ok(if negative { -value } else { value })
}

/// True if a minus stands in front, and what follows the sign.
fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text.split_first() {
        Some((sign @ (b'-' | b'+'), rest)) => (*sign == b'-', rest),
        _ => (false, text),
    }
}

/// A whole number in decimal digits; None for anything else and what does not fit.
fn whole_number(text: impl AsRef<[u8]>) -> Option<u64> {
    let text = text.as_ref();
    let digits = text.iter().all(u8::is_ascii_digit).then_some(text)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A line without its ending; the first one without the mark of UTF-8.
fn bare(line: &[u8], first: bool) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    if first { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line }
}

/// A piece of the input for a message: at most 40 characters.
fn shown(text: impl AsRef<[u8]>) -> String {
    let text = String::from_utf8_lossy(text.as_ref());
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        let ok = |text: &str| nanoseconds(text.as_bytes()).unwrap();
        assert_eq!(ok("0.300244343"), 300_244_343);
        assert_eq!(ok("1795229126.962839"), 1_795_229_126_962_839_000);
        assert_eq!(ok("0.30024434300000003"), 300_244_343);
        assert_eq!(ok("0.0000000005"), 1);
        assert_eq!(ok("0.00000000049999"), 0);
        assert_eq!(ok("9.9999999999"), 10_000_000_000);
        assert_eq!(ok("1e-05"), 10_000);
        assert_eq!(ok("1.5E+2"), 150_000_000_000);
        assert_eq!(ok("1234e-12"), 1);
        assert_eq!(ok("5e-10"), 1);
        assert_eq!(ok("9e-11"), 0);
        assert_eq!(ok("9e-1000000000000"), 0);
        assert_eq!(ok("0e99"), 0);
        assert_eq!(ok(".5"), 500_000_000);
        assert_eq!(ok("7."), 7_000_000_000);
        assert_eq!(ok("-0.0"), 0);
        assert_eq!(ok(" 3 "), 3_000_000_000);
        assert_eq!(ok("18446744073.709551615"), u64::MAX);
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in ["", ".", "x", "1.2.3", "1e", "1e+", "0x10", "nan", "inf", "1 2", "--1"] {
            assert_eq!(nanoseconds(text.as_bytes()), Err(MALFORMED), "{text}");
        }
        assert_eq!(nanoseconds(b"-0.000000001"), Err(NEGATIVE));
        assert_eq!(nanoseconds(b"18446744073.709551616"), Err(LATE));
        assert_eq!(nanoseconds(b"18446744073.7095516159"), Err(LATE));
        assert_eq!(nanoseconds(b"1e99"), Err(LATE));
    }

    #[test]
    fn flags_by_name() {
        let flags = open_flags("O_SYNC, O_DIRECT|O_APPEND+O_CREAT");
        assert_eq!(flags, Ok(flag::SYNC | flag::DIRECT | flag::APPEND));
        assert_eq!(open_flags(""), Ok(0));
        assert!(open_flags("O_SNYC").unwrap_err().contains("\"O_SNYC\" is not known"));
    }
}
