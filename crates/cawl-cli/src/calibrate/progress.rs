//! The current measurement and the expected time, on a terminal only.

use std::borrow::Cow;
use std::io::IsTerminal;

use cawl_core::{Nanos, Time};

use crate::render::draw;

/// A line on the terminal.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    started: Time,
    expected: Nanos,
    what: Cow<'static, str>,
    shown: Time,
}

impl Progress {
    /// Progress of work that takes about `expected`.
    pub fn new(expected: Nanos) -> Progress {
        let started = cawl_host::now();
        let terminal = std::io::stderr().is_terminal();
        Progress { terminal, started, expected, what: Cow::Borrowed(""), shown: Time::default() }
    }

    /// Begins the next measurement.
    pub fn begin(&mut self, what: impl Into<Cow<'static, str>>) {
        self.what = what.into();
        self.shown = Time::default();
        self.show();
    }

    /// Shows the progress, at most ten times a second.
    pub fn show(&mut self) {
        let now = cawl_host::now();
        if !self.terminal || now.since(self.shown) < Nanos::millis(100.0) {
            return;
        }
        self.shown = now;
        let done = (now.since(self.started) / self.expected).clamp(0.0, 1.0);
        let left = self.expected.saturating_sub(now.since(self.started));
        let filled = (done * 20.0) as usize;
        draw(&format!(
            "\r\x1b[K[{}{}] {}, {:.0} s left",
            "#".repeat(filled),
            "-".repeat(20 - filled),
            self.what,
            left.as_seconds().ceil()
        ));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            draw("\r\x1b[K");
        }
    }
}
