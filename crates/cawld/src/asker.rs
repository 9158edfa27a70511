//! Asks the engine on behalf of sockets and HTTP: sends it a small look-up, and does the rest of the work here,
//! on the asker's own task.

use std::collections::BTreeMap;
use std::sync::Arc;

use cawl_core::HostProfile;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::clock::Clocks;
use crate::engine::{Engine, Question};
use crate::host;
use crate::protocol::{
    Calls, Devices, Files, Forecast, History, HistorySpan, Listing, PROTOCOL, Plan, Predicted, Processes,
    ProfileAnswer, Status, View,
};

/// Questions that may wait for the engine; whoever comes then waits to ask.
pub const QUESTIONS: usize = 64;

/// Subscribers at a time.
const SUBSCRIBERS: usize = 32;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The engine is gone.
    #[error("the daemon is ending")]
    Ending,
    /// It cannot be answered; what to do instead.
    #[error("{0}")]
    Refused(String),
    /// Not now.
    #[error("there are too many subscribers; try again when one has hung up")]
    Busy,
}

/// What this node is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name; the host's, unless told otherwise.
    pub name: String,
    /// Labels on everything it answers.
    pub labels: BTreeMap<String, String>,
}

/// Asks the engine.
#[derive(Clone)]
pub struct Asker {
    questions: mpsc::Sender<Question>,
    node: Arc<Node>,
    pub(crate) subscribers: Arc<Semaphore>,
}

impl Asker {
    /// Of the engine at the other end.
    pub fn new(questions: mpsc::Sender<Question>, node: Node) -> Asker {
        Asker { questions, node: Arc::new(node), subscribers: Arc::new(Semaphore::new(SUBSCRIBERS)) }
    }

    /// What this node is called.
    pub fn node(&self) -> &Node {
        &self.node
    }

    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        // Who asked may have hung up by then.
        let question: Question = Box::new(move |engine| drop(reply.send(look(engine))));
        self.questions.send(question).await.map_err(|_| AskError::Ending)?;
        answer.await.map_err(|_| AskError::Ending)
    }

    /// Runs that begin from now on, and that name no profile, take this one.
    pub async fn set_profile(&self, profile: HostProfile) -> Result<(), AskError> {
        self.look(move |engine| engine.profile = profile).await
    }

    /// True if the engine works: it answered.
    pub async fn is_alive(&self) -> bool {
        self.look(|_| ()).await.is_ok()
    }

    /// How things stand.
    pub async fn status(&self, view: View) -> Result<Status, AskError> {
        // The engine's latest sample may be old while nobody writes.
        let sample = host::sample();
        let status = self.look(move |engine| engine.status(&view, sample)).await?;
        let mut status = status.map_err(AskError::Refused)?;
        status.node.clone_from(&self.node.name);
        status.labels.clone_from(&self.node.labels);
        status.time_s = Clocks::now().unix();
        Ok(status)
    }

    /// The programs.
    pub async fn processes(&self, listing: Listing) -> Result<Processes, AskError> {
        self.look(move |engine| engine.processes(listing)).await
    }

    /// The files.
    pub async fn files(&self, listing: Listing) -> Result<Files, AskError> {
        self.look(move |engine| engine.files(listing)).await
    }

    /// The devices.
    pub async fn devices(&self) -> Result<Devices, AskError> {
        let devices = self.look(|engine| engine.devices()).await?;
        Ok(Devices { schema: PROTOCOL, devices })
    }

    /// The past.
    pub async fn history(&self, span: HistorySpan) -> Result<History, AskError> {
        self.look(move |engine| engine.history(&span)).await
    }

    /// Some of the calls since an earlier answer, and the number to ask with next time; None: the next ones.
    pub async fn calls(&self, seen: Option<u64>) -> Result<(Calls, u64), AskError> {
        self.look(move |engine| engine.calls(seen)).await
    }

    /// What happens next at the present rate.
    pub async fn forecast(&self, _view: View) -> Result<Forecast, AskError> {
        Err(AskError::Refused("not answered yet".to_owned()))
    }

    /// What a job of writing would cost.
    pub async fn predict(&self, _plan: Plan) -> Result<Predicted, AskError> {
        Err(AskError::Refused("not answered yet".to_owned()))
    }

    /// The constants in use, and what was learned.
    pub async fn profile(&self) -> Result<ProfileAnswer, AskError> {
        Err(AskError::Refused("not answered yet".to_owned()))
    }
}
