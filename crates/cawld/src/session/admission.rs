//! Who may begin a session, or ask.

use std::sync::Arc;

use cawl_client::protocol::Failure;
use cawl_wire::{Header, Hello, Kind, WireError};
use nix::unistd::{Uid, User};
use tokio::io::AsyncWriteExt;

use crate::connections::Connections;
use crate::guests::Guest;
use crate::messages::{Broken, Messages};
use crate::socket::Peer;

/// To who sends neither a request nor what a tracer sends.
pub const NO_REQUEST: &[u8] =
    b"{\"error\":\"not a request this daemon knows: a request is a line of JSON\"}\n";

/// Only the daemon's own user and root may ask.
pub async fn refuse_question(
    mut messages: Messages,
    connections: &Connections,
    peer: Peer,
) -> anyhow::Result<()> {
    let line = "refused a connection from another user, who asked a question";
    connections.complaints.warn(peer.uid, line);
    let error =
        format!("it belongs to another user, and answers only that user and root (you are uid {})", peer.uid);
    let answer = serde_json::to_string(&Failure { error })? + "\n";
    messages.stream.write_all(answer.as_bytes()).await?;
    Ok(())
}

/// Reads the hello into `payload`. False if there is none, or a tracer of another protocol version, which is
/// refused.
pub async fn has_said_hello(
    messages: &mut Messages,
    payload: &mut Vec<u8>,
    connections: &Connections,
    peer: Peer,
) -> anyhow::Result<bool> {
    match messages.next(payload).await {
        Ok(Some(header)) => {
            anyhow::ensure!(header.kind == Kind::Hello, "a session began without a hello");
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(Broken::Wire(WireError::Version(theirs))) => {
            let refusal = Header { kind: Kind::Refused, len: 0, dropped: 0 }.encode();
            messages.stream.write_all(&refusal).await?;
            let line = format!(
                "a program with a tracer of protocol version {theirs} was refused, this daemon speaks version {}: \
                 it runs untraced; start it with the cawl-cli of this daemon",
                cawl_wire::VERSION
            );
            connections.complaints.warn(peer.uid, &line);
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Another user's program as a guest; None if it may not be recorded.
pub fn admit(peer: Peer, connections: &Connections, run: u64) -> Option<Arc<Guest>> {
    let admitted = connections.guests.admit(peer.uid, connections.traces.has_run(run));
    if admitted.is_none() {
        let user = User::from_uid(Uid::from_raw(peer.uid)).ok().flatten().map(|user| user.name);
        let user = user.unwrap_or_else(|| peer.uid.to_string());
        let line = format!(
            "refused a program of another user, {user}, that belongs to no run: it runs untraced; cawld \
             --allow-user {user} would record it"
        );
        connections.complaints.warn(peer.uid, &line);
    }
    admitted
}

/// The process's number in the daemon's pid namespace, from the kernel; the tracer sends that of its own.
pub fn number(hello: &Hello<'_>, peer: Peer) -> u32 {
    // A client in the daemon's own process stands for other processes, in tests.
    peer.pid.filter(|pid| *pid != std::process::id()).unwrap_or(hello.pid)
}
