//! What is kept of a run for the next one: every bank's [`evidence`](super::evidence) added to a stored
//! profile. What a stream's calls cost beyond the copy is the program's formatting, no constant of the
//! machine, and is not kept.

use super::bank::Bank;
use super::constants::{
    COPYING, Coefficient, FARTHEST, FETCHING, HOST, NAMING, OPENING, P90, READING, SLOWDOWN, WAITING,
    WRITEBACK,
};
use super::evidence::{Known, STRANGE, SUREST, Said};
use super::{Constant, Learner, Memory};
use crate::profile::{HostProfile, Kept, Origin};

/// Standard deviation of a constant of `calls`, from its percentiles, in seconds; None for other constants.
fn deviation(of: &HostProfile, name: &str) -> Option<f64> {
    let constant = of.value(name).filter(|_| name.starts_with("calls."))?;
    let (low, high) = constant.p10.zip(constant.p90)?;
    Some((high - low) / (2.0 * P90) * 1e-9)
}

struct Merge<'a> {
    file: &'a HostProfile,
    used: &'a HostProfile,
    /// Constants of which the run has said something, and those of which it is sure.
    said: Vec<&'static str>,
    sure: Vec<&'static str>,
}

impl Merge<'_> {
    /// Adds a `run` to the constants of a bank: `next` begins with both, `alone` with the run's values where
    /// it is sure. The deviation of what was `measured` is bounded by that of measurements and by how far off
    /// it is now.
    fn add<const N: usize>(
        &mut self,
        coefficients: &[Coefficient; N],
        run: &Bank<N>,
        measured: &Bank<N>,
        next: &mut Bank<N>,
        alone: &mut Bank<N>,
    ) {
        let names = coefficients.each_ref().map(|one| one.name);
        let kept = |name: &str| {
            self.file.learned.as_ref().is_some_and(|learned| learned.constants.contains_key(name))
        };
        let mut known = next.known(names.map(kept), names.map(|name| self.used.is_measured(name)));
        for (known, name) in known.iter_mut().zip(names) {
            // A call that is followed may take more for what its program did before; one that is kept may
            // not.
            if let Some(deviation) = deviation(self.used, name) {
                known.deviation = known.deviation.min(deviation.max(SUREST * known.value));
            }
        }
        let measured = measured.known([false; N], names.map(|name| self.file.is_measured(name)));
        let mut said = run.said(&known);
        for (said, measured) in said.iter_mut().zip(measured).filter(|(_, known)| known.measured) {
            let Some(Said { known, .. }) = said else { continue };
            let ordinary = measured.deviation.hypot(STRANGE * measured.value);
            known.deviation = known.deviation.min(ordinary.hypot(known.value - measured.value));
        }
        let with = |value: fn(Known, Option<f64>) -> f64| {
            let mut now = known;
            for (now, said) in now.iter_mut().zip(said) {
                if let Some(said) = said {
                    *now = Known { value: value(said.known, said.alone), ..said.known };
                }
            }
            now
        };
        next.anew(&with(|known, _| known.value), run.samples);
        alone.anew(&with(|known, alone| alone.unwrap_or(known.value)), run.samples);
        for (name, said) in names.into_iter().zip(said) {
            self.said.extend(said.map(|_| name));
            self.sure.extend(said.and_then(|said| said.alone).map(|_| name));
        }
    }
}

impl Learner {
    /// From now on the calls on the device with this number (`st_dev`) count for what is kept.
    pub fn keep(&mut self, dev: u64) {
        self.keeps = Some(dev);
    }

    /// Whether the call that follows counts.
    pub(super) fn count(&mut self, counts: bool) {
        self.copying.counts = counts;
        self.host.counts = counts;
        self.slowdown.counts = counts;
        self.waiting.counts = counts;
        self.reading.counts = counts;
        self.fetching.counts = counts;
        self.opening.counts = counts;
        self.naming.counts = counts;
    }

    /// True if there is something to keep.
    pub fn has_kept(&self) -> bool {
        let banks = [
            self.copying.kept(),
            self.host.kept(),
            self.slowdown.kept(),
            self.waiting.kept(),
            self.writeback.kept(),
            self.reading.kept(),
            self.fetching.kept(),
            self.opening.kept(),
            self.naming.kept(),
        ];
        banks.iter().any(|kept| *kept > 0)
    }

    /// `file`, a profile as it is stored, with what this run as a whole says, which ended at `now` (in
    /// seconds since 1970-01-01 UTC); None if it says nothing.
    pub fn merged(&self, file: &HostProfile, now: u64) -> Option<HostProfile> {
        let used = file.clone().as_learned();
        let (mut next, mut alone) = (Learner::new(&used), Learner::new(&used));
        let measured = Learner::with(file, Memory::Lasting);
        let mut merge = Merge { file, used: &used, said: Vec::new(), sure: Vec::new() };
        merge.add(&COPYING, &self.copying, &measured.copying, &mut next.copying, &mut alone.copying);
        merge.add(&HOST, &self.host, &measured.host, &mut next.host, &mut alone.host);
        merge.add(&SLOWDOWN, &self.slowdown, &measured.slowdown, &mut next.slowdown, &mut alone.slowdown);
        merge.add(&WAITING, &self.waiting, &measured.waiting, &mut next.waiting, &mut alone.waiting);
        merge.add(
            &WRITEBACK,
            &self.writeback,
            &measured.writeback,
            &mut next.writeback,
            &mut alone.writeback,
        );
        merge.add(&READING, &self.reading, &measured.reading, &mut next.reading, &mut alone.reading);
        merge.add(&FETCHING, &self.fetching, &measured.fetching, &mut next.fetching, &mut alone.fetching);
        merge.add(&OPENING, &self.opening, &measured.opening, &mut next.opening, &mut alone.opening);
        merge.add(&NAMING, &self.naming, &measured.naming, &mut next.naming, &mut alone.naming);
        let Merge { mut said, sure, .. } = merge;
        if said.contains(&"memory.cached") {
            // New pages are copied to as well.
            said.push("memory.fresh");
        }
        let mut learned = file.learned.clone().unwrap_or_default();
        let mut contradicted = false;
        for (constant, alone) in next.adopted().into_iter().zip(alone.adopted()) {
            let Constant { name, learned: value, p10, p90, samples, .. } = constant;
            let known = p10.zip(p90).filter(|_| said.contains(&name.as_str()));
            let Some((p10, p90)) = known else { continue };
            let before = learned.constants.get(&name);
            let (runs, seen) = before.map_or((0, 0), |before| (before.runs, before.samples));
            let (runs, samples) = (runs.saturating_add(1), seen.saturating_add(samples));
            contradicted |= sure.contains(&name.as_str()) && file.contradicts(&name, alone.learned);
            let (least, most) = file.range(&name);
            let value = value.clamp(least, most);
            // Nothing is known worse, in proportion, than a default.
            let (p10, p90) = (p10.max(value / FARTHEST), p90.min((value * FARTHEST).max(p10)));
            let [p10, p90] = [p10.min(value), p90.max(value)].map(|learned| learned.clamp(least, most));
            learned.constants.insert(name, Kept { value, p10, p90, samples, runs });
        }
        let unmeasured = file.origin == Origin::Uncalibrated;
        if said.is_empty() || unmeasured && sure.is_empty() {
            return None;
        }
        learned.runs = learned.runs.saturating_add(1);
        learned.last = now;
        Some(HostProfile {
            origin: if unmeasured { Origin::Learned } else { file.origin },
            contradicted: if contradicted { file.contradicted.saturating_add(1) } else { 0 },
            learned: Some(learned),
            ..file.clone()
        })
    }

    /// The constants, as the banks have them.
    fn adopted(mut self) -> Vec<Constant> {
        self.adopt_copying();
        let profile = &mut self.profile;
        self.waiting.adopt(&WAITING, profile);
        self.writeback.adopt(&WRITEBACK, profile);
        self.reading.adopt(&READING, profile);
        self.fetching.adopt(&FETCHING, profile);
        self.opening.adopt(&OPENING, profile);
        self.naming.adopt(&NAMING, profile);
        self.constants()
    }
}
