//! The current measurement and the expected time, on a terminal only.

use std::borrow::Cow;

use cawl_core::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on the terminal, removed when dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Progress of work that takes about `expected`.
    pub fn new(expected: Nanos) -> Progress {
        let milliseconds = (expected.as_seconds() * 1e3) as u64;
        let bar = ProgressBar::with_draw_target(Some(milliseconds), ProgressDrawTarget::stderr_with_hz(10));
        let style =
            ProgressStyle::with_template("[{bar:20}] {msg}, {left} s left").expect("a valid template");
        let style =
            style.progress_chars("##-").with_key("left", |state: &_, out: &mut dyn std::fmt::Write| {
                let _ = write!(out, "{}", left(state));
            });
        Progress(bar.with_style(style))
    }

    /// Work of one part.
    pub fn of(what: &'static str, expected: Nanos) -> Progress {
        let mut progress = Progress::new(expected);
        progress.begin(what);
        progress
    }

    /// Shows what the next part of the work is.
    pub fn begin(&mut self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
        self.show();
    }

    /// Shows the progress, at most ten times a second.
    pub fn show(&mut self) {
        if !self.0.is_hidden() {
            let elapsed = self.0.elapsed().as_millis() as u64;
            self.0.set_position(elapsed.min(self.0.length().unwrap_or(0)));
        }
    }
}

/// Whole seconds of the expected time that are left.
fn left(state: &indicatif::ProgressState) -> u64 {
    state.len().unwrap_or(0).saturating_sub(state.pos()).div_ceil(1000)
}
