//! Tasks that cost little to build.

use std::pin::Pin;

use tokio::task::JoinHandle;

/// A task's future as every task has it: tokio's 5000 lines of a task are compiled once for each type of future.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts a task.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let work: Boxed<T> = Box::pin(work);
    tokio::spawn(work)
}
