//! Routes from paths to answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cawl_client::protocol::{Failure, Plan, Request as Question, Sort, Subscription, Topic, View};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};

use super::guard::{Guard, Refusal};
use crate::asker::{AskError, Asker, json};
use crate::{metrics, subscribe, task, web};

/// Pushes that a subscriber may be behind, in addition to its socket's buffer.
const BEHIND: usize = 8;

const JSON: &str = "application/json";

type Answer = Response<Either<Full<Bytes>, Events>>;

/// One connection's requests.
pub struct Caller {
    pub asker: Asker,
    pub guard: Arc<Guard>,
    /// The user at the other end, if it is on this machine.
    pub user: Option<u32>,
    /// Notified when a subscriber does not keep up: the connection is closed then.
    pub too_slow: Arc<Notify>,
}

/// Why there is no answer.
struct Fault(StatusCode, String);

impl From<Refusal> for Fault {
    fn from((status, error): Refusal) -> Fault {
        Fault(status, error.to_owned())
    }
}

impl From<AskError> for Fault {
    fn from(error: AskError) -> Fault {
        let status = match error {
            AskError::Refused(_) => StatusCode::BAD_REQUEST,
            AskError::Ending | AskError::Busy | AskError::Late | AskError::Taken => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        Fault(status, error.to_string())
    }
}

impl Caller {
    pub async fn answer(&self, request: Request<Incoming>) -> Answer {
        let mut answer = match self.route(&request).await {
            Ok(answer) => answer,
            Err(Fault(status, error)) => {
                let mut answer = full(JSON, json(&Failure { error }) + "\n");
                *answer.status_mut() = status;
                let remedy = match status {
                    StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
                    StatusCode::SERVICE_UNAVAILABLE => Some((header::RETRY_AFTER, "5")),
                    StatusCode::METHOD_NOT_ALLOWED => Some((header::ALLOW, "GET, HEAD")),
                    _ => None,
                };
                answer
                    .headers_mut()
                    .extend(remedy.map(|(name, value)| (name, HeaderValue::from_static(value))));
                answer
            }
        };
        secure(answer.headers_mut());
        answer
    }

    async fn route(&self, request: &Request<Incoming>) -> Result<Answer, Fault> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only reading is possible here: use GET").into());
        }
        let path = request.uri().path();
        // These have no data of this machine.
        match path {
            "/" => return Ok(full("text/html; charset=utf-8", web::PAGE)),
            "/app.css" => return Ok(full("text/css; charset=utf-8", web::STYLE)),
            "/app.js" => return Ok(full("text/javascript; charset=utf-8", web::SCRIPT)),
            "/healthz" if self.asker.is_alive().await => {
                return Ok(full("text/plain; charset=utf-8", "ok\n"));
            }
            "/healthz" => return Err(AskError::Ending.into()),
            _ => {}
        }
        let query = request.uri().query().unwrap_or("");
        self.guard.check(request.headers(), query, self.user)?;
        if path == "/metrics" {
            return self.metrics(request.headers()).await;
        }
        let name = path.strip_prefix("/api/v1/").unwrap_or("");
        let question = match name {
            "status" => Question::Status(parse(query)?),
            "processes" => Question::Processes(parse(query)?),
            "files" => Question::Files(parse(query)?),
            "devices" => Question::Devices,
            "history" => Question::History(parse(query)?),
            "forecast" => Question::Forecast(parse(query)?),
            "predict" => Question::Predict(Plan { view: parse(query)?, ..parse(query)? }),
            "profile" => Question::Profile,
            "advise" => Question::Advise(parse(query)?),
            "subscribe" => return self.subscribe(subscription(query)?),
            _ => {
                let error = format!("there is nothing at {path}; docs/reference/PROTOCOL.md has the paths");
                return Err(Fault(StatusCode::NOT_FOUND, error));
            }
        };
        Ok(full(JSON, self.asker.answer(question).await? + "\n"))
    }

    async fn metrics(&self, headers: &HeaderMap) -> Result<Answer, Fault> {
        let status = self.asker.status(View::default()).await?;
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let format = metrics::Format::accepted(accept);
        Ok(full(format.content_type(), metrics::text(&status, format)))
    }

    fn subscribe(&self, subscription: Subscription) -> Result<Answer, Fault> {
        let place = self.asker.subscribe()?;
        let (events, waiting) = mpsc::channel(BEHIND);
        let (asker, too_slow) = (self.asker.clone(), Arc::clone(&self.too_slow));
        task::spawn(async move {
            if let Err(error) = subscribe::feed(&asker, &subscription, event, events).await {
                tracing::info!("{error:#}");
                too_slow.notify_one();
            }
            drop(place);
        });
        let mut answer = Response::new(Either::Right(Events(waiting)));
        let kind = HeaderValue::from_static("text/event-stream");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(answer)
    }
}

/// A push as a server-sent event, whose name is not quoted.
fn event(topic: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {data}\n\n", topic.trim_matches('"')))
}

/// The body of a subscription.
pub struct Events(mpsc::Receiver<Bytes>);

impl Body for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// [`Subscription`] as a query string.
#[derive(Deserialize)]
struct SubscribeQuery {
    #[serde(default)]
    topics: String,
    every_s: Option<f64>,
    limit: Option<usize>,
    #[serde(default)]
    sort: Sort,
}

/// The subscription that a query asks for; its topics are separated by commas.
fn subscription(query: &str) -> Result<Subscription, Fault> {
    let SubscribeQuery { topics, every_s, limit, sort } = parse(query)?;
    let names = topics.split(',').map(str::trim).filter(|name| !name.is_empty());
    let topic = |name: &str| {
        serde_json::from_value::<Topic>(name.into())
            .map_err(|error| Fault(StatusCode::BAD_REQUEST, format!("topics: {error}")))
    };
    Ok(Subscription { topics: names.map(topic).collect::<Result<_, _>>()?, every_s, limit, sort })
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Fault> {
    serde_urlencoded::from_str(query)
        .map_err(|error| Fault(StatusCode::BAD_REQUEST, format!("the query cannot be read: {error}")))
}

fn full(kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Either::Left(Full::new(body.into())));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Adds security headers for browsers to an answer.
fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, web::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
