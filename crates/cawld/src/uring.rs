//! Detects programs that write through io_uring, which is not traced.

use std::time::Duration;

use cawl_host::inspect;

use crate::aside::{Aside, Pending};
use crate::engine::Input;
use crate::guests::Line;

/// Time limit of a check. The end of a process waits for one, and that of a run at most `SETTLE`.
const LIMIT: Duration = Duration::from_secs(3);

/// Most descriptors that are checked, and those that are checked at once: a thread costs more.
const MAX: usize = 1024;
const FEW: usize = 64;

/// Checks at times whether a process uses io_uring, and notes it once.
pub struct Uring<'a> {
    run: u64,
    pid: u32,
    program: String,
    aside: &'a Aside,
    looks: u32,
    pending: Option<Pending<bool>>,
    /// True after the note was sent.
    told: bool,
}

impl<'a> Uring<'a> {
    /// Of this process.
    pub fn new(run: u64, pid: u32, program: String, aside: &'a Aside) -> Uring<'a> {
        Uring { run, pid, program, aside, looks: 0, pending: None, told: false }
    }

    /// Begins a check or takes a finished one. One call in sixteen begins one, since many open descriptors
    /// make it slow.
    pub async fn sample(&mut self, engine: &Line) -> anyhow::Result<()> {
        if let Some(found) = self.pending.as_mut().and_then(Pending::ready) {
            self.pending = None;
            self.answer(found.ok(), engine).await?;
        }
        self.looks += 1;
        if self.looks % 16 == 1 { self.begin(engine).await } else { Ok(()) }
    }

    /// A last check at the end of the process.
    pub async fn look_once_more(&mut self, engine: &Line) -> anyhow::Result<()> {
        self.finish(engine).await?;
        self.begin(engine).await?;
        self.finish(engine).await
    }

    /// Waits for the running check.
    pub async fn finish(&mut self, engine: &Line) -> anyhow::Result<()> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        let found = pending.done().await;
        self.answer(found.ok(), engine).await
    }

    async fn begin(&mut self, engine: &Line) -> anyhow::Result<()> {
        let pid = self.pid;
        if self.told || self.pending.is_some() {
            return Ok(());
        }
        if let Some(found) = inspect::uses_io_uring(pid, FEW) {
            return self.answer(Some(found), engine).await;
        }
        self.pending = self.aside.begin(LIMIT, move || inspect::uses_io_uring(pid, MAX) == Some(true));
        Ok(())
    }

    async fn answer(&mut self, found: Option<bool>, engine: &Line) -> anyhow::Result<()> {
        match found {
            Some(true) => self.found(engine).await,
            Some(false) => Ok(()),
            None => {
                self.tell("may use io_uring: its descriptors could not be looked at in time", engine).await
            }
        }
    }

    /// Notes that it uses io_uring.
    pub async fn found(&mut self, engine: &Line) -> anyhow::Result<()> {
        self.tell(cawl_core::USES_IO_URING, engine).await
    }

    async fn tell(&mut self, about: &str, engine: &Line) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.told, true) {
            let note = format!("{} (pid {}) {about}", self.program, self.pid);
            engine.send(Input::Note { run: self.run, note }).await?;
        }
        Ok(())
    }
}
