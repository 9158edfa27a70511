//! The answers over HTTP: read only, off by default, and bounded.
//!
//! The law of this module: **requests change nothing, and nothing waits for a reader.** Bodies of requests
//! are not read; connections, headers and times are bounded; a subscriber that does not keep up is
//! disconnected.

mod guard;
mod peer;
mod routes;
mod shares;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use anyhow::Context;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::asker::Asker;
use crate::task;
pub use guard::Guard;
use peer::Ends;
use routes::Caller;
use shares::{Shares, Whose};

/// Most connections that are accepted together: the kernel's table of sockets is read once for them.
const TOGETHER: usize = 1024;

/// Longest time until a request's header is complete.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Most header fields, and bytes of them.
const HEADERS: usize = 64;
const HEADER_BYTES: usize = 16 << 10;

/// A connection that reads nothing for this time, in ms, is closed.
const UNTAKEN: u32 = 30_000;

/// A listening server.
pub struct Http {
    listener: TcpListener,
    guard: Arc<Guard>,
}

impl Http {
    /// Listens. `token_file` has the token that every client must send; without one, `open` is to answer
    /// every user of this machine. An error names the remedy.
    pub async fn listen(wanted: SocketAddr, token_file: Option<PathBuf>, open: bool) -> anyhow::Result<Http> {
        // Before a client can connect.
        let mut guard = Guard::new(wanted, token_file, open)?;
        let listener = TcpListener::bind(wanted).await.with_context(|| {
            format!("cannot listen at {wanted} for HTTP; name another address with --http")
        })?;
        guard.bound = listener.local_addr()?;
        Ok(Http { listener, guard: Arc::new(guard) })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.guard.bound
    }

    /// The settings of access, to read the token again.
    pub fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard)
    }

    /// Serves until dropped.
    pub async fn serve(self, asker: Asker) {
        let shares = Arc::new(Shares::default());
        loop {
            let accepted = match self.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("cannot accept a connection for HTTP: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let ends: Vec<Ends> = accepted.iter().map(|(_, ends)| *ends).collect();
            let is_remote = ends.iter().all(|(peer, _)| !peer.ip().to_canonical().is_loopback());
            let owners = match is_remote {
                true => BTreeMap::new(),
                false => spawn_blocking(move || peer::owners(&ends)).await.unwrap_or_default(),
            };
            for (stream, ends) in accepted {
                let user = owners.get(&ends).copied();
                let Some(place) = shares.take(Whose::of(ends.0, user)) else {
                    tracing::debug!(user, "closed an HTTP connection of one who has too many");
                    continue;
                };
                let (asker, guard) = (asker.clone(), Arc::clone(&self.guard));
                task::spawn(async move {
                    if let Err(error) = connection(stream, user, asker, guard).await {
                        tracing::debug!("an HTTP connection ended badly: {error:#}");
                    }
                    drop(place);
                });
            }
        }
    }

    /// The connections that wait to be accepted, or the next one.
    async fn accept(&self) -> std::io::Result<Vec<(TcpStream, Ends)>> {
        let mut accepted = vec![self.listener.accept().await?];
        poll_fn(|context| {
            while accepted.len() < TOGETHER
                && let Poll::Ready(Ok(another)) = self.listener.poll_accept(context)
            {
                accepted.push(another);
            }
            Poll::Ready(())
        })
        .await;
        let ends = |(stream, peer): (TcpStream, SocketAddr)| {
            stream.local_addr().ok().map(|own| (stream, (peer, own)))
        };
        Ok(accepted.into_iter().filter_map(ends).collect())
    }
}

async fn connection(
    stream: TcpStream,
    user: Option<u32>,
    asker: Asker,
    guard: Arc<Guard>,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_tcp_user_timeout(&stream, UNTAKEN)?;
    let too_slow = Arc::new(Notify::new());
    let caller = Arc::new(Caller { asker, guard, user, too_slow: Arc::clone(&too_slow) });
    let service = service_fn(move |request| {
        let caller = Arc::clone(&caller);
        async move { Ok::<_, std::convert::Infallible>(caller.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_headers(HEADERS)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = served => Ok(served?),
        () = too_slow.notified() => Ok(()),
    }
}
