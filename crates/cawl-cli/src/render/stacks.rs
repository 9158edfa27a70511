//! Where in the program the time went.

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
/// What starts a program or a thread.
const START: [&str; 9] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "__clone",
];

/// The frames that tell a reader something, innermost first.
fn telling(frames: &[Frame]) -> Vec<&Frame> {
    let starts = |frame: &&Frame| {
        let name = frame.name();
        let name = name.split('@').next().unwrap_or_default();
        START.contains(&name)
            || name.starts_with("std::rt::lang_start")
            || name.starts_with("std::sys::backtrace")
    };
    // Between functions of Python those of its interpreter tell nothing.
    let interprets = |frame: &&Frame| frame.name().starts_with("_PyEval_EvalFrame");
    let interpreter = frames.iter().find(interprets).and_then(|frame| frame.module.as_ref());
    let interpreter = interpreter.filter(|_| frames.iter().any(is_of_python));
    let of_interpreter = |frame: &&Frame| interpreter.is_some() && frame.module.as_ref() == interpreter;
    let told = frames.iter().filter(|frame| !starts(frame) && !of_interpreter(frame));
    let told: Vec<&Frame> = told.collect();
    if told.is_empty() { frames.iter().collect() } else { told }
}

fn is_of_python(frame: &Frame) -> bool {
    frame.module.is_none() && frame.file.as_ref().is_some_and(|file| file.ends_with(".py"))
}

/// The function and where it makes the call: `commit (pager.c:512)`.
fn named(frame: &Frame, placed: bool) -> String {
    let name = shown(&frame.name()).into_owned();
    match frame.place().filter(|_| placed) {
        Some(place) => format!("{name} ({})", shown(&place)),
        None => name,
    }
}

/// The way to the call, outermost first, in at most `width` columns: what finds no room is left out from the
/// middle on. The innermost function is told with its place.
pub fn way(row: &StackRow, width: usize) -> String {
    let told = telling(&row.frames);
    let Some((innermost, outer)) = told.split_first() else { return "not known".to_owned() };
    let cut = if row.truncated { "… → " } else { "" };
    for placed in [true, false] {
        let last = named(innermost, true);
        let names: Vec<String> = outer.iter().rev().map(|frame| named(frame, placed)).collect();
        // All of them; then fewer and fewer, the outermost one for the longest.
        for left_out in 0..=names.len() {
            if placed && left_out > 0 {
                break;
            }
            let kept = names.len() - left_out;
            let (first, rest) = names.split_at(kept.min(1));
            let gap = ["…".to_owned()];
            let gap = if left_out > 0 { &gap[..] } else { &[] };
            let inner = &rest[rest.len() - (kept - first.len())..];
            let parts = first.iter().chain(gap).chain(inner).chain([&last]);
            let text = format!("{cut}{}", parts.map(String::as_str).collect::<Vec<_>>().join(" → "));
            if columns(&text) <= width {
                return text;
            }
        }
    }
    short(&named(innermost, true), width)
}

/// The stack with most time, if it has a good part of all.
pub fn where_most(explain: &Explain) -> Option<String> {
    let row = explain.stacks.as_ref()?.rows.first()?;
    let part = share(row.observed_s, explain.observed_s);
    // Frames that are not known tell nothing.
    (part >= WORTH && !row.frames.is_empty()).then(|| {
        let figures = format!(": {}, {:.0} %", time(row.observed_s), part.min(1.0) * 100.0);
        way(row, WIDTH - 11 - columns(&figures)) + &figures
    })
}

/// The rows with most time, in the short form.
pub fn listed(out: &mut String, explain: &Explain, terminal: bool) {
    let Some(stacks) = &explain.stacks else { return };
    let rows: Vec<&StackRow> = stacks.rows.iter().take(SHORT).collect();
    rows_of(out, explain, stacks, &rows, terminal);
}

fn rows_of(out: &mut String, explain: &Explain, stacks: &StackReport, rows: &[&StackRow], terminal: bool) {
    let rows: Vec<&StackRow> =
        rows.iter().copied().filter(|row| row.observed_s >= LISTED * explain.observed_s).collect();
    if rows.is_empty() {
        return;
    }
    let mut cells: Vec<_> = rows.iter().map(|row| cells(row)).collect();
    let header = ["STACK, OP", "CALLS", "BYTES", "TIME", "LOST", "CAUSES"];
    let width = room(&header, &cells, 5);
    cells.iter_mut().zip(&rows).for_each(|(cells, row)| cells[5] = main_causes(&row.causes, width));
    let text = table(&header, [0, 5], cells);
    let ways = rows.iter().enumerate().map(|(at, row)| (at, way(row, WIDTH)));
    headed(out, &below_paths(&text, ways), terminal);
    let more = stacks.rows.len() + stacks.omitted as usize - rows.len();
    if more > 0 {
        out.push_str(&format!(
            "and {}; `explain TRACE --by stack` has them\n",
            counted(more as u64, "more stack")
        ));
    }
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
    let chosen = match one_in {
        0 | 1 => String::new(),
        n => format!("; one in {n} of the shorter ones, which stands for {n}"),
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
        let names: Vec<(String, String)> = row.frames.iter().map(frame_cells).collect();
        let widest = names.iter().map(|(name, _)| columns(name)).max().unwrap_or(0).min(WIDTH / 2);
        for (name, place) in names {
            // A long name has its place on the same line, if that fits.
            let pad = widest.saturating_sub(columns(&name));
            out.push_str(format!("  {name}{}{place}", " ".repeat(pad + GAP)).trim_end());
            out.push('\n');
        }
        match (row.frames.is_empty(), row.truncated) {
            (true, _) => out.push_str("  not known\n"),
            (_, true) => out.push_str("  …\n"),
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
        assert_eq!(way(&row, 60), "main → … → pager_commit → syncJournal (pager.c:4406)");
        assert_eq!(way(&row, 40), "main → … → syncJournal (pager.c:4406)");
        assert_eq!(way(&row, 26), "syncJournal (pager.c:4406)");
        let cut = StackRow { truncated: true, ..row };
        assert_eq!(way(&cut, 120), format!("… → {whole}"));
        assert_eq!(way(&StackRow::default(), 80), "not known");
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
