//! Traces as the work: their calls on paper, one trace after the other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cawl_console::inputs::{profile_of, read_profile};
use cawl_console::tell;
use cawl_core::advise::{Look, Looked};
use cawl_core::{HostFacts, HostProfile, Ledger, Nanos, NoScenario, Ratio, Record, Request, Scenario};
use cawl_host::trace::TraceReader;

use super::{Times, Work};

/// Time to run a byte of a trace: for the progress only.
const A_BYTE: Nanos = Nanos::new(100.0);

/// Traces, each on the machine that it is of.
pub struct Traces {
    traces: Vec<Trace>,
    now: Times,
}

struct Trace {
    path: PathBuf,
    looked: Looked,
    host: Option<HostFacts>,
    /// On its machine as it is.
    before: Ledger,
}

impl Traces {
    /// Reads the traces and runs them as they were. Each is on its own profile, improved by its calls.
    ///
    /// # Errors
    /// Where a trace cannot be read, or has no calls that have a cost.
    pub fn read(paths: &[PathBuf]) -> anyhow::Result<Traces> {
        let traces = paths.iter().map(|path| Trace::read(path)).collect::<Result<_, _>>()?;
        let mut traces = Traces { traces, now: Times::default() };
        traces.now = traces.sum(traces.traces.iter().map(|trace| trace.before.clone()).collect());
        Ok(traces)
    }

    /// One after the other. The ratio is as far off as if the constants of all machines erred alike.
    fn sum(&self, ledgers: Vec<Ledger>) -> Times {
        let (mut all, mut before, mut bounds) = (Ledger::default(), 0.0, Some((0.0, 0.0)));
        for (trace, after) in self.traces.iter().zip(ledgers) {
            let was = trace.before.total.get();
            let ratio = Ratio::of(&trace.before, &after, &trace.looked.base.machine.profile);
            let more = ratio.map(|Ratio { interval: (low, high), .. }| (low * was, high * was));
            bounds = bounds.zip(more).map(|(sum, more)| (sum.0 + more.0, sum.1 + more.1));
            before += was;
            all.add(after);
        }
        let ratio = bounds.map(|(low, high)| Ratio {
            value: all.total.get() / before,
            interval: (low / before, high / before),
        });
        Times { calls: all.total, lost: all.lost(), elapsed: all.end, ratio }
    }
}

impl Work for Traces {
    fn now(&self) -> Times {
        self.now
    }

    fn observed(&self) -> Option<Nanos> {
        let of = |trace: &Trace| Some(trace.looked.report.models.first()?.observed_s);
        let all: f64 = self.traces.iter().filter_map(of).sum();
        (all > 0.0).then(|| Nanos::seconds(all))
    }

    fn check(&self, changes: &[Request]) -> anyhow::Result<()> {
        self.traces.iter().try_for_each(|trace| trace.after(changes).map(drop))
    }

    fn times(&self, changes: &[Request]) -> anyhow::Result<Times> {
        let run = |trace: &Trace| trace.run(&trace.after(changes)?);
        Ok(self.sum(self.traces.iter().map(run).collect::<Result<_, _>>()?))
    }

    fn expected(&self) -> Nanos {
        let bytes = |trace: &Trace| fs::metadata(&trace.path).map_or(0, |meta| meta.len());
        A_BYTE * self.traces.iter().map(bytes).sum::<u64>() as f64
    }
}

impl Trace {
    fn read(path: &Path) -> anyhow::Result<Trace> {
        let about = || format!("cannot read the trace {}", path.display());
        let mut reader = TraceReader::open(path).with_context(about)?;
        let (mut head, mut profile, mut host) = (Vec::new(), None, None);
        let mut look: Option<Look> = None;
        for record in reader.by_ref() {
            match record.with_context(about)? {
                Record::Profile(recorded) => profile = Some(*recorded),
                Record::Live(_) => {}
                record if look.is_none() && matches!(record, Record::Host(_) | Record::Note(_)) => {
                    head.push(record)
                }
                record => {
                    if look.is_none() {
                        look = Some(begin(profile.take(), &head, &mut host).with_context(about)?);
                    }
                    look.iter_mut().for_each(|look| look.take(&record));
                }
            }
        }
        reader.damage().describe().into_iter().for_each(tell);
        let looked = look.map(Look::finish);
        let looked = looked.with_context(|| format!("the trace {} has no calls", path.display()))?;
        let mut trace = Trace { path: path.to_owned(), looked, host, before: Ledger::default() };
        trace.before = trace.run(&trace.looked.base)?;
        ensure!(trace.before.calls > 0, "the trace {} has no calls that have a cost", path.display());
        Ok(trace)
    }

    fn after(&self, changes: &[Request]) -> anyhow::Result<Scenario> {
        let read =
            |path: &Path| read_profile(path).map_err(|error| NoScenario::Profile(format!("{error:#}")));
        let Looked { base, measured, .. } = &self.looked;
        base.with(changes, measured, self.host.as_ref(), read).map_err(Into::into)
    }

    fn run(&self, scenario: &Scenario) -> anyhow::Result<Ledger> {
        let about = || format!("cannot read the trace {}", self.path.display());
        let mut paper = scenario.begin(&self.looked.facts);
        for record in TraceReader::open(&self.path).with_context(about)? {
            match record.with_context(about)? {
                Record::Profile(_) | Record::Live(_) => {}
                record => paper.take(&record),
            }
        }
        Ok(paper.finish())
    }
}

/// The look at a trace, which begins with what its head tells.
fn begin(
    profile: Option<HostProfile>,
    head: &[Record],
    host: &mut Option<HostFacts>,
) -> anyhow::Result<Look> {
    // A trace without a profile is judged by this machine's.
    let profile = profile.unwrap_or_else(|| profile_of("cawl-lab", None, "speeds are defaults"));
    profile.check().context("its profile is invalid")?;
    let mut look = Look::new(&profile, true)?;
    for record in head {
        look.take(record);
        if let Record::Host(told) = record {
            *host = Some((**told).clone());
        }
    }
    Ok(look)
}
