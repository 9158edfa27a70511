//! Progress of reading a long input: one line, on a terminal only.

use std::io::{IsTerminal, Read, Result};
use std::time::{Duration, Instant};

use super::draw;

/// Shows progress through an input of known size, after the first second.
pub struct Progress {
    what: &'static str,
    size: u64,
    done: u64,
    shown: Instant,
    terminal: bool,
    drawn: bool,
}

impl Progress {
    /// Progress of `what` over `size` bytes.
    pub fn new(what: &'static str, size: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal() && size > 0;
        Progress { what, size, done: 0, shown: Instant::now(), terminal, drawn: false }
    }

    /// The same input; reading it shows progress.
    pub fn watch<R: Read>(self, input: R) -> Watched<R> {
        Watched { input, progress: self }
    }

    fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if self.terminal && self.shown.elapsed() >= Duration::from_secs(1) {
            self.shown = Instant::now();
            self.drawn = true;
            let share = self.done as f64 / self.size as f64 * 100.0;
            draw(&format!("\r{} {share:3.0} %", self.what));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            draw("\r\x1b[K");
        }
    }
}

/// An input with progress.
pub struct Watched<R> {
    input: R,
    progress: Progress,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.input.read(buffer)?;
        self.progress.add(read);
        Ok(read)
    }
}
