//! The difference of two runs, as text and as Markdown: the same lines and tables.

use cawl_core::diff::{Difference, Pair, Row};
use cawl_core::{Bytes, OpPatterns, ProfileUsed};

use super::report::{observed, used};
use super::{bold, compact, difference, headed, line, patterns, room, short, shown, table, time};

/// Rows of a table.
const LISTED: usize = 8;
const PATTERNS: usize = 4;
/// Part of the larger time below which a row is left out.
const MIN: f64 = 0.001;

/// Lines, each with its name, and tables, each with its header: its first column is text.
pub struct Sheet {
    said: String,
    lines: Vec<(String, String)>,
    tables: Vec<(Vec<&'static str>, Vec<Vec<String>>)>,
    /// Below the tables.
    remarks: Vec<(String, String)>,
}

impl Sheet {
    /// What is told of a difference. `named`: what A and B are called.
    pub fn new(of: &Difference<'_>, named: &Pair<String>) -> Sheet {
        let named = ["A", "B"].into_iter().zip(named).map(|(name, text)| (name.to_owned(), text.clone()));
        let mut lines: Vec<_> = named.collect();
        lines.extend(notes(&of.notes));
        if of.mode[0] != of.mode[1] {
            let mode = format!("{}: causes differ by that, too", one_or_other(&of.mode));
            lines.push(("mode".to_owned(), mode));
        }
        lines.extend(of.machine.iter().map(|fact| (fact.name.to_owned(), one_or_other(&fact.values))));
        if of.machine.is_empty() {
            lines.push(("machine".to_owned(), "nothing that is known of both differs".to_owned()));
        }
        lines.push(("profile".to_owned(), profiles(of.profile)));
        let told = |pair: &cawl_core::diff::PatternPair<'_>| {
            let [was, is] = pair.patterns.map(|of: &OpPatterns| patterns::brief(of));
            ("pattern".to_owned(), format!("{} of {}: {is}; it was {was}", pair.op, pair.file))
        };
        Sheet {
            said: of.said.clone(),
            lines,
            tables: [Some(totals(of)), causes(of), calls("OP", of, &of.ops), calls("FILE", of, &of.files)]
                .into_iter()
                .flatten()
                .collect(),
            remarks: renamed(of).chain(of.patterns.iter().take(PATTERNS).map(told)).collect(),
        }
    }

    /// In 80 columns.
    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        line(&mut out, "diff", &bold(&self.said, terminal), terminal);
        self.lines.iter().for_each(|(name, text)| line(&mut out, name, &shown(text), terminal));
        for (header, rows) in &self.tables {
            let mut rows = rows.clone();
            let width = room(header, &rows, 0);
            rows.iter_mut().for_each(|row| row[0] = short(&shown(&row[0]), width));
            headed(&mut out, &table(header, [0], rows), terminal);
        }
        if !self.remarks.is_empty() {
            out.push('\n');
        }
        self.remarks.iter().for_each(|(name, text)| line(&mut out, name, &shown(text), terminal));
        out
    }

    /// For a pull request.
    pub fn markdown(&self) -> String {
        let mut out = format!("**{}**\n\n", literal(&self.said));
        let item = |(name, text): &(String, String)| format!("- {name}: {}\n", literal(text));
        out.extend(self.lines.iter().map(item));
        for (header, rows) in &self.tables {
            let row = |cells: &[String]| {
                let cells: Vec<String> = cells.iter().map(|cell| literal(cell)).collect();
                format!("| {} |\n", cells.join(" | "))
            };
            let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
            out.extend([
                "\n".to_owned(),
                row(&header),
                format!("|---|{}\n", "---:|".repeat(header.len() - 1)),
            ]);
            out.extend(rows.iter().map(|cells| row(cells)));
        }
        if !self.remarks.is_empty() {
            out.push('\n');
        }
        out.extend(self.remarks.iter().map(item));
        out
    }
}

/// A text that Markdown shows as it is, in one line.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in shown(text).chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '~' | '&' | '@') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The notes of A, and those that only B has.
fn notes([one, other]: &Pair<Vec<String>>) -> impl Iterator<Item = (String, String)> {
    let of_one = one.iter().map(|note| (if other.contains(note) { "in both" } else { "in A" }, note));
    let of_other = other.iter().filter(|note| !one.contains(note)).map(|note| ("in B", note));
    of_one.chain(of_other).map(|(place, note)| (place.to_owned(), note.clone()))
}

fn one_or_other(values: &Pair<String>) -> String {
    format!("{} in A, {} in B", values[0], values[1])
}

fn profiles(of: Pair<&ProfileUsed>) -> String {
    let told = of.map(|profile| used(profile, true));
    if told[0] == told[1] { told[0].clone() } else { one_or_other(&told) }
}

fn totals(of: &Difference<'_>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let times = |name: &str, [was, is]: Pair<f64>| {
        let ratio = if was > 0.0 { format!("{:.2} ×", is / was) } else { "-".to_owned() };
        vec![name.to_owned(), time(was), time(is), difference(is - was), ratio]
    };
    let numbers = |name: &str, of: Pair<u64>, told: fn(u64) -> String| {
        let ratio = if of[0] > 0 { format!("{:.2} ×", of[1] as f64 / of[0] as f64) } else { "-".to_owned() };
        vec![name.to_owned(), told(of[0]), told(of[1]), String::new(), ratio]
    };
    let rows = vec![
        times("in calls", of.total_s),
        times("undisturbed", of.undisturbed_s),
        times("elapsed", of.elapsed_s),
        numbers("calls", of.calls, compact::count),
        numbers("bytes", of.bytes, |bytes| Bytes(bytes).to_string()),
    ];
    (vec!["TOTAL", "A", "B", "B − A", "B / A"], rows)
}

/// The rows that are told: those that differ most.
fn listed<'a>(of: &Difference<'_>, rows: &'a [Row<'a>]) -> impl Iterator<Item = &'a Row<'a>> {
    let least = MIN * of.total_s[0].max(of.total_s[1]);
    rows.iter().filter(move |row| row.observed_s[0].max(row.observed_s[1]) >= least).take(LISTED)
}

/// Both paths of the listed files that have two.
fn renamed(of: &Difference<'_>) -> impl Iterator<Item = (String, String)> {
    let both = |row: &Row<'_>| Some(one_or_other(&[row.name.to_owned(), row.renamed?.to_owned()]));
    listed(of, &of.files).filter_map(both).map(|paths| ("file".to_owned(), paths))
}

type Table = (Vec<&'static str>, Vec<Vec<String>>);

fn causes(of: &Difference<'_>) -> Option<Table> {
    let row = |row: &Row<'_>| {
        let [was, is] = row.observed_s.map(observed);
        vec![row.name.to_owned(), was, is, difference(row.difference())]
    };
    let rows: Vec<_> = listed(of, &of.causes).map(row).collect();
    (!rows.is_empty()).then(|| (vec!["CAUSE", "A", "B", "B − A"], rows))
}

/// Operations, or files.
fn calls(what: &'static str, of: &Difference<'_>, all: &[Row<'_>]) -> Option<Table> {
    let row = |row: &Row<'_>| {
        let [was, is] = row.observed_s.map(observed);
        let [a, b] = row.calls.map(compact::count);
        vec![row.name.to_owned(), a, b, was, is, difference(row.difference())]
    };
    let rows: Vec<_> = listed(of, all).map(row).collect();
    (!rows.is_empty()).then(|| (vec![what, "CALLS A", "CALLS B", "A", "B", "B − A"], rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_in_markdown() {
        assert_eq!(literal("a|b `c` <img> *x*_y_ @me\n"), r"a\|b \`c\` \<img\> \*x\*\_y\_ \@me\\n");
    }
}
