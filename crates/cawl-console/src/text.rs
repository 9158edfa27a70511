//! Lines and tables in 80 columns, with colour only on a terminal.

use cawl_core::Nanos;
use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};

use crate::compact;
use crate::shown::{BOLD, PLAIN, YELLOW, shown};
use crate::wrap::{self, GAP, WIDTH, columns, wrapped};

/// A plain table, without blanks at the ends of lines: these columns are aligned left, the others right.
pub fn table<R: Into<Row>>(
    header: &[&str],
    left: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = R>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP as u16)).set_cell_alignment(CellAlignment::Right);
    }
    for index in left {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Adds a table after an empty line, its first line in bold.
pub fn headed(out: &mut String, table: &str, terminal: bool) {
    let (header, rest) = table.split_once('\n').unwrap_or((table, ""));
    out.extend(["\n", &bold(header, terminal), "\n", rest]);
}

/// A table whose rows, where their file is another one, stand below its path.
pub fn below_paths<F: PartialEq>(table: &str, files: impl Iterator<Item = (F, String)>) -> String {
    let (header, rows) = table.split_once('\n').unwrap_or((table, ""));
    let (mut text, mut last) = (format!("{header}\n"), None);
    for (line, (file, path)) in rows.lines().zip(files) {
        if last.as_ref() != Some(&file) {
            text.extend([&short(&shown(&path), WIDTH), "\n"]);
            last = Some(file);
        }
        text.extend([line, "\n"]);
    }
    text
}

/// A line of a text for people, in 80 columns: its name, in bold, in a column of this width.
pub fn named(name: &str, width: usize, text: &str, terminal: bool) -> String {
    format!("{}{}\n", bold(&format!("{name:<width$}"), terminal), wrapped(text, width))
}

/// A line of a report.
pub fn line(out: &mut String, name: &str, text: &str, terminal: bool) {
    const NAME: usize = 11;
    out.push_str(&named(name, NAME, text, terminal));
}

/// A number of things: `1 cause`, `2 causes`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{} {one}{}", compact::count(count), if count == 1 { "" } else { "s" })
}

/// A time in seconds, with a unit.
pub fn time(seconds: f64) -> String {
    Nanos::seconds(seconds).to_string()
}

/// A difference of times, in seconds, with its sign.
pub fn difference(seconds: f64) -> String {
    // Less is the rounding of sums.
    let seconds = if seconds.abs() < 5e-10 { 0.0 } else { seconds };
    let sign = if seconds < 0.0 { "−" } else { "+" };
    format!("{sign}{}", time(seconds.abs()))
}

/// A fraction as a percentage.
pub fn percent(fraction: Option<f64>) -> String {
    match fraction {
        None => "-".to_owned(),
        Some(f) if f >= 10.0 => format!("{:.0} %", f * 100.0),
        Some(f) => format!("{:.1} %", f * 100.0),
    }
}

/// Text in bold, where the output is a terminal.
pub fn bold(text: &str, terminal: bool) -> String {
    if terminal { format!("{BOLD}{text}{PLAIN}") } else { text.to_owned() }
}

/// Text in yellow, where the output is a terminal.
pub fn warn(text: &str, terminal: bool) -> String {
    if terminal { format!("{YELLOW}{text}{PLAIN}") } else { text.to_owned() }
}

/// [`warn`] on a condition.
pub fn warn_if(text: &str, condition: bool, terminal: bool) -> String {
    warn(text, terminal && condition)
}

/// The end of a path, at most `width` columns.
pub fn short(path: &str, width: usize) -> String {
    if columns(path) <= width {
        return path.to_owned();
    }
    // The dots take one.
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let wide = wrap::width(*c);
        let fits = wide <= left;
        left = left.saturating_sub(wide);
        fits
    };
    let end = path.chars().rev().take_while(fits).map(char::len_utf8).sum::<usize>();
    format!("…{}", &path[path.len() - end..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_difference_of_sums_is_no_less_than_their_rounding() {
        assert_eq!([-1e-10, 1e-10, -1e-9].map(super::difference), ["+0 ns", "+0 ns", "−1 ns"]);
    }
}
