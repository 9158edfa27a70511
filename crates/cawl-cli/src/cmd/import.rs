//! `import`: makes a trace of calls recorded by another tool.

mod several;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, IsTerminal, Read, Write};
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::{Bytes, Record};
use cawl_host::trace::{TraceFile, WhenFull};
use cawl_import::{
    BlkparseImporter, BpftraceImporter, CsvImporter, CsvOptions, DftracerImporter, DxtImporter, FioImporter,
    FioLatImporter, FtraceImporter, ImportError, ImportSummary, Importer, LineTime, PerfScriptImporter,
    PerfTraceImporter, RecorderImporter, SkipReason, Skipped, StraceImporter, line_time,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use self::several::Several;
use super::{apart, read_profile, unpacked};
use crate::args::{Format, ImportArgs};
use crate::{exit, outputs, render};

/// Longest line, in bytes.
const LONGEST_LINE: u64 = 16 << 20;
/// Calls that a remark names; others are a number.
const CALLS: usize = 40;

pub fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let is_flagless = matches!(args.from, Format::Csv | Format::Fio | Format::FioLat | Format::DarshanDxt);
    exit::usage(args.flags.is_none() || is_flagless, || {
        "--flags is for csv, fio, fio-lat and darshan-dxt: other formats tell the flags of each file; leave it out"
            .to_owned()
    })?;
    exit::usage(args.columns.is_none() || matches!(args.from, Format::Csv), || {
        "--columns is for csv: other formats have their own columns; leave it out".to_owned()
    })?;
    exit::usage(args.pattern.is_some() == matches!(args.from, Format::Bpftrace), || {
        "--pattern is for bpftrace, which needs it: --from bpftrace --pattern '{start_ns} {pid} {op} {fd} {size} {ret}'"
            .to_owned()
    })?;
    apart(args.inputs.iter().chain(&args.profile), Some(&args.output))?;
    outputs::check(&args.output, &outputs::TRACE)?;
    let profile = args.profile.as_deref().map(read_profile).transpose()?;
    let about = || match &args.inputs[..] {
        [input] => format!("cannot import {}", input.display()),
        inputs => format!("cannot import {} files", inputs.len()),
    };
    let mut importer = importer(args);
    for input in &args.inputs {
        let begun = importer.begin(&input.to_string_lossy());
        begun.map_err(|fault| anyhow::anyhow!("{}: {fault}", input.display())).with_context(about)?;
    }
    let mut lines = match (&args.inputs[..], args.from) {
        ([input], _) => Lines::One(Some(open(input).with_context(about)?)),
        (inputs, Format::Strace) => Lines::Threads(Threads::open(inputs)?),
        (inputs, Format::Fio | Format::FioLat | Format::Dftracer | Format::Recorder) => {
            Lines::Several(Several::open(inputs, &*importer)?)
        }
        _ => anyhow::bail!("one file of this format is imported at a time; join them to one first"),
    };
    let mut trace = TraceFile::create(&args.output, WhenFull::Wait)
        .with_context(|| format!("cannot write the trace {}", args.output.display()))?;
    profile.into_iter().for_each(|profile| trace.push(&Record::Profile(Box::new(profile))));
    // Half an import is no trace: on an error nothing is left of it.
    let mut bad = Bad { inputs: &args.inputs, keep_going: args.keep_going, ..Bad::default() };
    let summary = copy(&mut lines, &mut *importer, &mut trace, &mut bad).with_context(about)?;
    if let Some(failure) = trace.finish() {
        anyhow::bail!(failure);
    }
    tell(&summary, &bad, args);
    Ok(exit::of_whole(bad.lines == 0 && bad.cut == 0))
}

fn importer(args: &ImportArgs) -> Box<dyn Importer> {
    let flags = args.flags.unwrap_or_default();
    match args.from {
        Format::Csv => {
            let columns = args.columns.clone();
            Box::new(CsvImporter::new(CsvOptions { flags, columns, ..CsvOptions::default() }))
        }
        Format::Strace => Box::<StraceImporter>::default(),
        Format::Fio => Box::new(FioImporter::new(flags)),
        Format::FioLat => Box::new(FioLatImporter::new(flags)),
        Format::DarshanDxt => Box::new(DxtImporter::new(flags)),
        Format::Dftracer => Box::<DftracerImporter>::default(),
        Format::Recorder => Box::<RecorderImporter>::default(),
        Format::Blkparse => Box::<BlkparseImporter>::default(),
        Format::PerfTrace => Box::<PerfTraceImporter>::default(),
        Format::PerfScript => Box::<PerfScriptImporter>::default(),
        Format::Ftrace => Box::<FtraceImporter>::default(),
        Format::Bpftrace => Box::new(BpftraceImporter::new(args.pattern.clone().unwrap_or_default())),
    }
}

/// What could not be read, where the import goes on all the same.
#[derive(Default)]
struct Bad<'a> {
    inputs: &'a [PathBuf],
    keep_going: bool,
    /// Lines of bad rows.
    lines: u64,
    /// Inputs that end before their time.
    cut: u64,
    /// Where the first of them are, and why.
    first: Vec<String>,
}

impl Bad<'_> {
    /// Bad places that are named.
    const NAMED: usize = 5;

    fn name(&mut self, text: impl std::fmt::Display, input: usize) {
        if self.first.len() < Bad::NAMED {
            let place = place(self.inputs, input);
            self.first.push(format!("{place}{text}"));
        }
    }

    /// An error of the importer's; `read` lines of the input were read.
    fn row(&mut self, error: ImportError, input: usize, read: u64) -> anyhow::Result<()> {
        if !self.keep_going {
            let place = place(self.inputs, input);
            return Err(if place.is_empty() { error.into() } else { anyhow::anyhow!("{place}{error}") });
        }
        // A row may have several lines.
        self.lines += (read + 1).saturating_sub(error.line).max(1);
        self.name(&error, input);
        Ok(())
    }

    /// An input that cannot be read further.
    fn cut(&mut self, error: anyhow::Error, input: usize) -> anyhow::Result<()> {
        if !self.keep_going {
            return Err(error);
        }
        self.cut += 1;
        self.name(format!("the input ends early: {error:#}"), input);
        Ok(())
    }

    /// All of it, in a sentence.
    fn in_words(&self) -> Option<String> {
        let counted = render::counted;
        let cut = format!("{} not read to the end", counted(self.cut, "input"));
        Some(match (self.lines, self.cut) {
            (0, 0) => return None,
            (0, _) => cut,
            (lines, 0) => format!("{} not readable", counted(lines, "line")),
            (lines, _) => format!("{} not readable, {cut}", counted(lines, "line")),
        })
    }
}

/// The name of one of several inputs, in front of what is told of it.
fn place(inputs: &[PathBuf], input: usize) -> String {
    if inputs.len() < 2 { String::new() } else { format!("{}: ", inputs[input].display()) }
}

fn copy(
    lines: &mut Lines,
    importer: &mut dyn Importer,
    trace: &mut TraceFile,
    bad: &mut Bad<'_>,
) -> anyhow::Result<ImportSummary> {
    let mut line = Vec::new();
    let mut records: Vec<Record> = Vec::new();
    let mut read = vec![0; bad.inputs.len()];
    let mut blank = 0;
    loop {
        match lines.next(&mut line, importer) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                bad.cut(error, lines.input())?;
                continue;
            }
        }
        read[lines.input()] += 1;
        blank = if line.trim_ascii().is_empty() { blank + line.len() as u64 } else { 0 };
        // A small packed file may have days of these.
        let most = Bytes(LONGEST_LINE);
        anyhow::ensure!(blank < most.0, "{most} of blank lines in a row: this is no recording of calls");
        if let Err(error) = importer.line(&line, &mut records) {
            bad.row(error, lines.input(), read[lines.input()])?;
        }
        records.drain(..).for_each(|record| trace.push(&record));
    }
    // The last row may be bad, too; what is bad in all of the input is so again.
    let summary = importer.finish(&mut records).or_else(|error| {
        bad.row(error, lines.input(), read[lines.input()])?;
        importer.finish(&mut records).map_err(anyhow::Error::from)
    });
    let summary = match (summary, bad.first.first()) {
        (Ok(summary), Some(first)) if summary.calls == 0 => anyhow::bail!("no line is of a call; {first}"),
        (Err(error), Some(first)) if bad.keep_going && bad.lines > 1 => {
            return Err(error.context(format!("no line could be read; the first is bad: {first}")));
        }
        (summary, _) => summary?,
    };
    if let Some(told) = bad.in_words() {
        let first = bad.first.first().map_or("", String::as_str);
        records.push(Record::Note(format!("import: {told} (first: {first})")));
    }
    records.drain(..).for_each(|record| trace.push(&record));
    Ok(summary)
}

enum Lines {
    /// None: it cannot be read further.
    One(Option<Box<dyn BufRead>>),
    Threads(Threads),
    Several(Several),
}

impl Lines {
    /// The next line; false if there is none. What cannot be read further is an error once.
    fn next(&mut self, line: &mut Vec<u8>, importer: &mut dyn Importer) -> anyhow::Result<bool> {
        match self {
            Lines::One(input) => {
                let Some(open) = input else { return Ok(false) };
                let more = read_line(open, line);
                if more.is_err() {
                    *input = None;
                }
                more
            }
            Lines::Threads(threads) => threads.next(line),
            Lines::Several(several) => several.next(line, importer),
        }
    }

    /// The input that the latest line came from.
    fn input(&self) -> usize {
        match self {
            Lines::Several(several) => several.latest,
            _ => 0,
        }
    }
}

fn read_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> anyhow::Result<bool> {
    line.clear();
    let length = input.take(LONGEST_LINE).read_until(b'\n', line)? as u64;
    anyhow::ensure!(
        length < LONGEST_LINE || line.ends_with(b"\n"),
        "a line is longer than {}: this is no recording of calls",
        Bytes(LONGEST_LINE)
    );
    Ok(length > 0)
}

/// The files of `strace -ff`, one for each thread, as `strace -f` would have written them: by time.
struct Threads {
    files: Vec<ThreadFile>,
    /// The files with lines, by the time of their next one.
    turns: BinaryHeap<Reverse<(u64, usize)>>,
}

struct ThreadFile {
    path: PathBuf,
    tid: u32,
    input: Box<dyn BufRead>,
    /// The next line, and when it was written.
    line: Vec<u8>,
    time: u64,
}

impl Threads {
    fn open(paths: &[PathBuf]) -> anyhow::Result<Threads> {
        let mut threads = Threads { files: Vec::new(), turns: BinaryHeap::new() };
        for path in paths {
            let tid = path.extension().and_then(|end| end.to_str()).and_then(|end| end.parse().ok());
            let tid = tid.with_context(|| {
                format!(
                    "{} is not one of several files FILE.PID of strace -ff; import it alone",
                    path.display()
                )
            })?;
            let input = open(path).with_context(|| format!("cannot read {}", path.display()))?;
            threads.files.push(ThreadFile { path: path.clone(), tid, input, line: Vec::new(), time: 0 });
            threads.advance(threads.files.len() - 1)?;
        }
        Ok(threads)
    }

    fn next(&mut self, line: &mut Vec<u8>) -> anyhow::Result<bool> {
        let Some(Reverse((_, at))) = self.turns.pop() else { return Ok(false) };
        line.clear();
        write!(line, "{} ", self.files[at].tid)?;
        line.append(&mut self.files[at].line);
        self.advance(at)?;
        Ok(true)
    }

    /// Reads a file's next line.
    fn advance(&mut self, at: usize) -> anyhow::Result<()> {
        const DAY: u64 = 86_400_000_000_000;
        let file = &mut self.files[at];
        if !read_line(&mut *file.input, &mut file.line)? {
            return Ok(());
        }
        let remedy = "record with strace -ff -ttt -T -y -o FILE";
        match line_time(&file.line) {
            Some(LineTime::At { ns, of_day }) => {
                let day = if of_day { file.time / DAY * DAY } else { 0 };
                // It was written after the line before.
                let later = of_day && ns + day + DAY / 2 < file.time;
                file.time = ns + day + if later { DAY } else { 0 };
            }
            // The line before goes on.
            None => {}
            Some(LineTime::Relative) => anyhow::bail!(
                "{}: its times count from lines of other files (-r), which cannot be told apart; {remedy}",
                file.path.display()
            ),
            Some(LineTime::OfThread) => anyhow::bail!(
                "{}: its lines name threads, so it is not a file of strace -ff; import it alone, or {remedy}",
                file.path.display()
            ),
        }
        self.turns.push(Reverse((file.time, at)));
        Ok(())
    }
}

/// The first bytes of what other programs packed, and what unpacks it.
const PACKED: [(&[u8], &str); 4] =
    [(b"\xfd7zXZ", "unxz"), (b"\x28\xb5\x2f\xfd", "unzstd"), (b"BZh", "bunzip2"), (b"PK\x03\x04", "unzip")];

/// The input, unpacked. On a terminal, a line tells which part of it was read.
fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let file = File::open(if path == Path::new("-") { Path::new("/dev/stdin") } else { path })?;
    let size = Some(file.metadata()?.len()).filter(|size| *size > 0);
    let terminal =
        if size.is_some() { ProgressDrawTarget::stderr_with_hz(1) } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(size, terminal);
    bar.set_style(ProgressStyle::with_template("importing {percent:>3} %").expect("a valid template"));
    let mut input = unpacked(bar.wrap_read(file))?;
    let begin = input.fill_buf()?;
    if let Some((_, program)) = PACKED.iter().find(|(magic, _)| begin.starts_with(magic)) {
        anyhow::bail!("it is compressed; unpack it with {program} first, or compress it with gzip");
    }
    Ok(input)
}

/// The reason of lines, and the calls that they are of if there are several.
fn why(alike: &[Skipped], reason: &SkipReason) -> String {
    let whole = reason.to_string();
    let call = reason.call().filter(|_| alike.len() > 1);
    let Some(why) = call.and_then(|call| whole.strip_prefix(call)?.strip_prefix(": ")) else { return whole };
    let mut calls: Vec<_> = alike.iter().filter_map(|of| Some((of.reason.call()?, of.lines))).collect();
    calls.sort_by_key(|(_, lines)| Reverse(*lines));
    let (named, others) = calls.split_at(CALLS.min(calls.len()));
    let mut told: Vec<String> = named.iter().map(|(call, lines)| format!("{call} {lines}")).collect();
    if !others.is_empty() {
        let lines = others.iter().map(|(_, lines)| lines).sum::<u64>();
        told.push(format!("{} others {lines}", others.len()));
    }
    format!("{why}: {}", told.join(", "))
}

fn tell(summary: &ImportSummary, bad: &Bad<'_>, args: &ImportArgs) {
    let output = &args.output;
    let counted = render::counted;
    let ImportSummary { lines, calls, bytes, files, sessions, .. } = summary;
    let text = format!(
        "{}, {} to {} by {}, from {}, are now in {}",
        counted(*calls, "call"),
        Bytes(*bytes),
        counted(*files, "file"),
        counted(*sessions, "process image"),
        counted(*lines, "line"),
        output.display()
    );
    render::tell(render::wrapped(&text, 0));
    if summary.sorted > 0 {
        render::tell(format_args!(
            "{} behind later ones: all were put in order of their starts",
            counted(summary.sorted, "row")
        ));
    }
    if summary.out_of_order > 0 {
        let calls = counted(summary.out_of_order, "call");
        render::tell(format_args!("{calls} out of order: earlier than the one on the line before"));
    }
    let colour = std::io::stderr().is_terminal();
    let is_alike = |one: &Skipped, other: &Skipped| {
        one.reason.call().is_some() && discriminant(&one.reason) == discriminant(&other.reason)
    };
    for alike in summary.skipped.chunk_by(is_alike) {
        let Some(Skipped { reason, first, input, .. }) = alike.iter().min_by_key(|of| (of.input, of.first))
        else {
            continue;
        };
        let what = if reason.is_imported() { "imported as they are" } else { "not imported" };
        let lines = counted(alike.iter().map(|of| of.lines).sum(), reason.unit());
        let file = if args.from == Format::Strace { String::new() } else { place(&args.inputs, *input) };
        let text = format!("{what}: {lines} (first: {file}{first}): {}", why(alike, reason));
        render::tell(render::warn_if(&render::wrapped(&text, 0), reason.is_loss(), colour));
    }
    for note in &summary.notes {
        render::tell(render::wrapped(note, 0));
    }
    if let Some(told) = bad.in_words() {
        let more = bad.lines + bad.cut - (bad.first.len() as u64).min(bad.lines + bad.cut);
        let text = format!("{told}, as --keep-going has it:");
        render::tell(render::warn_if(&render::wrapped(&text, 0), true, colour));
        for first in &bad.first {
            render::tell(render::wrapped(&format!("  {first}"), 2));
        }
        if more > 0 {
            render::tell(format_args!("  and {}", counted(more, "further line")));
        }
    }
}
