//! Which setting suits which pattern, as text, JSON, csv and picture.

use std::fmt::Write;

use cawl_console::{bold, compact, counted, headed, line, shown, table, warn_if, wrapped};
use cawl_core::HostProfile;
use serde::Serialize;

use crate::tune::{self, DefaultChoice, Leaf, Need, Study, Tree};

const SCHEMA: u32 = 1;
/// Default choices of a need that a text lists, besides the last one.
const LISTED: usize = 3;
/// What a verified tree may lose, or else the noise floor.
const TARGET: f64 = 0.1;

#[derive(Serialize)]
pub struct Answer {
    schema: u32,
    profiles: Vec<String>,
    patterns: usize,
    settings: usize,
    /// Costs that are compared.
    cells: usize,
    defaults: Vec<Row>,
    trees: Vec<Grown>,
    /// What the tree loses on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
}

/// A setting as the default choice.
#[derive(Serialize)]
struct Row {
    need: &'static str,
    setting: String,
    /// Of so many patterns.
    patterns: usize,
    best: usize,
    worst: usize,
    arithmetic: f64,
    harmonic: f64,
}

/// A tree of a depth.
#[derive(Serialize)]
struct Grown {
    depth: u32,
    regret: f64,
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    #[serde(rename = "if")]
    conditions: Vec<String>,
    setting: Option<String>,
    patterns: usize,
    regret: f64,
}

/// Patterns that were written on the machine.
#[derive(Serialize)]
pub struct Verified {
    seed: u64,
    /// Means over the patterns of what is lost against the fastest of the settings that were tried, as a part
    /// of it.
    regret: f64,
    /// Mean part over the patterns that the best default choice loses against the fastest setting.
    default_regret: f64,
    /// Mean difference between the halves of the runs of one setting.
    floor: f64,
    /// The regret is at most a tenth, or at most the floor.
    holds: bool,
    patterns: Vec<VerifiedPattern>,
}

/// A pattern that was written on the machine, with the tree's choice first.
#[derive(Serialize)]
pub struct VerifiedPattern {
    pattern: String,
    regret: f64,
    default_regret: Option<f64>,
    floor: f64,
    measured: Vec<Measured>,
}

#[derive(Serialize)]
pub struct Measured {
    pub setting: String,
    pub predicted_s: f64,
    /// The median; None where the filesystem cannot write so.
    pub median_s: Option<f64>,
    /// The medians of the even and the odd runs.
    pub halves_s: Option<[f64; 2]>,
}

impl VerifiedPattern {
    /// A pattern with the settings that were tried, the tree's choice first. `default`: which of them is the
    /// best default choice.
    pub fn new(pattern: String, measured: Vec<Measured>, default: Option<usize>) -> VerifiedPattern {
        let least = measured.iter().filter_map(|one| one.median_s).fold(f64::INFINITY, f64::min);
        let lost = |one: &Measured| one.median_s.map_or(1.0, |median| 1.0 - least / median);
        let regret = measured.first().map_or(1.0, lost);
        let default_regret = default.and_then(|at| measured.get(at)).map(lost);
        let halves = || measured.iter().filter_map(|one| one.halves_s);
        let differ = |[even, odd]: [f64; 2]| 1.0 - even.min(odd) / even.max(odd);
        let floor = halves().map(differ).sum::<f64>() / halves().count().max(1) as f64;
        VerifiedPattern { pattern, regret, default_regret, floor, measured }
    }
}

impl Verified {
    pub fn new(patterns: Vec<VerifiedPattern>, seed: u64) -> Verified {
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let regret = mean(patterns.iter().map(|one| one.regret).collect());
        let default_regret = mean(patterns.iter().filter_map(|one| one.default_regret).collect());
        let floor = mean(patterns.iter().map(|one| one.floor).collect());
        Verified { seed, regret, default_regret, floor, holds: regret <= TARGET.max(floor), patterns }
    }
}

fn need(need: Option<Need>) -> &'static str {
    need.map_or("any", Need::name)
}

impl Answer {
    pub fn new(study: &Study, machines: &[HostProfile], trees: &[Tree]) -> Answer {
        let row = |row: DefaultChoice| Row {
            need: need(row.need),
            setting: study.settings[row.setting].to_string(),
            patterns: study
                .patterns
                .iter()
                .filter(|one| row.need.is_none_or(|need| need == one.need))
                .count(),
            best: row.best,
            worst: row.worst,
            arithmetic: row.arithmetic,
            harmonic: row.harmonic,
        };
        let name = |leaf: Leaf| leaf.setting.map(|setting| study.settings[setting].to_string());
        let rule = |rule: tune::Rule| Rule {
            conditions: rule.conditions,
            setting: name(rule.leaf),
            patterns: rule.leaf.patterns,
            regret: rule.leaf.regret,
        };
        let grown = |tree: &Tree| Grown {
            depth: tree.depth,
            regret: tree.regret,
            rules: tree.rules().into_iter().map(rule).collect(),
        };
        Answer {
            schema: SCHEMA,
            profiles: machines.iter().map(|machine| machine.name.clone()).collect(),
            patterns: study.patterns.len(),
            settings: study.settings.len(),
            cells: study.cells(),
            defaults: study.defaults().into_iter().map(row).collect(),
            trees: trees.iter().map(grown).collect(),
            verified: None,
        }
    }

    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let profiles = self.profiles.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
        let sizes = [(self.patterns, "pattern"), (self.settings, "setting"), (self.cells, "pair")];
        let [patterns, settings, pairs] = sizes.map(|(count, one)| counted(count as u64, one));
        let grid = format!("{patterns}, {settings}, {pairs} that suit each other");
        line(&mut out, "grid", &grid, terminal);
        line(&mut out, "profile", &profiles, terminal);
        self.defaults(&mut out, terminal);
        let rows = self.trees.iter().map(|tree| {
            [tree.depth.to_string(), compact::percent(tree.regret), tree.rules.len().to_string()]
        });
        headed(&mut out, &table(&["DEPTH", "LOSES", "RULES"], [], rows), terminal);
        for rule in self.trees.last().into_iter().flat_map(|tree| &tree.rules) {
            let conditions = rule.conditions.join(", ");
            let conditions = if conditions.is_empty() { "always" } else { &conditions };
            let setting = rule.setting.as_deref().unwrap_or("no setting suits them all");
            let (patterns, lost) = (counted(rule.patterns as u64, "pattern"), compact::percent(rule.regret));
            let about = format!("{} ({patterns}, loses {lost})", bold(setting, terminal));
            write!(out, "\n{}\n    {about}\n", wrapped(conditions, 2)).expect("a string takes all");
        }
        if let Some(verified) = &self.verified {
            verified.text(&mut out, terminal);
        }
        out
    }

    /// The best default choices of each need, and the last one.
    fn defaults(&self, out: &mut String, terminal: bool) {
        let header = ["DURABLE", "DEFAULT CHOICE", "BEST", "WORST", "MEAN", "HARMONIC"];
        let mut rows: Vec<[String; 6]> = Vec::new();
        for group in self.defaults.chunk_by(|a, b| a.need == b.need) {
            // Settings between which nothing makes a difference are one.
            let figures = |row: &Row| (row.best, row.worst, row.arithmetic, row.harmonic);
            let mut group: Vec<&Row> = group.iter().collect();
            group.dedup_by_key(|row| figures(row));
            let listed = |at: &usize| *at < LISTED || *at + 1 == group.len();
            for at in (0..group.len()).filter(listed) {
                let row = group[at];
                rows.push([
                    if at == 0 { row.need.to_owned() } else { String::new() },
                    row.setting.clone(),
                    format!("{}/{}", row.best, row.patterns),
                    row.worst.to_string(),
                    compact::percent(row.arithmetic),
                    compact::percent(row.harmonic),
                ]);
            }
        }
        headed(out, &table(&header, [0, 1], rows), terminal);
    }
}

impl Verified {
    fn text(&self, out: &mut String, terminal: bool) {
        let time = |seconds: Option<f64>| seconds.map_or("-".to_owned(), cawl_console::time);
        let rows = self.patterns.iter().map(|one| {
            let choice = one.measured.first();
            let fastest = one.measured.iter().filter_map(|one| one.median_s).reduce(f64::min);
            [
                one.pattern.clone(),
                time(choice.map(|one| one.predicted_s)),
                time(choice.and_then(|one| one.median_s)),
                time(fastest),
                compact::percent(one.regret),
                compact::percent(one.floor),
            ]
        });
        let header = ["WRITTEN HERE", "PREDICTED", "TOOK", "FASTEST", "LOST", "FLOOR"];
        headed(out, &table(&header, [0], rows), terminal);
        let [lost, default, floor] = [self.regret, self.default_regret, self.floor].map(compact::percent);
        let verdict = format!(
            "the tree loses {lost} on this machine, the best default choices {default}; the noise floor is {floor}"
        );
        out.push('\n');
        line(out, "verified", &warn_if(&verdict, !self.holds, terminal), terminal);
    }
}

/// The costs of all pairs: a table with a header, times in seconds, sizes in bytes.
pub fn csv(study: &Study, machines: &[HostProfile]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut out = "profile,pattern,order,durable,record,records,writers,setting,cost_s,reached\n".to_owned();
    for (at, pattern) in study.patterns.iter().enumerate() {
        for (number, setting) in study.settings.iter().enumerate() {
            let Some((cost, reached)) = study.cost(at, number).zip(study.reached(at, number)) else {
                continue;
            };
            let crate::tune::Workload { order, record, records, writers } = pattern.workload;
            writeln!(
                out,
                "{},{pattern},{},{},{},{records},{writers},{},{:.9},{reached:.6}",
                quoted(&machines[pattern.machine].name),
                order.name(),
                pattern.need.name(),
                record.0,
                quoted(&setting.to_string()),
                cost.as_seconds()
            )
            .expect("a string takes all");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(even: f64, odd: f64) -> Measured {
        let median_s = Some((even + odd) / 2.0);
        Measured { setting: "chunk=4K".to_owned(), predicted_s: 1.0, median_s, halves_s: Some([even, odd]) }
    }

    #[test]
    fn what_is_lost_stands_beside_the_floor() {
        let settings = vec![measured(2.0, 2.0), measured(1.0, 1.0), measured(4.0, 4.0)];
        let one = VerifiedPattern::new("new".to_owned(), settings, Some(2));
        assert_eq!((one.regret, one.default_regret, one.floor), (0.5, Some(0.75), 0.0));
        let noisy = VerifiedPattern::new("new".to_owned(), vec![measured(1.0, 2.0)], None);
        assert_eq!((noisy.regret, noisy.default_regret, noisy.floor), (0.0, None, 0.5));
        let both = Verified::new(vec![one, noisy], 1);
        assert_eq!((both.regret, both.default_regret, both.floor), (0.25, 0.75, 0.25));
        assert!(both.holds, "it is the floor");
        let without = Measured { median_s: None, halves_s: None, ..measured(1.0, 1.0) };
        let failed = VerifiedPattern::new("new".to_owned(), vec![without, measured(1.0, 1.0)], None);
        assert_eq!(failed.regret, 1.0);
        assert!(!Verified::new(vec![failed], 1).holds);
    }
}
