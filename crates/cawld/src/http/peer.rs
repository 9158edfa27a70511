//! The users at the other ends of loopback connections, from /proc/net/tcp.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The other end of a connection, and ours.
pub type Ends = (SocketAddr, SocketAddr);

/// The owner of each socket that is bound to the first address and connected to the second one; nothing of
/// one that is not on this machine, or that no process holds. The kernel's table is read once for all.
pub fn owners(connections: &[Ends]) -> BTreeMap<Ends, u32> {
    let mut owners = BTreeMap::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        if let Ok(text) = std::fs::read_to_string(path) {
            find(&text, connections, &mut owners);
        }
    }
    owners
}

fn find(text: &str, connections: &[Ends], owners: &mut BTreeMap<Ends, u32>) {
    let mut wanted = BTreeMap::new();
    for ends in connections.iter().filter(|ends| !owners.contains_key(*ends)) {
        for (peer, own) in shown(ends.0).into_iter().zip(shown(ends.1)) {
            wanted.insert((peer, own), *ends);
        }
    }
    for line in text.lines().skip(1) {
        // sl local remote state queues timer retransmits uid timeout inode
        let mut words = line.split_ascii_whitespace();
        let (Some(local), Some(remote)) = (words.nth(1), words.next()) else { continue };
        let Some(ends) = wanted.get(&(local.to_owned(), remote.to_owned())) else { continue };
        let uid = words.nth(4).and_then(|uid| uid.parse().ok());
        // A socket closed by its process has no inode, and is shown as root's.
        let has_inode = words.nth(1).is_some_and(|inode| inode != "0");
        owners.extend(uid.filter(|_| has_inode).map(|uid| (*ends, uid)));
    }
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
    fn our_own_connections_are_ours() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(loopback) else {
                eprintln!("SKIPPED: our_own_connections_are_ours: no {loopback} here");
                continue;
            };
            let own = listener.local_addr().unwrap();
            let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(own).unwrap()).collect();
            let mut ends: Vec<Ends> = clients.iter().map(|c| (c.local_addr().unwrap(), own)).collect();
            ends.push((own, own));
            let owners = owners(&ends);
            let me = Some(nix::unistd::geteuid().as_raw());
            let found: Vec<_> = ends.iter().map(|ends| owners.get(ends).copied()).collect();
            assert_eq!(found, [me, me, me, None], "{loopback}");
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
        let owner = |peer, own| {
            let mut owners = BTreeMap::new();
            find(text, &[(peer, own)], &mut owners);
            owners.values().next().copied()
        };
        assert_eq!(owner(peer(40000), own), Some(1000));
        assert_eq!(owner(peer(40001), own), None, "closed sockets are shown as root's");
        assert_eq!(owner(peer(40002), own), Some(65534), "an IPv4 address in an IPv6 socket");
        assert_eq!(owner(peer(40003), own), None);
        assert_eq!(owner(own, peer(40000)), None);
    }
}
