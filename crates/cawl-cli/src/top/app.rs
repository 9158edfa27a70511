//! The state of the screen, changed by keys and pushes.

use std::collections::VecDeque;

use cawl_client::protocol::{CauseSeconds, Files, History, HistoryPoint, Processes, Push, Sort, Status};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::render::rows::{Row, SORTS, compare};
use crate::render::watch::{InCalls, time_of_day};

/// Points kept: more than a terminal has columns.
pub const KEPT: usize = 600;

#[derive(Clone, Default)]
pub struct Snapshot {
    pub status: Status,
    /// The programs and the files, sorted.
    pub tables: [Vec<Row>; 2],
    /// Rows omitted by the daemon.
    pub omitted: [u64; 2],
    /// The graph's points, oldest first.
    pub history: VecDeque<HistoryPoint>,
    /// Seconds in calls, and seconds lost, both per second.
    pub in_calls: Option<(f64, f64)>,
    /// The latest seconds: their number, and the time of calls in them by cause.
    pub causes: Option<(f64, CauseSeconds)>,
    /// Seconds per second of the kernel's pauses over the whole machine; None if unknown.
    pub paused: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Programs,
    Files,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    #[default]
    Commands,
    Filter,
    /// Any key leaves the help.
    Help,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    None,
    /// Ask the daemon for tables in this order, and draw.
    Subscribe(Sort),
    Redraw,
    Suspend,
    /// Quit, or end by this signal.
    End(Option<i32>),
}

#[derive(Default)]
pub struct App {
    live: Snapshot,
    /// The data shown while paused.
    frozen: Option<Box<Snapshot>>,
    pub tab: Tab,
    pub sort: Sort,
    /// True if the graph ends at its highest level instead of the hard limit.
    pub zoom: bool,
    /// Text that names must contain.
    pub filter: String,
    pub keys: Keys,
    /// First row shown.
    pub first: usize,
    /// Why the daemon cannot be reached.
    pub trouble: Option<String>,
    /// A message about the connection.
    pub note: Option<String>,
    totals: InCalls,
    /// Time by cause at the latest pushes.
    causes: VecDeque<(f64, CauseSeconds)>,
    /// Time of a reading of the kernel's pauses, and their sum.
    pauses: Option<(f64, f64)>,
}

/// The daemon reads the kernel's pauses once a second, so a rate over less time means nothing.
const PAUSES_EVERY: f64 = 2.0;

/// The causes are those of so many seconds: a call is told when it ends, and may last that long.
const CAUSES_OVER: f64 = 3.0;

impl App {
    pub fn new(status: Status, sort: Sort) -> App {
        let totals = InCalls::of(&status);
        App { live: Snapshot { status, ..Snapshot::default() }, sort, totals, ..App::default() }
    }

    pub fn shown(&self) -> &Snapshot {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    pub fn is_paused(&self) -> bool {
        self.frozen.is_some()
    }

    /// The rows of the current table that pass the filter.
    pub fn rows(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        let passes = |row: &&Row| row.name.to_lowercase().contains(&wanted) || row.of == wanted;
        self.shown().tables[self.tab as usize].iter().filter(passes).collect()
    }

    pub fn remember(&mut self, history: History) {
        self.live.history = history.points.into();
        self.forget();
    }

    fn forget(&mut self) {
        let history = &mut self.live.history;
        history.drain(..history.len().saturating_sub(KEPT));
    }

    pub fn push(&mut self, push: Push) -> Effect {
        if self.trouble.take().is_some() {
            self.note = Some("connected again".to_owned());
        }
        match push {
            Push::Status(status) => self.status(*status),
            Push::Processes(Processes { processes, omitted, .. }) => {
                self.table(Tab::Programs, processes.iter().map(Row::from).collect(), omitted);
            }
            Push::Files(Files { files, omitted, .. }) => {
                self.table(Tab::Files, files.iter().map(Row::from).collect(), omitted);
            }
            Push::Devices(_) | Push::Calls(_) => {}
        }
        Effect::None
    }

    fn status(&mut self, status: Status) {
        if let Some(note) = self.note.as_mut().filter(|note| !note.contains(" at ")) {
            *note = format!("{note} at {} UTC", time_of_day(status.time_s));
        }
        let totals = InCalls::of(&status);
        self.live.in_calls = totals.since(&self.totals);
        self.totals = totals;
        self.causes(&status);
        self.pauses(&status);
        self.live.history.push_back(HistoryPoint {
            modelled_dirty_bytes: status.modelled_dirty_bytes,
            sampled_dirty_bytes: status.sampled_dirty_bytes,
            state: status.state,
            ..HistoryPoint::default()
        });
        self.live.status = status;
        self.forget();
    }

    fn causes(&mut self, status: &Status) {
        let now = (status.uptime_s, status.causes_s);
        if self.causes.back().is_some_and(|(at, _)| *at > now.0) {
            // Another daemon.
            self.causes.clear();
        }
        self.causes.push_back(now);
        while self.causes.get(1).is_some_and(|(at, _)| now.0 - at >= CAUSES_OVER) {
            self.causes.pop_front();
        }
        let first = self.causes[0];
        let span = now.0 - first.0;
        self.live.causes = (span > 0.0).then(|| (span, now.1.since(&first.1)));
    }

    fn pauses(&mut self, status: &Status) {
        let now = status.sampler.paused_s.map(|paused| (status.uptime_s, paused));
        match (self.pauses, now) {
            (Some((before, paused)), Some((at, more))) if at >= before && more >= paused => {
                let span = at - before;
                if span >= PAUSES_EVERY {
                    self.live.paused = Some((more - paused) / span);
                    self.pauses = now;
                }
            }
            // The first reading, one of a restarted daemon, or none.
            _ => (self.live.paused, self.pauses) = (None, now),
        }
    }

    fn table(&mut self, tab: Tab, mut rows: Vec<Row>, omitted: u64) {
        rows.sort_by(|a, b| compare(self.sort, a, b));
        self.live.omitted[tab as usize] = omitted;
        self.live.tables[tab as usize] = rows;
    }

    pub fn lost(&mut self, why: String) -> Effect {
        self.note = None;
        self.trouble = Some(why);
        Effect::None
    }

    pub fn key(&mut self, key: KeyEvent) -> Effect {
        self.note = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::End(None),
                KeyCode::Char('l') => Effect::Redraw,
                KeyCode::Char('z') => Effect::Suspend,
                _ => Effect::None,
            };
        }
        match self.keys {
            Keys::Commands => self.command(key.code),
            Keys::Filter => self.edit(key.code),
            Keys::Help => {
                self.keys = Keys::Commands;
                Effect::None
            }
        }
    }

    fn command(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Effect::End(None),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.tab = if self.tab == Tab::Programs { Tab::Files } else { Tab::Programs };
                self.first = 0;
            }
            KeyCode::Char('s') => return self.sort_by(1),
            KeyCode::Char('S') => return self.sort_by(SORTS.len() - 1),
            KeyCode::Char('z') => self.zoom = !self.zoom,
            KeyCode::Char('/') => self.keys = Keys::Filter,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.keys = Keys::Help,
            KeyCode::Char('p' | ' ') => {
                let is_running = self.frozen.is_none();
                self.frozen = is_running.then(|| Box::new(self.live.clone()));
            }
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home | KeyCode::Char('g') => self.first = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll(isize::MAX),
            _ => {}
        }
        Effect::None
    }

    /// Sorts by the key `further` places on.
    fn sort_by(&mut self, further: usize) -> Effect {
        let at = SORTS.iter().position(|(sort, _)| *sort == self.sort).unwrap_or(0);
        self.sort = SORTS[(at + further) % SORTS.len()].0;
        self.first = 0;
        // Known rows are sorted at once; the daemon may send others.
        for snapshot in [Some(&mut self.live), self.frozen.as_deref_mut()].into_iter().flatten() {
            for rows in &mut snapshot.tables {
                rows.sort_by(|a, b| compare(self.sort, a, b));
            }
        }
        Effect::Subscribe(self.sort)
    }

    fn scroll(&mut self, by: isize) {
        let last = self.rows().len().saturating_sub(1);
        self.first = self.first.min(last).saturating_add_signed(by).min(last);
    }

    fn edit(&mut self, key: KeyCode) -> Effect {
        match key {
            KeyCode::Enter | KeyCode::Tab => self.keys = Keys::Commands,
            KeyCode::Esc => {
                self.filter.clear();
                self.keys = Keys::Commands;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if !c.is_control() && self.filter.chars().count() < 40 => self.filter.push(c),
            _ => {}
        }
        self.first = 0;
        Effect::None
    }
}
