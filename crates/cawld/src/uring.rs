//! Whether a program writes through io_uring, where nobody sees it.

use tokio::sync::mpsc;

use crate::engine::Input;
use crate::inspect;

/// Looks, now and then, whether a process uses io_uring, and says so once.
pub struct Uring {
    run: u64,
    pid: u32,
    program: String,
    told: bool,
    looks: u32,
}

impl Uring {
    /// Of this process.
    pub fn new(run: u64, pid: u32, program: String) -> Uring {
        Uring { run, pid, program, told: false, looks: 0 }
    }

    /// One look in sixteen: many open descriptors make it slow.
    pub async fn look(&mut self, engine: &mpsc::Sender<Input>) -> anyhow::Result<()> {
        self.looks += 1;
        if self.looks % 16 == 1 { self.look_once_more(engine).await } else { Ok(()) }
    }

    /// A look at the end, whatever the latest one found.
    pub async fn look_once_more(&mut self, engine: &mpsc::Sender<Input>) -> anyhow::Result<()> {
        if !self.told && inspect::uses_io_uring(self.pid) {
            self.found(engine).await?;
        }
        Ok(())
    }

    /// It does: says so.
    pub async fn found(&mut self, engine: &mpsc::Sender<Input>) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.told, true) {
            let note = format!(
                "{} (pid {}) uses io_uring: what it writes that way was not seen",
                self.program, self.pid
            );
            engine.send(Input::Note { run: self.run, note }).await?;
        }
        Ok(())
    }
}
