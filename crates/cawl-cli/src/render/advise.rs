//! Advice, as text and as JSON.

use cawl_core::advise::{Advice, Advised, Bound, Found, OUTSIDE};
use cawl_core::{Bytes, Cause, Report};
use serde::Serialize;

use super::comparison::on_paper;
use super::{bold, counted, difference, line, shown, time};

const SCHEMA: u32 = 1;
/// Columns of the names of lines.
const NAME: usize = 11;
/// Files named in the text.
const NAMED: usize = 3;
/// Part of the time from which on these are named.
const NOTEWORTHY: f64 = 0.05;

/// Of several pieces of advice.
const EACH: &str = "each is a change by itself: some exclude others, and gains do not add up";

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
    best_s: f64,
    bound: Bound,
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
    /// From the first call to the end of the last, as it was.
    #[serde(skip)]
    span_s: f64,
    /// The trace, as a shell takes it.
    #[serde(skip)]
    trace: String,
}

impl Answer {
    /// What was found of a trace whose calls took so long from the first to the last.
    pub fn new(found: Found, span_s: f64, trace: String) -> Answer {
        let Found { before, observed, advice, tried, best_s, bound } = found;
        Answer {
            schema: SCHEMA,
            calls: before.calls,
            bytes: before.bytes,
            observed_s: observed.as_seconds(),
            paper_s: before.total.as_seconds(),
            end_s: before.end.as_seconds(),
            best_s,
            bound,
            tried,
            advice,
            notes: Vec::new(),
            first_calls: None,
            recorded_s: None,
            span_s,
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
        let of = match self.bytes {
            0 => "calls, which move no bytes, undisturbed",
            _ => "bytes in large calls with one fsync a file at most",
        };
        let bound = format!("{} would do for the same {of}", time(self.best_s));
        line(&mut out, "bound", &bound, terminal);
        let outside = self.bound.outside_s;
        if outside >= NOTEWORTHY * self.observed_s && outside > 0.0 {
            let causes = OUTSIDE.map(Cause::name).join(", ");
            let text =
                format!("{} are {causes}: fewer calls meet them less, other calls do not", time(outside));
            line(&mut out, "outside", &text, terminal);
        }
        self.notes.iter().for_each(|note| line(&mut out, "waits", note, terminal));
        if self.advice.is_empty() {
            let nothing = nothing(&self.bound, self.tried, [self.observed_s, self.span_s]);
            line(&mut out, "advice", &nothing, terminal);
        }
        if self.advice.len() > 1 {
            line(&mut out, "each", EACH, terminal);
        }
        for (at, advice) in self.advice.iter().enumerate() {
            out.push('\n');
            self.one(&mut out, at + 1, advice, terminal);
        }
        out
    }

    fn one(&self, out: &mut String, number: usize, advice: &Advice, terminal: bool) {
        let [gain, paper] = [advice.gain_s, self.paper_s].map(time);
        let first = format!("{} gains {gain} of {paper} on paper", bold(&advice.what, terminal));
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

/// That no change is worth it, and why. The times: in calls, and elapsed, in seconds.
fn nothing(bound: &Bound, tried: u64, [observed_s, span_s]: [f64; 2]) -> String {
    let why = match tried {
        0 => "no pattern suggests a change where there is time to gain".to_owned(),
        tried => format!(
            "of {} tried none gains more than 5 % of this time, 1 ms, and the model's uncertainty",
            counted(tried, "change")
        ),
    };
    format!("{}; {why}", bound.nothing(observed_s, span_s))
}

/// The lines that end a report: at most three changes that are worth it, or why there are none.
pub fn of_report(report: &Report, terminal: bool) -> Vec<(&'static str, String)> {
    let Some(advised) = &report.advice else { return Vec::new() };
    let Some(tried) = advised.tried else {
        let trace = "cawl-cli advise TRACE tries changes; for that, the calls are too many beside a report";
        return vec![("advice", trace.to_owned())];
    };
    let observed_s = report.explain.as_ref().map_or(0.0, |explain| explain.observed_s);
    let mut lines: Vec<_> =
        advised.advice.iter().map(|one| ("advice", in_a_line(one, advised, terminal))).collect();
    if lines.is_empty() {
        lines.push(("advice", nothing(&advised.bound, tried, [observed_s, report.span_s])));
    }
    if lines.len() > 1 {
        lines.push(("", EACH.to_owned()));
    }
    if advised.more > 0 {
        lines.push(("advice", format!("{} more: cawl-cli advise TRACE", advised.more)));
    }
    lines
}

/// `one fsync for 16 records gains 676 ms (650 to 690 ms) of 724 ms on paper, sure: …; less safe: …`.
fn in_a_line(advice: &Advice, advised: &Advised, terminal: bool) -> String {
    let paper_s = advised.paper_s;
    let [gain, low, high, paper] = {
        let [low, high] = advice.gain_interval_s(paper_s);
        [advice.gain_s, low, high, paper_s].map(time)
    };
    let after = |before: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{before}{}", shown(text)),
    };
    let (what, sure) = (bold(&shown(&advice.what), terminal), advice.sure.name());
    let (how, safety) = (after(": ", &advice.how), after("; less safe: ", &advice.safety.join("; ")));
    format!("{what} gains {gain} ({low} to {high}) of {paper} on paper, {sure}{how}{safety}")
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
}
