//! Runs: what is wanted of one, and what is made before the engine is asked for it.

use std::path::Path;

use cawl_client::protocol::RunSpec;
use cawl_host::trace::{TraceFile, WhenFull};
use tokio::sync::{mpsc, oneshot};

use super::Input;

/// A run that is to begin.
pub struct BeginRun {
    /// What is wanted.
    pub spec: RunSpec,
    /// The file that is wanted, where one is: making it may take as long as its disk likes.
    pub trace: Option<TraceFile>,
    /// The process that will ask for the report, where known.
    pub owner: Option<u32>,
    /// Takes its number, or why there is none.
    pub reply: oneshot::Sender<Result<u64, String>>,
}

/// Has the engine begin such a run: its number.
pub async fn begin_run(
    spec: RunSpec,
    engine: &mpsc::Sender<Input>,
    owner: Option<u32>,
) -> anyhow::Result<u64> {
    let path = spec.trace.clone();
    let create = move || path.as_deref().map(create_trace).transpose();
    let trace = tokio::task::spawn_blocking(create).await?.map_err(anyhow::Error::msg)?;
    let (reply, answer) = oneshot::channel();
    engine.send(Input::BeginRun(BeginRun { spec, trace, owner, reply })).await?;
    answer.await?.map_err(anyhow::Error::msg)
}

/// A lane's trace; the error names the file.
pub fn create_trace(path: &Path) -> Result<TraceFile, String> {
    TraceFile::create(path, WhenFull::LeaveOut).map_err(|error| {
        format!(
            "cannot write the trace {}: {error}. The daemon writes it: if its unit keeps it from there \
             (ProtectSystem=, ProtectHome=), name a file in /var/lib/cawl, or allow the folder by \
             ReadWritePaths= in a drop-in, or run without --socket",
            path.display()
        )
    })
}
