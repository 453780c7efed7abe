//! Peers configured by the user, for networks without multicast: `--peer`, `POTLUCK_PEERS`.

use super::report::DiscoveryProblem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;
use tokio::sync::oneshot;

/// Ports that a node takes without configuration: the first one that is free.
pub const DEFAULT_PORTS: RangeInclusive<u16> = 47_474..=47_489;

/// A host and an optional port, as the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FixedPeer {
    host: String,
    port: Option<u16>,
}

impl FixedPeer {
    /// Longest host name in DNS.
    const HOST_BYTES_MAX: usize = 253;

    /// Most peers in one list: a single reachable one reports all others.
    const PEERS_MAX: usize = 64;

    /// Most addresses per name that are tried.
    const ADDRESSES_MAX: usize = 8;

    /// Timeout for resolving a name.
    const RESOLVE: Duration = Duration::from_secs(2);

    /// Parses `host[:port]` entries, separated by commas or white space. An IPv6 address with a
    /// port needs brackets.
    pub fn parse_list(text: &str) -> Result<Vec<FixedPeer>, DiscoveryProblem> {
        let words = text.split([',', ' ', '\t', '\n', '\r']).filter(|word| !word.is_empty());
        let peers: Vec<FixedPeer> =
            words.take(FixedPeer::PEERS_MAX + 1).map(str::parse).collect::<Result<_, _>>()?;
        if peers.len() > FixedPeer::PEERS_MAX {
            Err(DiscoveryProblem::TooManyPeers)
        } else {
            Ok(peers)
        }
    }

    /// The host as typed, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The given port, or all ports that a node may take without configuration, the likeliest
    /// first.
    pub fn ports(&self) -> RangeInclusive<u16> {
        self.port.map_or(DEFAULT_PORTS, |port| port..=port)
    }

    /// Whether the host is a name, which is to be [resolved](FixedPeer::resolve).
    pub fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Its addresses, in the order in which to try them; none if the host is a name.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let hosts = self.host.parse().map(|ip| SocketAddr::new(ip, 0));
        self.at_all_ports(hosts.into_iter().collect())
    }

    /// Resolves the addresses by the system, in the order in which to try them. Takes at most two
    /// seconds. Cancel-safe.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, DiscoveryProblem> {
        if !self.is_name() {
            return Ok(self.addresses());
        }
        let found = self.look_up().await.ok_or(DiscoveryProblem::Unresolved)?;
        if found.is_empty() {
            return Err(DiscoveryProblem::Unresolved);
        }
        Ok(self.at_all_ports(found))
    }

    fn at_all_ports(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let mut hosts: Vec<SocketAddr> = Vec::new();
        for host in found {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let at = |port| hosts.iter().map(move |host| with_port(*host, port));
        self.ports().flat_map(at).collect()
    }

    /// Asks the system, which blocks, on a thread of its own: tokio panics where it can start none.
    async fn look_up(&self) -> Option<Vec<SocketAddr>> {
        let (done, found) = oneshot::channel();
        let (host, first) = (self.host.clone(), *self.ports().start());
        let look_up = move || {
            let found = (host.as_str(), first).to_socket_addrs();
            let found = found.map(|found| found.take(FixedPeer::ADDRESSES_MAX).collect());
            // An error means that the receiver no longer waits.
            let _ = done.send(found.ok());
        };
        std::thread::Builder::new().name("potluck-name".to_owned()).spawn(look_up).ok()?;
        tokio::time::timeout(FixedPeer::RESOLVE, found).await.ok()?.ok()?
    }
}

impl FromStr for FixedPeer {
    type Err = DiscoveryProblem;

    fn from_str(text: &str) -> Result<FixedPeer, DiscoveryProblem> {
        let (host, port) = split(text).ok_or(DiscoveryProblem::BadPeer)?;
        let port = port.map(parse_port).transpose()?;
        let fits = !host.is_empty() && host.len() <= FixedPeer::HOST_BYTES_MAX;
        if !fits || host.chars().any(|c| c.is_whitespace() || c.is_control() || "[]/@".contains(c))
        {
            return Err(DiscoveryProblem::BadPeer);
        }
        Ok(FixedPeer { host: host.to_owned(), port })
    }
}

/// Splits into host and port.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        is_ipv6(host).then_some(())?;
        return match port {
            "" => Some((host, None)),
            _ => Some((host, Some(port.strip_prefix(':')?))),
        };
    }
    match text.matches(':').count() {
        0 => Some((text, None)),
        1 => text.split_once(':').map(|(host, port)| (host, Some(port))),
        // More colons mean an IPv6 address, in which a port would be ambiguous without brackets.
        _ => is_ipv6(text).then_some((text, None)),
    }
}

/// Whether this is an IPv6 address, with or without `%interface`.
fn is_ipv6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

fn parse_port(text: &str) -> Result<u16, DiscoveryProblem> {
    // The number parser accepts a sign, which is no part of a port.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port != 0);
    port.ok_or(DiscoveryProblem::BadPeer)
}

fn with_port(mut host: SocketAddr, port: u16) -> SocketAddr {
    host.set_port(port);
    host
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(host: &str, port: Option<u16>) -> Result<FixedPeer, DiscoveryProblem> {
        Ok(FixedPeer { host: host.to_owned(), port })
    }

    #[test]
    fn hosts_and_ports_are_read_as_people_write_them() {
        assert_eq!("studio.local".parse(), peer("studio.local", None));
        assert_eq!("192.168.1.20:5000".parse(), peer("192.168.1.20", Some(5000)));
        assert_eq!("fd00::1".parse(), peer("fd00::1", None));
        assert_eq!("[fd00::1]".parse(), peer("fd00::1", None));
        assert_eq!("[fe80::1%eth0]:5000".parse(), peer("fe80::1%eth0", Some(5000)));
        let bad = [
            "",
            ":5000",
            "a:",
            "a:0",
            "a:65536",
            "a:+5",
            "a:b:c",
            "[fd00::1",
            "[a]:1",
            "[fd00::1]x",
            "http://a",
            "a\u{7}",
        ];
        for text in bad {
            assert_eq!(text.parse::<FixedPeer>(), Err(DiscoveryProblem::BadPeer), "{text:?}");
        }
    }

    #[test]
    fn a_list_may_have_commas_spaces_and_gaps() {
        let peers = FixedPeer::parse_list(" a, b:1\n,,[::1]:2 ").expect("a good list");
        let hosts: Vec<&str> = peers.iter().map(FixedPeer::host).collect();
        assert_eq!(hosts, ["a", "b", "::1"]);
        assert_eq!(FixedPeer::parse_list(""), Ok(vec![]));
        assert_eq!(FixedPeer::parse_list(&"a ".repeat(65)), Err(DiscoveryProblem::TooManyPeers));
    }

    #[tokio::test]
    async fn without_a_port_the_default_ones_are_tried_in_order() {
        let peer: FixedPeer = "127.0.0.1".parse().expect("an address");
        let found = peer.resolve().await.expect("no name to look up");
        let expected: Vec<SocketAddr> =
            (47_474..=47_489).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        assert_eq!(found, expected);
        let peer: FixedPeer = "[::1]:5000".parse().expect("an address");
        assert_eq!(peer.resolve().await, Ok(vec![SocketAddr::from((Ipv6Addr::LOCALHOST, 5000))]));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,300}") {
            if let Ok(peers) = FixedPeer::parse_list(&text) {
                prop_assert!(peers.iter().all(|peer| !peer.host.is_empty()));
            }
        }
    }
}
