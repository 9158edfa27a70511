//! Patterns as text: a table of files and operations, those with most time first, and a line for each thing
//! that is out of the ordinary.

use cawl_core::{
    Bytes, FilePatterns, FileReport, OpPatterns, PatternSums, ProgramBuffer, Report, SmallFiles, renamed_path,
};

use super::{WIDTH, bold, compact, counted, short, shown, table, wrapped};

const LISTED: usize = 10;

/// The patterns of the files, in 80 columns; nothing without any.
pub fn text(report: &Report, terminal: bool) -> String {
    let mut out = String::new();
    let used = |file: &&FileReport| file.patterns.as_ref().is_some_and(|patterns| !patterns.ops.is_empty());
    let files: Vec<&FileReport> = report.files.iter().filter(used).collect();
    if files.is_empty() {
        return out;
    }
    let listed = &files[..files.len().min(LISTED)];
    let ops = listed.iter().filter_map(|file| file.patterns.as_ref()).flat_map(|patterns| &patterns.ops);
    let header = ["PATTERNS", "CALLS", "SIZE", "SEQ", "STRIDE", "RANDOM", "ALIGN", "HIT"];
    let table = table(&header, [0], ops.map(row));
    let mut lines = table.lines();
    out.extend(["\n", &bold(lines.next().unwrap_or_default(), terminal), "\n"]);
    for file in listed {
        let Some(patterns) = &file.patterns else { continue };
        let path = renamed_path(&file.path, file.first_path.as_deref());
        out.extend([&short(&shown(&path), WIDTH), "\n"]);
        for op in &patterns.ops {
            out.extend([lines.next().unwrap_or_default(), "\n"]);
            remarks_of_op(op).iter().for_each(|remark| out.extend(["    ", &wrapped(remark, 4), "\n"]));
        }
        remarks(patterns).iter().for_each(|remark| out.extend(["  ", &wrapped(remark, 2), "\n"]));
    }
    if files.len() > LISTED {
        let more = counted((files.len() - LISTED) as u64, "more file");
        out += &format!("and {more}; all of them with --report FILE.json\n");
    }
    if let Some(explain) = &report.explain {
        sums(&explain.patterns).iter().for_each(|line| out.extend([&wrapped(line, 0), "\n"]));
    }
    out
}

fn row(op: &OpPatterns) -> [String; 8] {
    let pages = op.fresh_pages + op.cached_pages + op.dirty_pages;
    [
        format!("  {}", op.op),
        compact::count(op.calls),
        sizes(op),
        part(op.sequential, op.calls),
        part(op.strided, op.calls),
        part(op.random, op.calls),
        part(op.block_aligned, op.calls),
        if pages > 0 { part(op.cached_pages + op.dirty_pages, pages) } else { "-".to_owned() },
    ]
}

/// Patterns in words: `size 4 KiB, 93 % sequential, 7 % random, 100 % aligned to blocks, hit 50 %`.
pub(super) fn brief(op: &OpPatterns) -> String {
    let [_, _, size, sequential, strided, random, aligned, hit] = row(op);
    let kinds = [
        (sequential, "sequential"),
        (strided, "strided"),
        (random, "random"),
        (aligned, "aligned to blocks"),
    ];
    let kinds =
        kinds.into_iter().filter(|(part, _)| part != "-").map(|(part, kind)| format!("{part} {kind}"));
    let hit = (hit != "-").then(|| format!("hit {hit}"));
    std::iter::once(format!("size {size}")).chain(kinds).chain(hit).collect::<Vec<_>>().join(", ")
}

/// The most frequent size, or the range of all.
fn sizes(op: &OpPatterns) -> String {
    match (&op.frequent[..], op.sizes.first(), op.sizes.last()) {
        ([one], ..) if one.calls == op.calls => compact::bytes(one.bytes),
        ([one, ..], ..) if one.calls * 2 > op.calls => {
            format!("{} {}", compact::bytes(one.bytes), part(one.calls, op.calls))
        }
        (_, Some(first), Some(last)) => {
            let (first, last) = (compact::bytes(first.bytes), compact::bytes(last.bytes.saturating_mul(2)));
            format!("{}-{}", first.replace(' ', ""), last.replace(' ', ""))
        }
        _ => "-".to_owned(),
    }
}

/// A share in whole percent; a small one is not nothing.
fn part(part: u64, whole: u64) -> String {
    match part as f64 / whole.max(1) as f64 * 100.0 {
        0.0 => "-".to_owned(),
        share if share < 1.0 => "<1 %".to_owned(),
        share if part < whole => format!("{:.0} %", share.min(99.0)),
        _ => "100 %".to_owned(),
    }
}

/// What is out of the ordinary of an operation on a file.
pub(super) fn remarks_of_op(op: &OpPatterns) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(stride) = op.stride {
        let what = match stride {
            0 => "the same place again and again".to_owned(),
            stride => {
                let way = if stride < 0 { "back" } else { "on" };
                format!("stride: {} {way}", compact::bytes(stride.unsigned_abs()))
            }
        };
        remarks.push(what);
    }
    if op.cached_pages + op.dirty_pages > 0 {
        let pages = op.fresh_pages + op.cached_pages + op.dirty_pages;
        let met = [("new", op.fresh_pages), ("clean", op.cached_pages), ("dirty", op.dirty_pages)];
        let met = met.iter().filter(|(_, count)| *count > 0);
        let met: Vec<String> = met.map(|(name, count)| format!("{name} {}", part(*count, pages))).collect();
        remarks.push(format!("pages met: {}", met.join(", ")));
    }
    if op.rewritten_bytes > 0 {
        let (dirty, later) = (op.rewritten_dirty_bytes, op.rewritten_bytes - op.rewritten_dirty_bytes);
        let when = [(dirty, "while still dirty"), (later, "later")];
        let when = when.iter().filter(|(bytes, _)| *bytes > 0);
        let when: Vec<String> = when.map(|(bytes, when)| format!("{} {when}", Bytes(*bytes))).collect();
        remarks.push(format!("written again: {}", when.join(", ")));
    }
    remarks
}

/// The buffer of the program's library, as sure as it is.
fn buffered(buffer: &ProgramBuffer) -> String {
    let ProgramBuffer { language, class, bytes, certain, writes, least, most, others, .. } = buffer;
    let sizes = if least == most { format!("{least} B") } else { format!("{least} to {most} B") };
    let (bytes, language) = (Bytes(*bytes), language.name());
    let others = if *others > 0 { format!(", and {others} other ones") } else { String::new() };
    if *certain {
        return format!(
            "buffered by the program: {writes} writes of {sizes}, a buffer of {bytes} ({language} {class}){others}"
        );
    }
    format!(
        "{writes} writes of {sizes}, as of a buffer of {bytes} ({language} {class}) or the program's own \
         blocks{others}"
    )
}

/// What is out of the ordinary of a file.
pub(super) fn remarks(file: &FilePatterns) -> Vec<String> {
    let mut remarks: Vec<String> = file.buffer.iter().map(buffered).collect();
    if let Some(syncs) = &file.syncs {
        let mut text = counted(syncs.calls, "fsync");
        if syncs.calls > syncs.idle {
            let (bytes, seconds) = (Bytes(syncs.bytes.mean as u64), compact::seconds(syncs.seconds.mean));
            let writes = format!("{:.1}", syncs.writes.mean);
            let writes = writes.strip_suffix(".0").unwrap_or(&writes);
            let plural = if writes == "1" { "" } else { "s" };
            text += &format!(", one for {writes} write{plural}, {bytes}, {seconds}");
        }
        if syncs.idle > 0 {
            text += &format!("; {} after no write", syncs.idle);
        }
        remarks.push(text);
    }
    if file.holes > 0 {
        remarks.push(format!("{} made, {}", counted(file.holes, "hole"), Bytes(file.hole_bytes)));
    }
    match file.gap_bytes {
        None => remarks.push("gaps unknown: too many places were written".to_owned()),
        Some(0) => {}
        Some(bytes) => remarks.push(format!("gaps left: {}", Bytes(bytes))),
    }
    if file.writers.len() > 1 || file.other_writers_calls > 0 {
        let more = if file.other_writers_calls > 0 { "more than " } else { "" };
        let mut processes: Vec<u32> = file.writers.iter().map(|writer| writer.pid).collect();
        processes.sort_unstable();
        processes.dedup();
        let plural = if processes.len() == 1 { "" } else { "es" };
        let calls = file.writers.iter().map(|writer| writer.calls).sum::<u64>() + file.other_writers_calls;
        remarks.push(format!(
            "written by {more}{} threads of {} process{plural}; {} of calls beside another",
            file.writers.len(),
            processes.len(),
            if file.overlapping_calls > 0 { part(file.overlapping_calls, calls) } else { "none".to_owned() },
        ));
    }
    remarks
}

/// Small files and shared ones, over all files.
pub(super) fn sums(sums: &PatternSums) -> Vec<String> {
    let mut lines = Vec::new();
    let small = |files: &SmallFiles| {
        format!("{} ({}, {})", files.files, compact::bytes(files.bytes), compact::seconds(files.seconds))
    };
    if sums.below_64k.files > 1 {
        let (block, all) = (small(&sums.below_block), small(&sums.below_64k));
        lines.push(format!("small files: {block} below a block, {all} below 64 KiB"));
    }
    if sums.shared_files > 0 {
        lines.push(format!("files written by several threads: {}", sums.shared_files));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Analysis, HostProfile, Mode, Record};
    use cawl_wire::{Event, FileKind, Op};

    #[test]
    fn patterns_are_told_in_80_columns() {
        let models = ["kernel".to_owned()];
        let mut analysis = Analysis::new(&HostProfile::uncalibrated(), &models, Mode::Lockstep).unwrap();
        let (dev, kind, mut start) = (1, FileKind::Regular, 1);
        let mut does = |op, ino, tid, offset, returned| {
            start += 100_000;
            let event = Event { dev, ino, kind, pid: 7, tid, offset, returned, start, ..Event::new(op) };
            analysis.take(&Record::Event(Event { duration: 120_000, ..event }));
        };
        for at in 0..40 {
            does(Op::CopyRange, 1, 7, at % 20 * 1_047_552, 1_047_552);
            does(Op::Pwrite, 1, 8, (60 - at) << 20, 4096);
            does(Op::Fsync, 1, 7, 0, 0);
            (2..4).for_each(|ino| does(Op::Write, ino, 7, at * 10, 10));
        }
        let text = text(&analysis.report(), false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for told in [
            "PATTERNS           CALLS      SIZE   SEQ  STRIDE  RANDOM  ALIGN   HIT",
            "stride: 1 MiB back",
            "40 fsyncs, one for 2 writes, 1.00",
            "written again: 19.98 MiB later",
            "hole made",
            "written by 2 threads of 1 process",
            "small files: 2 (800 B",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }
}
