//! The engine's part of an answer: looking up and copying rows. Sorting larger tables, running models ahead
//! and serialising are left to the asking task ([`crate::asker`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use cawl_client::protocol::{
    Calls, Devices, Files, History, HistorySpan, Listing, PROTOCOL, Processes, Status, View,
};
use cawl_core::{
    Analysis, Constant, HostProfile, Mode, ModelState, Nanos, NotKept, Rate, Sample, Scene, Time,
};
use cawl_host::clock::Clocks;

use super::Engine;
use crate::query_tables::QueryTables;

/// Default and largest number of rows: as many as are answered in a few milliseconds while calls arrive.
const ROWS: usize = 100;
const MAX_ROWS: usize = 500;

/// Programs listed in a status; [`Processes`] has more.
const STATUS_ROWS: usize = 256;

/// A snapshot of a model is cached for `FRESH`, or for `SHARE` times its cost if that is longer: a model with
/// a million extents is slow to copy, and that time delays calls.
const FRESH: Duration = Duration::from_millis(10);
const SHARE: u32 = 20;

/// While calls arrive, the model is at most this far behind, since calls are held.
const BEHIND: Nanos = Nanos::millis(300.0);

/// Recent states of models, by model and mode.
pub type States = BTreeMap<(Option<String>, Option<&'static str>), Known>;

/// A snapshot of a model, and the present rate of all writers.
pub struct Ahead {
    pub scene: Scene,
    pub model: &'static str,
    pub rate: Rate,
}

/// A state, when it was taken, and how long that took.
pub struct Known {
    at: Instant,
    took: Duration,
    state: ModelState,
}

impl Engine {
    /// The tables of the lane that answers, else empty ones.
    fn tables(&self) -> &QueryTables {
        self.lane().and_then(|lane| lane.tables.as_deref()).unwrap_or(&self.no_tables)
    }

    /// The state of a model. An error names the models kept.
    fn state(&mut self, view: &View, now: Time) -> Result<Option<ModelState>, NotKept> {
        let Some(lane) = self.lane() else { return Ok(None) };
        let key = (view.model.clone(), view.mode.map(Mode::name));
        if let Some(known) = self.states.get(&key)
            && known.at.elapsed() < FRESH.max(known.took * SHARE)
        {
            return Ok(Some(known.state));
        }
        // The last published state needs no snapshot, which would delay calls.
        let state = lane.analysis.state();
        if *view == View::default() && now.since(state.time) < BEHIND {
            return Ok(Some(state));
        }
        let at = Instant::now();
        let state = lane.analysis.view(view.model.as_deref(), view.mode, now)?;
        self.states.insert(key, Known { at, took: at.elapsed(), state });
        Ok(Some(state))
    }

    /// The status, as far as the engine knows it.
    pub(crate) fn status(&mut self, view: &View, sample: Option<Sample>) -> Result<Status, NotKept> {
        let now = cawl_host::now();
        let state = self.state(view, now)?;
        self.last_sample = sample.or(self.last_sample);
        let page = self.profile.kernel.page;
        let limits = self.last_sample.map_or(self.profile.kernel.limits, |sample| sample.limits(page));
        let analysis = self.lane().map(|lane| &lane.analysis);
        let answers = |analysis: &Analysis| analysis.viewed(view.model.as_deref(), view.mode);
        let (model, mode) = analysis.map_or(Ok(("", Mode::default())), answers)?;
        let total = self.tables().totals.total;
        Ok(Status {
            schema: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: model.to_owned(),
            mode,
            profile: self.options.profile.name.clone(),
            modelled_dirty_bytes: state.map_or(0, |state| state.dirty.0),
            sampled_dirty_bytes: self.last_sample.map(|sample| sample.dirty_bytes(page).0),
            background_bytes: limits.background.0,
            freerun_bytes: limits.freerun().0,
            hard_bytes: limits.hard.0,
            state: state.map(|state| state.regime).unwrap_or_default(),
            writeback_rate: state.and_then(|state| state.writeback).map(Rate::get),
            throttled_rate: state.and_then(|state| state.throttled).map(Rate::get),
            dirtying_rate: self.dirtying_rate(now),
            untraced_rate: self.untraced_rate(),
            error: analysis.map(Analysis::recent_error).unwrap_or_default(),
            clients: self.sessions.len() as u64,
            calls: total.sums.count.calls,
            bytes: total.sums.count.bytes,
            cost: total.cost(now),
            causes_s: total.causes_s(),
            drops: self.drops(),
            uptime_s: now.since(self.started).as_seconds(),
            processes: self.processes(Listing { limit: Some(STATUS_ROWS), ..Listing::default() }).processes,
            devices: self.devices().devices,
            excerpts: self.lane().and_then(|lane| lane.watch.as_ref()).map(|watch| watch.status()),
            calls_to: self.lane().and_then(|lane| lane.calls_to.as_ref()).map(|calls| calls.status()),
            sums_to: self.lane().and_then(|lane| lane.sums_to.as_ref()).map(|sums| sums.status()),
            otlp: self.lane().and_then(|lane| lane.otlp_to.as_ref()).map(|otlp| otlp.status()),
            sampled_writeback_rate: self.observed.writeback,
            sampler: self.observed.status.clone(),
            ..Status::default()
        })
    }

    fn dirtying_rate(&self, now: Time) -> f64 {
        self.tables().totals.total.rate(now)
    }

    fn untraced_rate(&self) -> f64 {
        let rate = self.lane().map_or(Rate::MIN, |lane| lane.analysis.untraced_rate());
        if rate == Rate::MIN { 0.0 } else { rate.get() }
    }

    /// A snapshot of a model, to look ahead with.
    pub(crate) fn ahead(&self, view: &View) -> Result<Option<Ahead>, NotKept> {
        let Some(lane) = self.lane() else { return Ok(None) };
        let now = cawl_host::now();
        let (model, mode) = (view.model.as_deref(), view.mode);
        let scene = lane.analysis.scene(model, mode, now)?;
        let model = lane.analysis.viewed(model, mode)?.0;
        // Less than a page per second is the rest of a fading average.
        let rate = self.dirtying_rate(now) + self.untraced_rate();
        let rate = if rate < self.profile.kernel.page.as_f64() { 0.0 } else { rate };
        Ok(Some(Ahead { scene, model, rate: Rate::per_second(rate) }))
    }

    /// The configured and the learned profile, and each constant.
    pub(crate) fn profiles(&self) -> (HostProfile, HostProfile, Vec<Constant>) {
        let configured = self.options.profile.clone();
        let learned = self.lane().map(|lane| lane.analysis.learned());
        let (learned, constants) = learned.unwrap_or_else(|| (configured.clone(), Vec::new()));
        (configured, learned, constants)
    }

    pub(crate) fn processes(&self, listing: Listing) -> Processes {
        let totals = &self.tables().totals;
        let (processes, more) = totals.processes(listing.sort, page(listing), cawl_host::now());
        Processes { schema: PROTOCOL, omitted: more, more, processes }
    }

    pub(crate) fn files(&self, listing: Listing) -> Files {
        let totals = &self.tables().totals;
        let (files, more) = totals.files(listing.sort, page(listing), cawl_host::now());
        Files { schema: PROTOCOL, omitted: more + totals.files_omitted, more, files }
    }

    pub(crate) fn devices(&self) -> Devices {
        let devices = self.tables().totals.devices(&self.observed.devices, cawl_host::now());
        Devices { schema: PROTOCOL, devices }
    }

    pub(crate) fn history(&self, span: &HistorySpan) -> History {
        self.tables().history.answer(span, &Clocks::now())
    }

    /// Some of the latest calls after number `seen` (None: none yet), and the number to ask with next time.
    pub(crate) fn calls(&self, seen: Option<u64>) -> (Calls, u64) {
        self.tables().call_sample.answer(seen, &Clocks::now())
    }
}

/// The range of the rows asked for.
fn page(listing: Listing) -> Range<usize> {
    let rows = listing.limit.unwrap_or(ROWS).min(MAX_ROWS);
    listing.skip..listing.skip.saturating_add(rows)
}
