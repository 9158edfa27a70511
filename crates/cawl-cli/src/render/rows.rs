//! Programs and files as rows with the cost of their calls.

use std::cmp::Ordering;

use cawl_client::protocol::{Cost, FileStatus, Files, ProcessStatus, Processes, Sort};
use cawl_core::renamed_path;

use super::{compact, short, shown, table};

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

/// The name of a sort key.
pub fn name_of(sort: Sort) -> &'static str {
    SORTS.iter().find(|(other, _)| *other == sort).map_or("", |(_, name)| name)
}

/// A program or a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Process id, or device of the file.
    pub of: String,
    /// Name of the program, or path of the file.
    pub name: String,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes written.
    pub bytes: u64,
    /// True if some of the calls were inferred, not observed.
    pub is_estimated: bool,
    /// Cost of the calls.
    pub cost: Cost,
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
        }
    }
}

/// A program's name for a table: without its folder, and shortened at the start if needed.
pub fn short_program(name: &str, width: usize) -> String {
    let base = name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(name);
    if name.chars().count() <= width { name.to_owned() } else { short(base, width) }
}

/// Compares by a sort key, largest first, then by name.
pub fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    let key = |row: &Row| match sort {
        Sort::Lost => row.cost.throttled_s + row.cost.sync_s,
        Sort::Throttled => row.cost.throttled_s,
        Sort::Sync => row.cost.sync_s,
        Sort::Observed => row.cost.observed_s,
        Sort::Bytes => row.bytes as f64,
        Sort::Calls => row.calls as f64,
        Sort::Rate => row.cost.rate,
    };
    key(b).total_cmp(&key(a)).then_with(|| (&a.name, &a.of).cmp(&(&b.name, &b.of)))
}

/// The columns shared by programs and files, in the order of [`cells`].
pub const COLUMNS: [&str; 7] = ["THROTTLED", "SYNC", "OBSERVED", "PREDICTED", "BYTES", "RATE", "CALLS"];

/// The figures of a row.
pub fn cells(row: &Row) -> [String; 7] {
    [
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
pub fn processes(answer: &Processes, width: Option<usize>) -> String {
    let rows: Vec<Row> = answer.processes.iter().map(Row::from).collect();
    text(&rows, [answer.omitted, answer.more], &PROGRAMS, width)
}

/// The files as a table, for a terminal of `width` columns if the output is one.
pub fn files(answer: &Files, width: Option<usize>) -> String {
    let rows: Vec<Row> = answer.files.iter().map(Row::from).collect();
    text(&rows, [answer.omitted, answer.more], &FILES, width)
}

/// The kind of the rows.
struct Kind {
    columns: [&'static str; 2],
    one: &'static str,
    none: &'static str,
}

const PROGRAMS: Kind =
    Kind { columns: ["PID", "PROGRAM"], one: "program", none: "no traced program is connected\n" };

const FILES: Kind =
    Kind { columns: ["DEVICE", "FILE"], one: "file", none: "no traced program has written to a file\n" };

/// `omitted`: rows left out, and those of them that a larger --limit shows.
fn text(rows: &[Row], omitted: [u64; 2], kind: &Kind, width: Option<usize>) -> String {
    if rows.is_empty() {
        return kind.none.to_owned();
    }
    let draw = |rows: &[Row]| {
        let header: Vec<&str> = COLUMNS.into_iter().chain(kind.columns).collect();
        let cells = |row: &Row| cells(row).into_iter().chain([row.of.clone(), row.name.clone()]);
        table(&header, [header.len() - 1], rows.iter().map(cells))
    };
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let mut out = draw(rows);
    if let Some(width) = width {
        // Names are the last column, and are shortened to fit.
        let names = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let room = (width + names).saturating_sub(longest(&out)).max(24);
        let fitting: Vec<Row> =
            rows.iter().map(|row| Row { name: short(&row.name, room), ..row.clone() }).collect();
        out = draw(&fitting);
    }
    let [omitted, more] = omitted;
    if omitted > 0 {
        let plural = if omitted == 1 { "" } else { "s" };
        let hint = if more > 0 { "; see --limit" } else { ", which made room for these" };
        out += &format!("… and {omitted} more {}{plural}{hint}\n", kind.one);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, throttled: f64, bytes: u64) -> FileStatus {
        FileStatus {
            path: path.to_owned(),
            device: "254:1".to_owned(),
            bytes,
            cost: Cost { throttled_s: throttled, ..Cost::default() },
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
        let whole = files(&answer, None);
        assert!(whole.contains(&"x".repeat(300)) && !whole.contains('\x1b'), "{whole}");
        let narrow = files(&answer, Some(110));
        assert!(narrow.lines().all(|line| line.chars().count() <= 110), "{narrow}");
        assert!(narrow.contains("x/end") && narrow.contains("and 2 more files"), "{narrow}");
    }

    #[test]
    fn an_empty_table_says_so() {
        assert_eq!(files(&Files::default(), None), "no traced program has written to a file\n");
        assert_eq!(processes(&Processes::default(), None), "no traced program is connected\n");
    }
}
