//! Advice, as text and as JSON.

use cawl_core::advise::Advice;
use cawl_core::{BestTimes, Bytes, Cause, Explain, Ledger, Nanos};
use serde::Serialize;

use super::beside::on_paper;
use super::{bold, counted, difference, line, time};

const SCHEMA: u32 = 1;
/// Columns of the names of lines.
const NAME: usize = 11;
/// Files named in the text.
const NAMED: usize = 3;
/// Causes that lie outside of what a call does: fewer calls meet them less, the same ones as before.
const OUTSIDE: [&str; 3] = ["cold memory", "preempted", "unexpected"];
/// Part of the time from which on these are named.
const NOTEWORTHY: f64 = 0.05;

/// The whole answer. Times in seconds.
#[derive(Serialize)]
pub struct Answer {
    schema: u32,
    /// Calls that have a cost, and their bytes.
    calls: u64,
    bytes: u64,
    /// What they took in the trace, and on paper.
    observed_s: f64,
    paper_s: f64,
    /// From the first to the end of the last, on paper.
    end_s: f64,
    best: BestTimes,
    bound: Bound,
    /// Changes that were tried.
    tried: u64,
    advice: Vec<Advice>,
    /// What no change of a call helps.
    pub notes: Vec<String>,
    /// Only so many calls of a longer trace were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_calls: Option<u64>,
    /// A daemon recorded the calls for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_s: Option<f64>,
    /// The trace, as a shell takes it.
    #[serde(skip)]
    trace: String,
}

/// What could be gained at all.
#[derive(Serialize)]
struct Bound {
    /// Observed less best.
    gain_s: f64,
    /// Best over observed.
    ratio: Option<f64>,
    /// The part of the observed time whose causes lie outside of what the calls do.
    outside_s: f64,
}

impl Answer {
    /// The answer to a trace that is explained so. `tried`: the number of changes, and the least time on paper
    /// with one of them or without. What is explained goes by the calls of the trace, the paper by the
    /// constants that these taught: a bound is no larger than what either says, nor than what was observed.
    /// Writes to /dev/null are in the one only.
    pub fn new(
        explain: &Explain,
        before: &Ledger,
        observed: Nanos,
        advice: Vec<Advice>,
        (tried, least): (u64, Nanos),
        trace: String,
    ) -> Answer {
        let discard = Cause::Discard.name();
        let of_null =
            explain.causes.iter().find(|cause| cause.name == discard).map_or(0.0, |c| c.undisturbed_s);
        let seen = observed.as_seconds();
        let most = before.total.as_seconds().min(seen);
        let undisturbed_s = (explain.best.undisturbed_s - of_null).clamp(0.0, most);
        let best_s = explain.best.best_s.min(undisturbed_s).min(least.as_seconds());
        let best = BestTimes { undisturbed_s, best_s };
        let outside = explain.causes.iter().filter(|cause| OUTSIDE.contains(&cause.name.as_str()));
        Answer {
            schema: SCHEMA,
            calls: before.calls,
            bytes: before.bytes,
            observed_s: seen,
            paper_s: before.total.as_seconds(),
            end_s: before.end.as_seconds(),
            best,
            bound: Bound {
                gain_s: (seen - best.best_s).max(0.0),
                ratio: (seen > 0.0).then(|| best.best_s / seen),
                outside_s: outside.map(|cause| cause.observed_s).sum(),
            },
            tried,
            advice,
            notes: Vec::new(),
            first_calls: None,
            recorded_s: None,
            trace,
        }
    }

    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let (calls, bytes, end) = (counted(self.calls, "call"), Bytes(self.bytes), time(self.end_s));
        let trace = format!("{calls}, {bytes} in {end}; {}", on_paper(self.observed_s, self.paper_s));
        line(&mut out, "trace", &trace, terminal);
        if let Some(calls) = self.first_calls {
            let only =
                format!("the first {} only; what comes after was not looked at", counted(calls, "call"));
            line(&mut out, "part", &only, terminal);
        }
        if let Some(seconds) = self.recorded_s {
            let only = format!("what the daemon saw in {} from the question on", time(seconds));
            line(&mut out, "part", &only, terminal);
        }
        let BestTimes { undisturbed_s, best_s } = self.best;
        let [undisturbed, best] = [undisturbed_s, best_s].map(time);
        let bound = format!(
            "{undisturbed} would do for the same calls undisturbed, {best} for the same bytes in large calls \
             with one fsync a file at most"
        );
        line(&mut out, "bound", &bound, terminal);
        let outside = self.bound.outside_s;
        if outside >= NOTEWORTHY * self.observed_s && outside > 0.0 {
            let causes = OUTSIDE.join(", ");
            let text =
                format!("{} are {causes}: fewer calls meet them less, other calls do not", time(outside));
            line(&mut out, "outside", &text, terminal);
        }
        self.notes.iter().for_each(|note| line(&mut out, "waits", note, terminal));
        if self.advice.is_empty() {
            let nothing = match self.tried {
                0 => {
                    "nothing is worth it: no pattern suggests a change where there is time to gain".to_owned()
                }
                tried => format!(
                    "nothing is worth it: of {} tried none gains more than 5 % of this time, 1 ms, and the \
                     model's uncertainty",
                    counted(tried, "change")
                ),
            };
            line(&mut out, "advice", &nothing, terminal);
        }
        for (at, advice) in self.advice.iter().enumerate() {
            out.push('\n');
            self.one(&mut out, at + 1, advice, terminal);
        }
        out
    }

    fn one(&self, out: &mut String, number: usize, advice: &Advice, terminal: bool) {
        let [gain, paper] = [advice.gain_s, self.paper_s].map(time);
        let first = format!("{} gains {gain} of {paper}", bold(&advice.what, terminal));
        line(out, &format!("{number}"), &first, terminal);
        let [low, high] = advice.interval;
        let (sure, elapsed) = (advice.sure.name(), difference(-advice.elapsed_gain_s));
        let ratio = format!("{:.2} × ({low:.2} to {high:.2}); {sure}; elapsed {elapsed}", advice.ratio);
        line(out, "ratio", &ratio, terminal);
        let named = advice.files.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = advice.files.len().saturating_sub(NAMED) as u64 + advice.more_files;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let program = advice.program.as_ref().map(|program| format!(", by {program}")).unwrap_or_default();
        if !named.is_empty() {
            line(out, "of", &format!("{named}{more}{program}"), terminal);
        }
        line(out, "how", &advice.how, terminal);
        for safety in &advice.safety {
            line(out, "less safe", safety, terminal);
        }
        let named = bold(&format!("{:<NAME$}", "on paper"), terminal);
        out.push_str(&format!("{named}{}\n", command(&self.trace, &advice.change)));
        for other in &advice.alternatives {
            let safety = if other.safety.is_empty() {
                String::new()
            } else {
                format!("; {}", other.safety.join("; "))
            };
            let text = format!("{} ({:.2} ×): {}{safety}", other.what, other.ratio, other.how);
            line(out, "or", &text, terminal);
        }
    }
}

/// The command that shows a change on paper, to be pasted into a shell: a line for each change.
fn command(trace: &str, change: &str) -> String {
    let lines =
        format!("cawl-cli whatif {trace}\n{}", change.replace(" --", "\n--").replace("\n--on ", " --on "));
    lines.replace('\n', &format!(" \\\n{:NAME$}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted() {
        let told = command("/a.cawl", "--fsync every=16 --on '/my log' --merge 64K");
        let lines: Vec<&str> = told.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            ["cawl-cli whatif /a.cawl \\", "--fsync every=16 --on '/my log' \\", "--merge 64K"]
        );
    }

    #[test]
    fn a_bound_is_no_more_than_what_was_observed_or_is_on_paper() {
        let best = BestTimes { undisturbed_s: 0.4, best_s: 0.38 };
        let explain = Explain { best, ..Explain::default() };
        let [a_third, most] = [0.335, 0.362].map(Nanos::seconds);
        for (paper, observed, least, undisturbed_s, best_s) in
            [(most, a_third, most, 0.335, 0.335), (a_third, most, Nanos::seconds(0.1), 0.335, 0.1)]
        {
            let before = Ledger { calls: 1, total: paper, ..Ledger::default() };
            let answer = Answer::new(&explain, &before, observed, Vec::new(), (1, least), String::new());
            assert_eq!(answer.best, BestTimes { undisturbed_s, best_s });
            assert_eq!(answer.bound.ratio, Some(best_s / observed.as_seconds()));
        }
    }
}
