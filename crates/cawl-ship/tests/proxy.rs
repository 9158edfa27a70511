//! Hands bytes to a server and back, and tells when so many came.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A port of its own before a server's.
pub struct Proxy {
    /// Its port.
    pub port: u16,
    /// Bytes that may pass before [`Proxy::reached`] tells, and nothing more passes on that connection.
    limit: Arc<AtomicU64>,
    reached: Receiver<()>,
}

impl Proxy {
    /// Before the server at a port of this machine.
    pub fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let limit = Arc::new(AtomicU64::new(u64::MAX));
        let (tell, reached) = channel();
        let left = Arc::clone(&limit);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                // A server that is gone is a closed connection.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (to, from) = (server.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
                let (left, tell) = (Arc::clone(&left), tell.clone());
                std::thread::spawn(move || pass(client, to, Some((&left, &tell))));
                std::thread::spawn(move || pass(server, from, None));
            }
        });
        Proxy { port, limit, reached }
    }

    /// After so many more bytes to the server, the connection stands still.
    pub fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::SeqCst);
    }

    /// Waits until it stands still. From now on everything passes.
    pub fn reached(&self) {
        self.reached.recv_timeout(cawl_kit::LIMIT).expect("so many bytes never came");
        self.limit.store(u64::MAX, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, watch: Option<(&AtomicU64, &Sender<()>)>) {
    let mut bytes = [0; 1 << 14];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some((left, tell)) = watch {
            let before = left.load(Ordering::SeqCst);
            if before <= count as u64 {
                let _ = tell.send(());
                // Until one of both sides is killed.
                while let Ok(1..) = from.read(&mut bytes) {}
                break;
            }
            if before != u64::MAX {
                left.fetch_sub(count as u64, Ordering::SeqCst);
            }
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}
