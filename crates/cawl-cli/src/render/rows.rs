//! Programs and files as rows with the cost of their calls.

use std::cmp::Ordering;

use cawl_client::protocol::{CauseSeconds, Cost, FileStatus, Files, ProcessStatus, Processes, Sort};
use cawl_core::renamed_path;

use super::{GAP, causes, columns, compact, counted, short, shown, table};

/// The sort keys with their names on the command line.
pub const SORTS: [(Sort, &str); 7] = [
    (Sort::Lost, "lost"),
    (Sort::Throttled, "throttled"),
    (Sort::Sync, "sync"),
    (Sort::Observed, "observed"),
    (Sort::Bytes, "bytes"),
    (Sort::Calls, "calls"),
    (Sort::Rate, "rate"),
];

pub fn name_of(sort: Sort) -> &'static str {
    SORTS.iter().find(|(other, _)| *other == sort).map_or("", |(_, name)| name)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Process id, or device of the file.
    pub of: String,
    /// Name of the program, or path of the file.
    pub name: String,
    pub calls: u64,
    pub bytes: u64,
    /// True if some of the calls were inferred, not observed.
    pub is_estimated: bool,
    pub cost: Cost,
    /// Their observed time by cause.
    pub causes: CauseSeconds,
}

impl From<&ProcessStatus> for Row {
    fn from(process: &ProcessStatus) -> Row {
        Row {
            of: process.pid.to_string(),
            name: shown(&process.program).into_owned(),
            calls: process.calls,
            bytes: process.bytes,
            is_estimated: false,
            cost: process.cost,
            causes: process.causes_s,
        }
    }
}

impl From<&FileStatus> for Row {
    fn from(file: &FileStatus) -> Row {
        let name = match file.path.as_str() {
            "" => format!("inode {}", file.inode),
            path => shown(&renamed_path(path, file.first_path.as_deref())).into_owned(),
        };
        Row {
            of: file.device.clone(),
            name,
            calls: file.calls,
            bytes: file.bytes,
            is_estimated: file.estimated_bytes > 0,
            cost: file.cost,
            causes: file.causes_s,
        }
    }
}

/// A program's name for a table: without its folder, and shortened at the start if needed.
pub fn short_program(name: &str, width: usize) -> String {
    let base = name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(name);
    if columns(name) <= width { name.to_owned() } else { short(base, width) }
}

/// Compares by a sort key, largest first, then by name.
pub fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let key = |row: &Row| match sort {
        Sort::Lost => row.cost.lost_s,
        Sort::Throttled => row.cost.throttled_s,
        Sort::Sync => row.cost.sync_s,
        Sort::Observed => row.cost.observed_s,
        Sort::Bytes => row.bytes as f64,
        Sort::Calls => row.calls as f64,
        Sort::Rate => row.cost.rate,
    };
    key(b).total_cmp(&key(a)).then_with(|| (&a.name, &a.of).cmp(&(&b.name, &b.of)))
}

/// The figures of programs and files, in the order of [`cells`].
pub const COLUMNS: [&str; 8] =
    ["LOST", "THROTTLED", "SYNC", "OBSERVED", "PREDICTED", "BYTES", "RATE", "CALLS"];

/// The order in which figures get room after the one that rows are sorted by.
const WANTED: [&str; 7] = ["OBSERVED", "RATE", "BYTES", "PREDICTED", "CALLS", "THROTTLED", "SYNC"];

/// Width of a column of [`COLUMNS`].
pub fn width_of(column: usize) -> usize {
    match COLUMNS[column] {
        // Estimated bytes have a sign before them.
        "RATE" | "BYTES" => 9,
        name => name.len().max(8),
    }
}

/// The columns that find room, in their order: the one that rows are sorted by in any case. `gap`: blanks
/// between two.
pub fn fitting(sort: Sort, room: usize, gap: usize) -> Vec<usize> {
    let first = COLUMNS.iter().position(|name| name_of(sort).eq_ignore_ascii_case(name)).unwrap_or(0);
    let place = |wanted: &&str| COLUMNS.iter().position(|name| name == wanted);
    let mut left = room.saturating_sub(width_of(first) + gap);
    let more = WANTED.iter().filter_map(place).filter(|at| *at != first).take_while(|at| {
        let fits = width_of(*at) + gap <= left;
        left = left.saturating_sub(width_of(*at) + gap);
        fits
    });
    let mut columns: Vec<usize> = std::iter::once(first).chain(more).collect();
    columns.sort_unstable();
    columns
}

pub fn cells(row: &Row) -> [String; 8] {
    [
        compact::seconds(row.cost.lost_s),
        compact::seconds(row.cost.throttled_s),
        compact::seconds(row.cost.sync_s),
        compact::seconds(row.cost.observed_s),
        compact::seconds(row.cost.predicted_s),
        format!("{}{}", if row.is_estimated { "~" } else { "" }, compact::bytes(row.bytes)),
        compact::rate(row.cost.rate),
        compact::count(row.calls),
    ]
}

/// The programs as a table, for a terminal of `width` columns if the output is one.
pub fn processes(answer: &Processes, sort: Sort, width: Option<usize>) -> String {
    let rows: Vec<Row> = answer.processes.iter().map(Row::from).collect();
    text(&rows, [answer.omitted, answer.more], &PROGRAMS, sort, width)
}

/// The files as a table, for a terminal of `width` columns if the output is one.
pub fn files(answer: &Files, sort: Sort, width: Option<usize>) -> String {
    let rows: Vec<Row> = answer.files.iter().map(Row::from).collect();
    text(&rows, [answer.omitted, answer.more], &FILES, sort, width)
}

struct Kind {
    columns: [&'static str; 2],
    more: &'static str,
    none: &'static str,
    /// Shortens a name to a width.
    short: fn(&str, usize) -> String,
}

const PROGRAMS: Kind = Kind {
    columns: ["PID", "PROGRAM"],
    more: "more program",
    none: "no traced program is connected\n",
    short: short_program,
};

const FILES: Kind = Kind {
    columns: ["DEVICE", "FILE"],
    more: "more file",
    none: "no traced program has written to a file\n",
    short,
};

const CAUSES: &str = "CAUSES";

/// Names are not shortened below this, and a third of a wide terminal, for further figures.
const NAME: usize = 16;

fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(columns).max().unwrap_or(0)
}

/// `omitted`: rows left out, and those of them that a larger --limit shows.
fn text(rows: &[Row], omitted: [u64; 2], kind: &Kind, sort: Sort, width: Option<usize>) -> String {
    if rows.is_empty() {
        return kind.none.to_owned();
    }
    let causes: Vec<String> = rows.iter().map(|row| causes::shares(&row.causes, 2)).collect();
    let (mut figures, mut name) = ((0..COLUMNS.len()).collect(), usize::MAX);
    if let Some(width) = width {
        // Names are the last column, and are shortened to fit.
        let others = longest(causes.iter().map(String::as_str).chain([CAUSES]))
            + longest(rows.iter().map(|row| row.of.as_str()).chain([kind.columns[0]]))
            + 2 * GAP;
        let least = longest(rows.iter().map(|row| row.name.as_str()).chain([kind.columns[1]]))
            .min(NAME.max(width / 3));
        figures = fitting(sort, width.saturating_sub(others + least), GAP);
        let taken = figures.iter().map(|at| width_of(*at) + GAP).sum::<usize>() + others;
        name = width.saturating_sub(taken).max(8);
    }
    let headers = figures.iter().map(|at| COLUMNS[*at]);
    let header: Vec<&str> = headers.chain([CAUSES]).chain(kind.columns).collect();
    let left = [header.len() - 3, header.len() - 1];
    let lines = rows.iter().zip(causes).map(|(row, causes)| {
        let cells = cells(row);
        let figures = figures.iter().map(|at| cells[*at].clone());
        figures.chain([causes, row.of.clone(), (kind.short)(&row.name, name)]).collect::<Vec<String>>()
    });
    let mut out = table(&header, left, lines);
    let [omitted, more] = omitted;
    if omitted > 0 {
        let hint = if more > 0 { "; see --limit" } else { ", which made room for these" };
        out += &format!("… and {}{hint}\n", counted(omitted, kind.more));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Cause, CauseTimes};

    fn file(path: &str, lost_s: f64, bytes: u64) -> FileStatus {
        FileStatus {
            path: path.to_owned(),
            device: "254:1".to_owned(),
            bytes,
            cost: Cost { lost_s, ..Cost::default() },
            ..FileStatus::default()
        }
    }

    #[test]
    fn order() {
        let mut rows = [file("b", 1.0, 5), file("a", 1.0, 7), file("c", 2.0, 1)].map(|file| Row::from(&file));
        rows.sort_by(|a, b| compare(Sort::Lost, a, b));
        assert_eq!(rows.each_ref().map(|row| row.name.as_str()), ["c", "a", "b"]);
        rows.sort_by(|a, b| compare(Sort::Bytes, a, b));
        assert_eq!(rows.each_ref().map(|row| row.name.as_str()), ["a", "b", "c"]);
    }

    #[test]
    fn names_give_way_to_the_terminal_and_cannot_command_it() {
        let path = format!("/{}/end\x1b[2J", "x".repeat(300));
        let answer = Files { schema: 1, omitted: 2, more: 1, files: vec![file(&path, 1.0, 5)] };
        let whole = files(&answer, Sort::Lost, None);
        assert!(whole.contains(&"x".repeat(300)) && !whole.contains('\x1b'), "{whole}");
        let narrow = files(&answer, Sort::Lost, Some(110));
        assert!(narrow.lines().all(|line| line.chars().count() <= 110), "{narrow}");
        assert!(narrow.contains("x/end") && narrow.contains("and 2 more files"), "{narrow}");
        // A third of a wide terminal is for names.
        let wide = files(&answer, Sort::Lost, Some(120));
        assert!(wide.contains(&format!("{}/end", "x".repeat(25))), "{wide}");
    }

    #[test]
    fn the_causes_fit_into_eighty_columns() {
        let times =
            CauseTimes::from([(Cause::FlusherBeside, 45), (Cause::DeviceFlush, 35), (Cause::Copy, 20)]);
        let widest = FileStatus {
            path: format!("/srv/{}/name", "x".repeat(60)),
            cost: Cost {
                observed_s: 99.0,
                throttled_s: 98.9,
                sync_s: 98.9,
                lost_s: 98.9,
                predicted_s: 98.9,
                rate: 999e6,
            },
            causes_s: CauseSeconds::from(&times),
            ..file("", 1.0, 999 << 20)
        };
        let answer = Files { schema: 1, omitted: 0, more: 0, files: vec![widest] };
        for (sort, key) in [(Sort::Lost, "LOST"), (Sort::Bytes, "BYTES"), (Sort::Rate, "RATE")] {
            let text = files(&answer, sort, Some(80));
            assert!(text.contains("flusher beside 45 %, device flush 35 %"), "{text}");
            assert!(text.contains(key) && text.contains("xxx/name\n"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        let whole = files(&answer, Sort::Lost, None);
        assert!(COLUMNS.iter().all(|name| whole.contains(name)), "{whole}");
    }

    #[test]
    fn an_empty_table_says_so() {
        assert_eq!(files(&Files::default(), Sort::Lost, None), "no traced program has written to a file\n");
        assert_eq!(processes(&Processes::default(), Sort::Lost, None), "no traced program is connected\n");
    }
}
