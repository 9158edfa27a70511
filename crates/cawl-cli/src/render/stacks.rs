//! Where in the program the time went.

use std::collections::BTreeMap;

use cawl_core::{Bytes, Explain, Frame, StackReport, StackRow};

use super::causes::{main_causes, share};
use super::{
    GAP, WIDTH, below_paths, columns, compact, counted, headed, line, room, short, shown, table, time,
};

/// Rows of the short form, and of the long one.
const SHORT: usize = 3;
const LONG: usize = 20;
/// Part of the time below which a row is not listed.
const LISTED: f64 = 0.001;
/// Part of the time from which on the first line names a stack.
const WORTH: f64 = 0.1;
/// Parts of paths of source files that are a library's.
const LIBRARIES: [&str; 6] =
    ["/rustc/", "/usr/include/", "/usr/src/", "/library/std/", "/lib/python", "/.cargo/"];

/// The frames that tell a reader something, innermost first; of recursion one.
fn telling(frames: &[Frame]) -> Vec<&Frame> {
    // Between functions of Python those of its interpreter tell nothing.
    let interprets = |frame: &&Frame| {
        ["_PyEval_", "PyEval_", "Py_RunMain"].iter().any(|begin| frame.name().starts_with(begin))
    };
    let interpreter = frames.iter().find(interprets).and_then(|frame| frame.module.as_ref());
    let interpreter = interpreter.filter(|_| frames.iter().any(is_of_python));
    let of_interpreter = |frame: &&Frame| interpreter.is_some() && frame.module.as_ref() == interpreter;
    let runtime = ["std::rt::lang_start", "std::sys::backtrace", "std::panic", "core::ops::function"];
    let starts = |frame: &&Frame| {
        let name = frame.name();
        frame.is_start() || runtime.iter().any(|begin| name.trim_start_matches('<').starts_with(begin))
    };
    let told = frames.iter().filter(|frame| !starts(frame) && !of_interpreter(frame));
    let mut told: Vec<&Frame> = told.collect();
    told.dedup_by(|one, other| one.name() == other.name() && one.place() == other.place());
    if told.is_empty() { frames.iter().collect() } else { told }
}

fn is_of_python(frame: &Frame) -> bool {
    frame.module.is_none() && frame.file.as_ref().is_some_and(|file| file.ends_with(".py"))
}

/// The place of the innermost function that is the program's own: of a script, or of the executable and no
/// library's.
fn own(told: &[&Frame], frames: &[Frame]) -> Option<usize> {
    let of_library = |frame: &Frame| {
        let name = frame.name();
        let name = name.trim_start_matches('<');
        ["std::", "core::", "alloc::", "__gnu_cxx::"].iter().any(|begin| name.starts_with(begin))
            || frame.file.as_ref().is_some_and(|file| LIBRARIES.iter().any(|part| file.contains(part)))
    };
    if told.iter().any(|frame| is_of_python(frame)) {
        let own = told.iter().position(|frame| is_of_python(frame) && !of_library(frame));
        return own.or_else(|| told.iter().position(|frame| is_of_python(frame)));
    }
    let program = frames.iter().rev().find_map(|frame| frame.module.as_ref())?;
    told.iter().position(|frame| frame.module.as_ref() == Some(program) && !of_library(frame))
}

/// The function and where it makes the call: `commit (pager.c:512)`.
fn named(frame: &Frame, placed: bool) -> String {
    let name = shown(&frame.name()).into_owned();
    match frame.place().filter(|_| placed) {
        Some(place) => format!("{name} ({})", shown(&place)),
        None => name,
    }
}

/// The way to the call, outermost first, in at most `width` columns. What finds no room is left out:
/// functions between the outermost one, the innermost one of the program's own, and the innermost one of all.
pub fn way(row: &StackRow, width: usize) -> String {
    let told = telling(&row.frames);
    if told.is_empty() {
        return "calls without a stack".to_owned();
    }
    let own = own(&told, &row.frames);
    let cut = if row.truncated { "… → " } else { "" };
    let joined = |placed: &dyn Fn(usize) -> bool, kept: &dyn Fn(usize) -> bool| {
        let mut parts: Vec<String> = Vec::new();
        for (at, frame) in told.iter().enumerate().rev() {
            match kept(at) {
                true => parts.push(named(frame, placed(at))),
                false if parts.last().is_none_or(|last| last != "…") => parts.push("…".to_owned()),
                false => {}
            }
        }
        format!("{cut}{}", parts.join(" → "))
    };
    let outermost = told.len() - 1;
    let is_own = |at: usize| Some(at) == own;
    let (ends, all) = (|at: usize| at == 0 || is_own(at), |_: usize| true);
    let three = |at: usize| ends(at) || at == outermost;
    let innermost = |at: usize| at == 0;
    let ways = [
        joined(&all, &all),
        joined(&ends, &all),
        joined(&ends, &three),
        joined(&is_own, &three),
        joined(&ends, &ends),
        joined(&is_own, &ends),
    ];
    let fits = |way: &String| columns(way) <= width;
    let shortest = || {
        let at = own.unwrap_or(0);
        let one = joined(&|other| other == at, &|other| other == at);
        if fits(&one) { one } else { short(&named(told[at], true), width) }
    };
    let of_innermost = || Some(joined(&innermost, &innermost)).filter(|way| own.is_none() && fits(way));
    ways.into_iter().find(fits).or_else(of_innermost).unwrap_or_else(shortest)
}

/// The function of the program's own that most of the time was spent below, if that is a good part of all.
pub fn where_most(explain: &Explain) -> Option<String> {
    let rows = &explain.stacks.as_ref()?.rows;
    let mut sums: BTreeMap<String, (f64, usize, usize)> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| !row.frames.is_empty()) {
        let told = telling(&row.frames);
        let own = own(&told, &row.frames).unwrap_or(0);
        let sum = sums.entry(named(told[own], true)).or_insert((0.0, at, 0));
        sum.0 += row.observed_s;
        sum.2 += 1;
    }
    let (seconds, at, count) = sums.into_values().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let part = share(seconds, explain.observed_s);
    let mut row = rows[at].clone();
    if count > 1 {
        // The calls go different ways from there on.
        let told = telling(&row.frames);
        let own = own(&told, &row.frames).unwrap_or(0);
        row.frames = told[own..].iter().map(|frame| (*frame).clone()).collect();
    }
    (part >= WORTH).then(|| {
        let figures = format!(": {}, {:.0} %", time(seconds), part.min(1.0) * 100.0);
        way(&row, WIDTH - 11 - columns(&figures)) + &figures
    })
}

/// The rows with most time, in the short form.
pub fn listed(out: &mut String, explain: &Explain, terminal: bool) {
    let Some(stacks) = &explain.stacks else { return };
    let rows = merged(&stacks.rows);
    let listed: Vec<&(String, StackRow)> =
        rows.iter().filter(|(_, row)| row.observed_s >= LISTED * explain.observed_s).take(SHORT).collect();
    if listed.is_empty() {
        return;
    }
    let mut cells: Vec<_> = listed.iter().map(|(_, row)| cells(row)).collect();
    let header = ["STACK, OP", "CALLS", "BYTES", "TIME", "LOST", "CAUSES"];
    let width = room(&header, &cells, 5);
    cells.iter_mut().zip(&listed).for_each(|(cells, (_, row))| cells[5] = main_causes(&row.causes, width));
    let text = table(&header, [0, 5], cells);
    headed(out, &below_paths(&text, listed.iter().map(|(way, _)| (way, way.clone()))), terminal);
    let more = rows.len() + stacks.omitted as usize - listed.len();
    if more > 0 {
        let more = counted(more as u64, "more way");
        out.push_str(&format!("and {more}; `explain TRACE --by stack` has them\n"));
    }
    if listed.iter().any(|(_, row)| row.frames.iter().any(|frame| frame.name() == "?")) {
        out.push_str("?: code without names; docs/reference/CLI.md has what Java and node need\n");
    }
}

/// Rows that look the same in a line are one.
fn merged(rows: &[StackRow]) -> Vec<(String, StackRow)> {
    let mut ways: Vec<(String, StackRow)> = Vec::new();
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row in rows {
        let way = way(row, WIDTH);
        let at = *known.entry((way.clone(), row.op.clone())).or_insert(ways.len());
        let Some((_, sum)) = ways.get_mut(at) else {
            ways.push((way, row.clone()));
            continue;
        };
        sum.calls += row.calls;
        sum.bytes += row.bytes;
        sum.observed_s += row.observed_s;
        sum.lost_s += row.lost_s;
        let mut causes: BTreeMap<String, f64> =
            sum.causes.iter().map(|(name, seconds)| (name.to_owned(), *seconds)).collect();
        row.causes.iter().for_each(|(name, seconds)| *causes.entry(name.to_owned()).or_default() += seconds);
        sum.causes = causes.into_iter().collect();
    }
    ways.sort_by(|a, b| b.1.observed_s.total_cmp(&a.1.observed_s));
    ways
}

fn cells(row: &StackRow) -> [String; 6] {
    [
        format!("  {}", row.op),
        compact::count(row.calls),
        Bytes(row.bytes).to_string(),
        time(row.observed_s),
        time(row.lost_s),
        String::new(),
    ]
}

/// What `explain --by stack` prints: each row with all its frames, innermost first.
pub fn by_stack(explain: &Explain, terminal: bool) -> String {
    let mut out = String::new();
    let Some(stacks) = &explain.stacks else { return out };
    let StackReport { rows, copied, one_in, threshold_s, omitted, omitted_s } = stacks;
    if rows.is_empty() {
        line(&mut out, "stacks", "none: no time is told of these calls", terminal);
        return out;
    }
    let chosen = match one_in {
        0 | 1 => String::new(),
        n => format!("; one in {n} of the shorter ones, which stand for all"),
    };
    let copied = counted(*copied, "call");
    line(
        &mut out,
        "stacks",
        &format!("of {copied}: each of {} or more{chosen}", time(*threshold_s)),
        terminal,
    );
    for (at, row) in rows.iter().take(LONG).enumerate() {
        let part = share(row.observed_s, explain.observed_s).min(1.0) * 100.0;
        let text = format!(
            "{}, {part:.0} %: {} in {}, {} lost; {}",
            time(row.observed_s),
            row.op,
            counted(row.calls, "call"),
            time(row.lost_s),
            main_causes(&row.causes, WIDTH / 2)
        );
        out.push('\n');
        line(&mut out, &(at + 1).to_string(), &text, terminal);
        let mut names: Vec<(String, String, usize)> = Vec::new();
        for (name, place) in row.frames.iter().map(frame_cells) {
            match names.last_mut() {
                Some((last, at, times)) if *last == name && *at == place => *times += 1,
                _ => names.push((name, place, 1)),
            }
        }
        let widest = names.iter().map(|(name, ..)| columns(name)).max().unwrap_or(0).min(WIDTH / 2);
        for (name, place, times) in names {
            let place = if times > 1 { format!("{place} ×{times}") } else { place };
            // A long name has its place on the same line, if that fits.
            let pad = widest.saturating_sub(columns(&name));
            out.push_str(format!("  {name}{}{place}", " ".repeat(pad + GAP)).trim_end());
            out.push('\n');
        }
        match (row.frames.is_empty(), row.truncated) {
            (true, _) => out.push_str("  calls without a stack\n"),
            (_, true) => out.push_str("  … (further out is not known)\n"),
            _ => {}
        }
    }
    let more = rows.len().saturating_sub(LONG) as u64 + omitted;
    if more > 0 {
        let rest = rows.iter().skip(LONG).map(|row| row.observed_s).sum::<f64>() + omitted_s;
        out.push_str(&format!(
            "\nand {}: {}; all of them with --json\n",
            counted(more, "more stack"),
            time(rest)
        ));
    }
    out
}

/// The function of a frame and its place or module, for a table.
fn frame_cells(frame: &Frame) -> (String, String) {
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    let place = frame.place().or_else(|| {
        let module = frame.module.as_deref().filter(|_| frame.function.is_some())?;
        Some(module.rsplit('/').next().unwrap_or(module).to_owned())
    });
    (
        short(&shown(&frame.name()), WIDTH - 20),
        format!("{}{inlined}", place.map_or(String::new(), |p| shown(&p).into_owned())),
    )
}

/// The lines of a stack for one call.
pub fn frames(out: &mut String, frames: &[Frame], terminal: bool) {
    if frames.is_empty() {
        return;
    }
    let rows = frames.iter().map(|frame| {
        let (name, place) = frame_cells(frame);
        [name, place]
    });
    headed(out, &table(&["FROM", "AT"], [0, 1], rows), terminal);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, place: Option<(&str, u32)>) -> Frame {
        let (file, line) = place.map_or((None, None), |(file, line)| (Some(file.to_owned()), Some(line)));
        Frame { function: Some(function.to_owned()), file, line, ..Frame::default() }
    }

    fn row(frames: Vec<Frame>) -> StackRow {
        StackRow { frames, op: "fsync".to_owned(), observed_s: 0.237, calls: 802, ..StackRow::default() }
    }

    #[test]
    fn a_way_is_as_long_as_there_is_room() {
        let frames = vec![
            frame("syncJournal", Some(("/src/pager.c", 4406))),
            frame("pager_commit", Some(("/src/pager.c", 6500))),
            frame("sqlite3.Connection.commit", None),
            frame("main", Some(("/home/me/ins.py", 5))),
            frame("__libc_start_call_main", None),
            frame("_start", None),
        ];
        let row = row(frames);
        let whole = "main (ins.py:5) → sqlite3.Connection.commit → pager_commit (pager.c:6500) → syncJournal (pager.c:4406)";
        assert_eq!(way(&row, 120), whole);
        assert_eq!(way(&row, 70), "main (ins.py:5) → … → syncJournal (pager.c:4406)");
        assert_eq!(way(&row, 40), "main (ins.py:5) → … → syncJournal");
        assert_eq!(way(&row, 20), "main (ins.py:5) → …");
        let cut = StackRow { truncated: true, ..row };
        assert_eq!(way(&cut, 120), format!("… → {whole}"));
        assert_eq!(way(&StackRow::default(), 80), "calls without a stack");
        let module = Frame { module: Some("/lib/libz.so.1".to_owned()), at: 0x1a2b, ..Frame::default() };
        assert_eq!(way(&StackRow { frames: vec![module], ..StackRow::default() }, 80), "libz.so.1+0x1a2b");
    }

    #[test]
    fn no_line_is_wider_than_the_screen_and_no_name_controls_it() {
        let long = "a::very::long::name::of::a::function".repeat(4);
        let frames = vec![frame(&long, Some(("x.rs", 1))), frame("evil\u{1b}[31m", None)];
        let explain = Explain {
            observed_s: 0.25,
            stacks: Some(StackReport { one_in: 64, rows: vec![row(frames)], ..StackReport::default() }),
            ..Explain::default()
        };
        let mut text = by_stack(&explain, false);
        listed(&mut text, &explain, false);
        text += &where_most(&explain).expect("a stack with most of the time");
        assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("fsync"), "{text}");
    }
}
