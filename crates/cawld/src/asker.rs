//! Asks the engine for sockets and HTTP: sends it a small look-up, and does the rest of the work on the
//! asker's own task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cawl_client::protocol::{
    AdviceAnswer, Advising, Forecast, PROTOCOL, Plan, Predicted, ProfileAnswer, Request, RunEnd, Running,
    Source, Status, View,
};
use cawl_core::{Nanos, Rate, Report};
use cawl_host::clock::Clocks;
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::engine::answers::Ahead;
use crate::engine::{Engine, Question};
use crate::{lock, task};

/// Questions that may wait for the engine; further ones wait to be asked.
pub const QUESTIONS: usize = 64;

/// Models that work on questions at a time, and the time after which who asked gets no answer.
const AHEAD: usize = 2;
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Subscribers at a time.
const SUBSCRIBERS: usize = 32;

/// A status has a forecast that is made again after [`FORECAST_EVERY`], and dropped after
/// [`FORECAST_HOLDS`]. Where there is none, it waits this long for one: others may ask for many.
const FORECAST_WITHIN: Duration = Duration::from_millis(50);
const FORECAST_EVERY: Duration = Duration::from_millis(250);
const FORECAST_HOLDS: Duration = Duration::from_secs(2);

/// Seconds for which calls are kept for advice.
const ADVISED: std::ops::RangeInclusive<f64> = 0.1..=60.0;
/// What happens is analysed so much later: calls are read every 50 ms, and held for 150.
pub const LATE: Duration = Duration::from_millis(250);

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The engine is gone.
    #[error("the daemon is ending")]
    Ending,
    /// It cannot be answered; what to do instead.
    #[error("{0}")]
    Refused(String),
    /// The engine or a model had no answer in time.
    #[error("the daemon is busy and did not answer within {} s; ask again", ANSWERED_WITHIN.as_secs())]
    Late,
    /// Another one asked for advice, which has to be given first.
    #[error("advice is being looked for already; ask again in some seconds")]
    Taken,
    /// Too many subscribers.
    #[error("there are too many subscribers; try again when one has hung up")]
    Busy,
}

/// The node's name and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name; by default the host's.
    pub name: String,
    /// Labels in all its answers.
    pub labels: BTreeMap<String, String>,
}

/// Asks the engine.
#[derive(Clone)]
pub struct Asker {
    questions: mpsc::Sender<Question>,
    node: Arc<Node>,
    pub(crate) subscribers: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
    recent: Arc<Mutex<Recent>>,
    /// Notified when a forecast has been made.
    made: Arc<Notify>,
}

/// The latest forecast of a status.
#[derive(Default)]
struct Recent {
    is_being_made: bool,
    made: Option<Instant>,
    forecast: Option<Forecast>,
}

impl Asker {
    /// Of the engine at the other end.
    pub fn new(questions: mpsc::Sender<Question>, node: Node) -> Asker {
        Asker {
            questions,
            node: Arc::new(node),
            subscribers: Arc::new(Semaphore::new(SUBSCRIBERS)),
            ahead: Arc::new(Semaphore::new(AHEAD)),
            recent: Arc::default(),
            made: Arc::default(),
        }
    }

    /// What a look-up in the engine finds: one that needs no further work.
    pub(crate) async fn look_up<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let (reply, answer) = oneshot::channel();
        // The asker may have disconnected.
        let question: Question = Box::new(move |engine| drop(reply.send(look(engine))));
        let answered = async {
            self.questions.send(question).await.map_err(|_| AskError::Ending)?;
            answer.await.map_err(|_| AskError::Ending)
        };
        timeout(ANSWERED_WITHIN, answered).await.map_err(|_| AskError::Late)?
    }

    /// True if the engine works: it answered.
    pub async fn is_alive(&self) -> bool {
        self.look_up(|_| ()).await.is_ok()
    }

    /// The answer, as JSON, to a question that changes nothing.
    pub async fn answer(&self, question: Request) -> Result<String, AskError> {
        Ok(match question {
            Request::Status(view) => json(&self.status(view).await?),
            Request::Processes(listing) => {
                json(&self.look_up(move |engine| engine.processes(listing)).await?)
            }
            Request::Files(listing) => json(&self.look_up(move |engine| engine.files(listing)).await?),
            Request::Devices => json(&self.look_up(|engine| engine.devices()).await?),
            Request::History(span) => json(&self.look_up(move |engine| engine.history(&span)).await?),
            Request::Forecast(view) => json(&self.forecast(view).await?),
            Request::Predict(plan) => json(&self.predict(plan).await?),
            Request::Profile => json(&self.profile().await?),
            Request::Advise(Advising { for_s }) => json(&self.advise(for_s).await?),
            _ => return Err(AskError::Refused("this connection cannot be asked that".to_owned())),
        })
    }

    /// The status.
    pub async fn status(&self, view: View) -> Result<Status, AskError> {
        // The engine's latest sample may be old while no program writes.
        let sample = cawl_host::sample();
        let status = self.look_up(move |engine| engine.status(&view, sample)).await?;
        let mut status = status.map_err(|error| AskError::Refused(error.to_string()))?;
        status.forecast = self.recent_forecast().await.map(|forecast| as_of_now(forecast, &status));
        status.node.clone_from(&self.node.name);
        status.labels.clone_from(&self.node.labels);
        status.time_s = Clocks::now().unix();
        Ok(status)
    }

    /// The forecast at the present rate. By the default view it is at most 2 s old.
    async fn forecast(&self, view: View) -> Result<Forecast, AskError> {
        if view == View::default()
            && let Some(recent) = self.recent_forecast().await
        {
            return Ok(recent);
        }
        self.look_ahead(view).await
    }

    async fn look_ahead(&self, view: View) -> Result<Forecast, AskError> {
        let foresee = |Ahead { scene, rate, .. }: Ahead| cawl_core::forecast(scene, rate);
        Ok(foreseen(self.ahead(view, foresee).await?))
    }

    async fn predict(&self, plan: Plan) -> Result<Predicted, AskError> {
        // Refused before the engine is asked.
        plan.job(Rate::MIN).map_err(AskError::Refused)?;
        let view = plan.view.clone();
        let cost = move |Ahead { scene, model, rate }: Ahead| {
            let job = plan.job(rate).map_err(AskError::Refused)?;
            let cost = cawl_core::predict(scene, &job);
            let cost = cost.map_err(|error| AskError::Refused(error.to_string()))?;
            Ok(Predicted::of(model, &cost, Source::Daemon))
        };
        self.ahead(view, cost).await?
    }

    /// The configured and the learned constants.
    async fn profile(&self) -> Result<ProfileAnswer, AskError> {
        let (configured, learned, constants) = self.look_up(|engine| engine.profiles()).await?;
        let (configured, learned) = (configured.to_toml(), learned.to_toml());
        Ok(ProfileAnswer { schema: PROTOCOL, configured, learned, constants })
    }

    /// What the calls of the next seconds suggest.
    async fn advise(&self, for_s: f64) -> Result<AdviceAnswer, AskError> {
        if !ADVISED.contains(&for_s) {
            return Err(AskError::Refused("advice takes 0.1 to 60 seconds".to_owned()));
        }
        let begun = self.look_up(Engine::begin_advice).await?;
        if !begun.map_err(|why| AskError::Refused(why.to_owned()))? {
            return Err(AskError::Taken);
        }
        let asker = self.clone();
        // It ends in time even if the one who asked hangs up.
        let kept = task::spawn(async move {
            tokio::time::sleep(Duration::from_secs_f64(for_s) + LATE).await;
            asker.look_up(Engine::end_advice).await
        });
        let kept = kept.await.map_err(|_| AskError::Ending)??.ok_or(AskError::Ending)?;
        let work = move || {
            let (calls, observed) = kept.observed();
            let advice = kept.advised();
            AdviceAnswer { schema: PROTOCOL, for_s, calls, observed_s: observed.as_seconds(), advice }
        };
        let turn = Arc::clone(&self.ahead).acquire_owned().await.map_err(|_| AskError::Ending)?;
        let answer = spawn_blocking(work).await.map_err(|_| AskError::Ending);
        drop(turn);
        answer
    }

    /// The processes of a run that are still running.
    pub async fn running(&self, run: u64) -> Result<Running, AskError> {
        let mut processes = self.look_up(move |engine| engine.processes_of(run)).await?;
        processes.retain(|process| cawl_host::is_running(process.pid));
        Ok(Running { schema: PROTOCOL, processes })
    }

    /// Ends a run without waiting; None if there is none, or it was ended on another connection,
    /// where the report goes then.
    pub async fn end_run_now(&self, run: u64, end: RunEnd) -> Result<Option<Report>, AskError> {
        let (reply, answer) = oneshot::channel();
        self.look_up(move |engine| engine.end_run(run, end, true, reply)).await?;
        answer.await.map_err(|_| AskError::Ending)
    }

    /// Takes a snapshot of a model and does work of milliseconds with it, on a thread of its own: a model
    /// that does not come to an end keeps this answer back and no other.
    async fn ahead<T: Send + 'static>(
        &self,
        view: View,
        work: impl FnOnce(Ahead) -> T + Send + 'static,
    ) -> Result<T, AskError> {
        let done = async {
            let turn = Arc::clone(&self.ahead).acquire_owned().await.map_err(|_| AskError::Ending)?;
            let ahead = self.look_up(move |engine| engine.ahead(&view)).await?;
            let ahead = ahead.map_err(|error| AskError::Refused(error.to_string()))?;
            let ahead = ahead.ok_or_else(|| AskError::Refused("no model is running".to_owned()))?;
            let work = move || {
                let _turn = turn;
                work(ahead)
            };
            spawn_blocking(work).await.map_err(|_| AskError::Ending)
        };
        timeout(ANSWERED_WITHIN, done).await.map_err(|_| AskError::Late)?
    }

    /// The forecast for a status: a recent one at once, while the next is made, else what is made in a
    /// moment.
    async fn recent_forecast(&self) -> Option<Forecast> {
        let made = self.made.notified();
        let (known, is_being_made) = {
            let mut recent = lock(&self.recent);
            let age = recent.made.map(|made| made.elapsed());
            if !recent.is_being_made && age.is_none_or(|age| age >= FORECAST_EVERY) {
                recent.is_being_made = true;
                task::spawn(self.clone().make_forecast());
            }
            (recent.known(), recent.is_being_made)
        };
        if known.is_some() || !is_being_made {
            return known;
        }
        drop(timeout(FORECAST_WITHIN, made).await);
        lock(&self.recent).known()
    }

    async fn make_forecast(self) {
        let forecast = self.look_ahead(View::default()).await.ok();
        *lock(&self.recent) = Recent { made: Some(Instant::now()), forecast, is_being_made: false };
        self.made.notify_waiters();
    }
}

impl Recent {
    fn known(&self) -> Option<Forecast> {
        self.forecast.filter(|_| self.made.is_some_and(|made| made.elapsed() < FORECAST_HOLDS))
    }
}

pub fn json(answer: &impl Serialize) -> String {
    // Answers consist of numbers, strings and lists, so this cannot fail.
    serde_json::to_string(answer).unwrap_or_default()
}

/// A model's forecast as an answer.
fn foreseen(foreseen: cawl_core::Forecast) -> Forecast {
    let seconds = |span: Option<Nanos>| span.map(Nanos::as_seconds);
    Forecast {
        schema: PROTOCOL,
        // The minimum rate stands for zero.
        rate: if foreseen.rate == Rate::MIN { 0.0 } else { foreseen.rate.get() },
        background_s: seconds(foreseen.background),
        throttle_s: seconds(foreseen.throttle),
        clean_s: seconds(foreseen.clean),
    }
}

/// A forecast may be 2 s old: limits crossed since then become 0.
fn as_of_now(mut forecast: Forecast, status: &Status) -> Forecast {
    if status.modelled_dirty_bytes > status.background_bytes {
        forecast.background_s = Some(0.0);
    }
    if status.modelled_dirty_bytes > status.freerun_bytes {
        forecast.throttle_s = Some(0.0);
    }
    forecast
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_since_a_forecast_is_not_told_to_come() {
        let at = |modelled_dirty_bytes| {
            let (background_bytes, freerun_bytes) = (100, 150);
            let status =
                Status { modelled_dirty_bytes, background_bytes, freerun_bytes, ..Status::default() };
            let before = Forecast { background_s: Some(2.0), ..Forecast::default() };
            let told = as_of_now(before, &status);
            (told.background_s, told.throttle_s)
        };
        assert_eq!(at(100), (Some(2.0), None));
        assert_eq!(at(101), (Some(0.0), None));
        assert_eq!(at(151), (Some(0.0), Some(0.0)));
    }
}
