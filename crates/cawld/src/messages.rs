//! Messages from a socket, and the descriptor that may come with the first.
//!
//! The law of this module: reading the next message can be cancelled at any point without losing a byte.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use cawl_wire::{HEADER_LEN, Header, WireError};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Free buffer for reading, and for the first bytes: a hello is shorter. A connection that waits has none.
const ROOM: usize = 32 << 10;
const FIRST: usize = 4 << 10;

/// One connection's messages.
pub struct Messages {
    /// The connection.
    pub stream: UnixStream,
    /// Received bytes.
    pub bytes: Vec<u8>,
    /// The descriptor that came with the first bytes.
    pub descriptor: Option<OwnedFd>,
    /// Bytes of `bytes` already used.
    taken: usize,
}

/// Why there is no next message.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// It is invalid.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl Messages {
    /// Of this connection.
    pub fn new(stream: UnixStream) -> Messages {
        Messages { stream, bytes: Vec::new(), descriptor: None, taken: 0 }
    }

    /// Receives the first bytes and the descriptor; no bytes if the other side disconnected.
    pub async fn receive_first(&mut self) -> io::Result<()> {
        let mut bytes = vec![0; FIRST];
        let (length, descriptor) =
            self.stream.async_io(Interest::READABLE, || receive(&self.stream, &mut bytes)).await?;
        bytes.truncate(length);
        (self.bytes, self.descriptor) = (bytes, descriptor);
        Ok(())
    }

    /// True if the other side is connected and has sent nothing so far.
    pub fn is_silent(&self) -> bool {
        let mut byte = [0; 1];
        let found = recv(&self.stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(found, Err(Errno::WOULDBLOCK))
    }

    /// The next message, its payload in `payload`; None at the end of the stream, also within a message.
    pub async fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Broken> {
        loop {
            if let Some(header) = self.parse(payload)? {
                return Ok(Some(header));
            }
            self.bytes.drain(..self.taken);
            self.taken = 0;
            if self.bytes.is_empty() {
                (self.bytes, *payload) = (Vec::new(), Vec::new());
            }
            self.stream.readable().await?;
            self.bytes.reserve_exact(ROOM);
            match self.stream.try_read_buf(&mut self.bytes) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// True if another whole message was received.
    pub fn has_more(&self) -> bool {
        matches!(self.peek(), Ok(Some(_)))
    }

    fn peek(&self) -> Result<Option<Header>, WireError> {
        let rest = &self.bytes[self.taken..];
        let Some(bytes) = rest.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let header = Header::decode(bytes)?;
        Ok((rest.len() - HEADER_LEN >= header.len as usize).then_some(header))
    }

    fn parse(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, WireError> {
        let Some(header) = self.peek()? else { return Ok(None) };
        let start = self.taken + HEADER_LEN;
        self.taken = start + header.len as usize;
        payload.clear();
        payload.extend_from_slice(&self.bytes[start..self.taken]);
        Ok(Some(header))
    }
}

/// One recvmsg: the number of bytes, and a descriptor.
fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(bytes)];
    let received = match recvmsg(stream, parts, &mut control, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
        Err(Errno::CONNRESET) => return Ok((0, None)),
        other => other?,
    };
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            descriptor = descriptors.next();
        }
    }
    Ok((received.bytes, descriptor))
}
