//! What calls would cost, as text and as JSON.

use cawl_core::advise::Sure;
use cawl_core::{ByCause, Bytes, Cause, Ledger, Nanos, Part, Ratio};
use serde::Serialize;

use super::comparison::{Changed, OpTimes, less_safe, on_paper, row, rows_of_ops};
use super::{counted, difference, headed, line, table, time};

const SCHEMA: u32 = 1;

/// Causes below this part of both totals are summed up.
const LISTED: f64 = 0.01;

#[derive(Default, Serialize)]
pub struct Answer {
    schema: u32,
    /// Traces that the figures are sums of, if there are several.
    #[serde(skip_serializing_if = "is_one")]
    pub traces: usize,
    /// What the calls took in the trace, in seconds.
    observed_s: f64,
    before: Costs,
    /// With all changes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub after: Option<Compared>,
    /// The changes, with the calls that each changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Changed>,
    /// With each change alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<Compared>,
    /// What is not known of the changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The parts of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SensitivityOfPart>,
    /// The constants, those that matter most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sensitivity: Vec<Sensitivity>,
}

#[derive(Default, Serialize)]
pub struct Costs {
    calls: u64,
    bytes: u64,
    total_s: f64,
    /// From the first call to the end of the last.
    end_s: f64,
    peak_dirty_bytes: u64,
    causes: Vec<CauseCost>,
    ops: Vec<OpTimes>,
    #[serde(skip)]
    by_cause: ByCause<f64>,
}

#[derive(Serialize)]
struct CauseCost {
    name: &'static str,
    predicted_s: f64,
}

#[derive(Serialize)]
pub struct Compared {
    #[serde(skip_serializing_if = "String::is_empty")]
    change: String,
    after: Costs,
    /// Total time after over before.
    pub ratio: Option<f64>,
    /// None of the sum over several machines.
    interval: Option<[f64; 2]>,
    /// How sure that is, as `advise` says; None where nothing was timed.
    sure: Option<Sure>,
    safety: Vec<String>,
}

/// What a constant does to the total.
#[derive(Serialize)]
pub struct Sensitivity {
    pub constant: String,
    /// The constant is this many times as large.
    pub factor: f64,
    /// The total changes by this part of it.
    pub effect: f64,
}

/// What a part of the machine does, as elasticities: by how many percent a time changes when the part becomes
/// one percent larger. None of a time that is 0.
#[derive(Serialize)]
pub struct SensitivityOfPart {
    part: &'static str,
    /// Its constants were this many times as large.
    factor: f64,
    /// Time in calls.
    total: Option<f64>,
    /// Time lost in calls.
    lost: Option<f64>,
    elapsed: Option<f64>,
}

impl SensitivityOfPart {
    /// The elasticities of a part that is `factor` times as large.
    pub fn new(part: Part, factor: f64, before: &Ledger, after: &Ledger) -> SensitivityOfPart {
        let elasticity = |of: fn(&Ledger) -> Nanos| {
            let (was, is) = (of(before).get(), of(after).get());
            (was > 0.0 && is > 0.0).then(|| (is / was).ln() / factor.ln())
        };
        SensitivityOfPart {
            part: part.name(),
            factor,
            total: elasticity(|ledger| ledger.total),
            lost: elasticity(Ledger::lost),
            elapsed: elasticity(|ledger| ledger.end),
        }
    }

    fn row(&self) -> [String; 4] {
        let percent = |elasticity: Option<f64>| {
            let effect = elasticity.map(|elasticity| (self.factor.powf(elasticity) - 1.0) * 100.0);
            effect.map_or("-".to_owned(), |effect| format!("{effect:+.1} %"))
        };
        [self.part.to_owned(), percent(self.total), percent(self.lost), percent(self.elapsed)]
    }
}

fn is_one(traces: &usize) -> bool {
    *traces <= 1
}

impl From<&Ledger> for Costs {
    fn from(ledger: &Ledger) -> Costs {
        let by_cause = ledger.causes.map(Nanos::as_seconds);
        let causes = by_cause.iter().filter(|(_, predicted_s)| *predicted_s > 0.0);
        let causes = causes.map(|(cause, predicted_s)| CauseCost { name: cause.name(), predicted_s });
        let mut causes: Vec<CauseCost> = causes.collect();
        causes.sort_by(|a, b| b.predicted_s.total_cmp(&a.predicted_s));
        let ops = ledger.ops.iter().map(|op| OpTimes {
            op: op.op.name(),
            calls: op.calls,
            total_s: op.total.as_seconds(),
            p50_s: op.quantiles.p50.as_seconds(),
            p99_s: op.quantiles.p99.as_seconds(),
        });
        Costs {
            calls: ledger.calls,
            bytes: ledger.bytes,
            total_s: ledger.total.as_seconds(),
            end_s: ledger.end.as_seconds(),
            peak_dirty_bytes: ledger.peak_dirty.0,
            ops: ops.collect(),
            causes,
            by_cause,
        }
    }
}

impl Compared {
    pub fn new(change: String, after: &Ledger, told: Option<(Ratio, Option<Sure>)>) -> Compared {
        Compared {
            change,
            after: Costs::from(after),
            ratio: told.map(|(ratio, _)| ratio.value),
            interval: told.map(|(ratio, _)| ratio.interval.into()),
            sure: told.and_then(|(_, sure)| sure),
            safety: after.safety.clone(),
        }
    }

    fn ratio(&self) -> String {
        let sure = self.sure.map_or(String::new(), |sure| format!(", {}", sure.name()));
        match (self.ratio, self.interval) {
            (Some(ratio), Some([low, high])) => format!("{ratio:.2} × ({low:.2} to {high:.2}){sure}"),
            (Some(ratio), None) => format!("{ratio:.2} ×"),
            _ => "-".to_owned(),
        }
    }
}

impl Answer {
    /// An answer that has nothing but the run as it was.
    pub fn new(before: &Ledger, observed_s: f64) -> Answer {
        Answer { schema: SCHEMA, observed_s, before: Costs::from(before), ..Answer::default() }
    }

    pub fn changed(&mut self, change: &str, calls: Option<u64>) {
        self.changes.push(Changed { change: change.to_owned(), calls });
    }

    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let before = &self.before;
        let calls = counted(before.calls, "call");
        let as_it_was = format!("{calls}: {}", on_paper(self.observed_s, before.total_s));
        let what = if is_one(&self.traces) { "trace" } else { "traces" };
        let count = if is_one(&self.traces) { String::new() } else { format!("{}: ", self.traces) };
        line(&mut out, what, &format!("{count}{as_it_was}"), terminal);
        self.changes.iter().for_each(|change| line(&mut out, "change", &change.in_words(), terminal));
        if let Some(after) = self.after.as_ref().filter(|after| !after.change.is_empty()) {
            self.compare(&mut out, after, terminal);
        }
        if !self.each.is_empty() {
            self.one_by_one(&mut out, terminal);
        }
        if !self.parts.is_empty() {
            let header = ["PART +10 %", "IN CALLS", "LOST", "ELAPSED"];
            let rows = self.parts.iter().map(SensitivityOfPart::row);
            headed(&mut out, &table(&header, [0], rows), terminal);
        }
        if !self.sensitivity.is_empty() {
            let rows = self.sensitivity.iter().filter(|one| one.effect.abs() >= 0.0005);
            // What a smaller one saves, a larger one costs.
            let larger = |one: &Sensitivity| if one.factor > 1.0 { one.effect } else { -one.effect };
            let rows = rows.map(|one| [one.constant.clone(), format!("{:+.1} %", larger(one) * 100.0)]);
            headed(&mut out, &table(&["CONSTANT +10 %", "IN CALLS"], [0], rows), terminal);
        }
        out
    }

    fn compare(&self, out: &mut String, after: &Compared, terminal: bool) {
        let (was, is) = (&self.before, &after.after);
        let peak = |costs: &Costs| costs.peak_dirty_bytes as f64;
        let rows = [
            ["time in calls".to_owned(), time(was.total_s), time(is.total_s), after.ratio()],
            row("elapsed", was.end_s, is.end_s, time),
            row("most dirty", peak(was), peak(is), |bytes| Bytes(bytes as u64).to_string()),
        ];
        headed(out, &table(&["", "BEFORE", "AFTER", "CHANGE"], [0], rows), terminal);
        let is_listed = |cause: &Cause| {
            was.by_cause[*cause] >= LISTED * was.total_s.max(f64::MIN_POSITIVE)
                || is.by_cause[*cause] >= LISTED * is.total_s.max(f64::MIN_POSITIVE)
        };
        let mut causes: Vec<Cause> = Cause::ALL.into_iter().filter(is_listed).collect();
        causes.sort_by(|a, b| was.by_cause[*b].total_cmp(&was.by_cause[*a]));
        let of = |cause: &Cause| {
            let (was, is) = (was.by_cause[*cause], is.by_cause[*cause]);
            [cause.name().to_owned(), time(was), time(is), difference(is - was)]
        };
        let rest = |costs: &Costs| {
            let rest = costs.by_cause.iter().filter(|(cause, _)| !causes.contains(cause));
            rest.map(|(_, seconds)| seconds).sum::<f64>()
        };
        let (rest_was, rest_is) = (rest(was), rest(is));
        let others = ["others".to_owned(), time(rest_was), time(rest_is), difference(rest_is - rest_was)];
        let others = (rest_was > 0.0 || rest_is > 0.0).then_some(others);
        let header = ["CAUSE", "BEFORE", "AFTER", "DIFFERENCE"];
        headed(out, &table(&header, [0], causes.iter().map(of).chain(others)), terminal);
        let rows = rows_of_ops(&was.ops, &is.ops, |op| [op.p50_s, op.p99_s]);
        headed(out, &table(&["OP", "CALLS", "P50", "P99", "CALLS AFTER", "P50", "P99"], [0], rows), terminal);
        less_safe(out, after.safety.iter(), terminal);
    }

    fn one_by_one(&self, out: &mut String, terminal: bool) {
        let row = |one: &Compared| {
            [one.change.clone(), time(one.after.total_s), one.ratio(), time(one.after.end_s)]
        };
        let header = ["CHANGE", "IN CALLS", "OF BEFORE", "ELAPSED"];
        headed(out, &table(&header, [0], self.each.iter().map(row)), terminal);
        let of = |one: &'_ Compared| {
            one.safety.iter().map(|safety| format!("{}: {safety}", one.change)).collect::<Vec<_>>()
        };
        less_safe(out, self.each.iter().flat_map(of), terminal);
    }
}
