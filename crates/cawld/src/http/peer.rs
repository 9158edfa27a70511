//! The user at the other end of a loopback connection, from /proc/net/tcp.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The owner of the socket that is bound to `peer` and connected to `own`. None if there is no such socket on
/// this machine, or no process holds it.
pub fn owner(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|path| owner_in(&std::fs::read_to_string(path).ok()?, peer, own))
}

fn owner_in(text: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    text.lines().skip(1).find_map(|line| {
        // sl local remote state queues timer retransmits uid timeout inode
        let mut words = line.split_ascii_whitespace();
        let (local, remote) = (words.nth(1)?, words.next()?);
        if address(local)? != canonical(peer) || address(remote)? != canonical(own) {
            return None;
        }
        let uid = words.nth(4)?.parse().ok()?;
        // A socket closed by its process has no inode, and is shown as root's.
        (words.nth(1)? != "0").then_some(uid)
    })
}

fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// `0100007F:1F90`: words of 32 bits as the processor keeps them, then the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut octets = [0; 16];
            for (at, piece) in octets.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn our_own_connection_is_ours() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback) else {
                eprintln!("SKIPPED: our_own_connection_is_ours: no {loopback} here");
                continue;
            };
            let own = listener.local_addr().unwrap();
            let client = TcpStream::connect(own).unwrap();
            let peer = client.local_addr().unwrap();
            assert_eq!(owner(peer, own), Some(nix::unistd::geteuid().as_raw()), "{loopback}");
            assert_eq!(owner(own, own), None);
        }
    }

    /// As on a little-endian machine.
    #[cfg(target_endian = "little")]
    #[test]
    fn rows_are_told_apart() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:24CC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
             1: 0100007F:9C40 0100007F:24CC 01 00000000:00000000 00:00000000 00000000  1000        0 77 1\n\
             2: 0100007F:9C41 0100007F:24CC 06 00000000:00000000 00:00000000 00000000     0        0 0 3\n\
             3: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:24CC 01 0:0 0:0 0 65534 0 9 1\n\
             nonsense\n";
        let own: SocketAddr = "127.0.0.1:9420".parse().unwrap();
        let peer = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(owner_in(text, peer(40000), own), Some(1000));
        assert_eq!(owner_in(text, peer(40001), own), None, "closed sockets are shown as root's");
        assert_eq!(owner_in(text, peer(40002), own), Some(65534), "an IPv4 address in an IPv6 socket");
        assert_eq!(owner_in(text, peer(40003), own), None);
        assert_eq!(owner_in(text, own, peer(40000)), None);
    }
}
