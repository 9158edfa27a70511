//! The user at the other end of a loopback connection, from /proc/net/tcp.

use std::net::{IpAddr, SocketAddr};

/// The owner of the socket that is bound to `peer` and connected to `own`. None if there is no such socket on
/// this machine, or no process holds it.
pub fn owner(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|path| owner_in(&std::fs::read_to_string(path).ok()?, peer, own))
}

fn owner_in(text: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (peer, own) = (shown(peer), shown(own));
    text.lines().skip(1).find_map(|line| {
        // sl local remote state queues timer retransmits uid timeout inode
        let mut words = line.split_ascii_whitespace();
        let (local, remote) = (words.nth(1)?, words.next()?);
        if !peer.iter().any(|peer| peer == local) || !own.iter().any(|own| own == remote) {
            return None;
        }
        let uid = words.nth(4)?.parse().ok()?;
        // A socket closed by its process has no inode, and is shown as root's.
        (words.nth(1)? != "0").then_some(uid)
    })
}

/// `0100007F:1F90`: words of 32 bits as the processor keeps them, then the port; an IPv4 address also as that
/// of an IPv6 socket.
fn shown(address: SocketAddr) -> Vec<String> {
    let shown = |octets: &[u8]| {
        let words = octets.as_chunks().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
        words.chain([format!(":{:04X}", address.port())]).collect()
    };
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => vec![shown(&ip.octets()), shown(&ip.to_ipv6_mapped().octets())],
        IpAddr::V6(ip) => vec![shown(&ip.octets())],
    }
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
