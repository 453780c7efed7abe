//! The alternative paths to a member, and when each should be tried.
//!
//! The address that answers first need not have the fastest path. So each path is tried once, again
//! when the network of this machine or the member's known addresses have changed, and repeatedly
//! with a back-off while it fails. A control link that stands over a path ends its back-off.

use crate::identity::NodeId;
use crate::os::{Interface, InterfaceKind};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The results of trials. Times are in milliseconds and never go back.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    tried: BTreeMap<(NodeId, SocketAddr), Tried>,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The path carries less than the one in use, or not enough more.
    Slower,
    /// Something on the way forwards the connection.
    Unproven,
    /// It is now the path in use.
    Taken,
    /// Nothing answered, or it is the path that broke.
    Failed,
    /// An operation interrupted the trial.
    Disturbed,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    failures: u32,
    /// Time of the next trial; `None` until something changes.
    due_ms: Option<u64>,
}

impl Paths {
    /// The paths to `addresses` to try now. Forgets the results of the node's other paths, so a
    /// path that comes back counts as new.
    pub fn due(&mut self, now_ms: u64, node: NodeId, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        self.tried.retain(|(of, to), _| *of != node || addresses.contains(to));
        let is_due = |to: &SocketAddr| match self.tried.get(&(node, *to)) {
            Some(tried) => tried.due_ms.is_some_and(|due_ms| due_ms <= now_ms),
            None => true,
        };
        addresses.iter().copied().filter(is_due).collect()
    }

    /// Records the result of a trial.
    pub fn tried(&mut self, now_ms: u64, node: NodeId, to: SocketAddr, trial: Trial) {
        let failures = self.tried.get(&(node, to)).map_or(0, |tried| tried.failures);
        let tried = match trial {
            Trial::Slower | Trial::Taken | Trial::Unproven => Tried::default(),
            Trial::Failed => {
                let wait_ms =
                    WAIT_MS.checked_shl(failures.min(8)).unwrap_or(WAIT_MS_MAX).min(WAIT_MS_MAX);
                Tried { failures: failures + 1, due_ms: Some(now_ms + wait_ms) }
            }
            Trial::Disturbed => Tried { failures, due_ms: Some(now_ms + DISTURBED_MS) },
        };
        self.tried.insert((node, to), tried);
    }

    /// The node has answered over this path. If earlier trials of it failed, it is due at once.
    pub fn answers(&mut self, node: NodeId, to: SocketAddr) {
        if self.tried.get(&(node, to)).is_some_and(|tried| tried.failures > 0) {
            self.tried.remove(&(node, to));
        }
    }

    /// Forgets all results, because this machine's network has changed.
    pub fn forget_all(&mut self) {
        self.tried.clear();
    }

    /// Keeps only the results for these nodes.
    pub fn keep(&mut self, nodes: impl Fn(NodeId) -> bool) {
        self.tried.retain(|(of, _), _| nodes(*of));
    }
}

/// The addresses among `theirs` that our interfaces reach directly, the most promising first. If an
/// interface reaches IPv4 addresses, its IPv6 ones are left out, because they lead to the same
/// place.
pub fn reachable(interfaces: &[Interface], theirs: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut promising: Vec<(Promise, SocketAddr)> = Vec::new();
    for interface in interfaces {
        let leads = |to: &&SocketAddr| leads_to(interface, **to);
        let (v4, v6): (Vec<SocketAddr>, Vec<SocketAddr>) =
            theirs.iter().filter(leads).partition(|to| to.is_ipv4());
        let found = if v4.is_empty() { v6 } else { v4 };
        promising.extend(
            found.into_iter().take(OF_AN_INTERFACE_MAX).map(|to| (promise_of(interface), to)),
        );
    }
    promising.sort_unstable();
    promising.dedup_by_key(|(_, to)| *to);
    promising.into_iter().map(|(_, to)| to).collect()
}

/// The sort key of a path: interface kind, then nominal speed.
type Promise = (u8, Reverse<u32>);

fn promise_of(interface: &Interface) -> Promise {
    let kind = match interface.kind {
        InterfaceKind::Thunderbolt => 0,
        InterfaceKind::Ethernet | InterfaceKind::Bridge => 1,
        _ => 2,
    };
    (kind, Reverse(interface.speed_mbps.unwrap_or(0)))
}

fn leads_to(interface: &Interface, to: SocketAddr) -> bool {
    let is_ours = interface.addresses.iter().any(|a| a.ip == to.ip());
    let shares = interface.addresses.iter().any(|a| a.subnet_has(to.ip()));
    let in_scope = match to {
        SocketAddr::V6(v6) => v6.scope_id() == 0 || v6.scope_id() == interface.index,
        SocketAddr::V4(_) => true,
    };
    shares && in_scope && !is_ours
}

/// Whether two addresses denote the same interface of the same host, whatever their ports.
pub fn is_same_interface(a: SocketAddr, b: SocketAddr) -> bool {
    let scope = |at: SocketAddr| match at {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let plain = |at: SocketAddr| -> IpAddr { at.ip().to_canonical() };
    plain(a) == plain(b) && scope(a) == scope(b)
}

/// Most paths per interface. A machine with Ethernet and Wi-Fi in one network has two addresses
/// there.
const OF_AN_INTERFACE_MAX: usize = 4;
/// Back-off after a failed trial, doubled for each further failure.
const WAIT_MS: u64 = 5_000;
const WAIT_MS_MAX: u64 = 60_000;
const DISTURBED_MS: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::InterfaceAddress;

    const NODE: NodeId = NodeId([1; 32]);

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address of this test")
    }

    fn interface(
        index: u32,
        kind: InterfaceKind,
        speed_mbps: Option<u32>,
        addresses: &[(&str, u8)],
    ) -> Interface {
        let address = |(ip, prefix_bits): &(&str, u8)| InterfaceAddress {
            ip: ip.parse().expect("one"),
            prefix_bits: *prefix_bits,
        };
        let addresses = addresses.iter().map(address).collect();
        Interface { name: format!("if{index}"), index, kind, addresses, speed_mbps, mtu: None }
    }

    #[test]
    fn each_interface_leads_to_what_is_in_its_networks_and_the_most_promising_comes_first() {
        use InterfaceKind as K;
        let interfaces = [
            interface(2, K::Wifi, None, &[("fe80::1", 64), ("192.168.1.7", 24)]),
            interface(
                3,
                K::Ethernet,
                Some(1000),
                &[("fe80::2", 64), ("10.0.0.7", 24), ("172.17.0.1", 16)],
            ),
            interface(4, K::Ethernet, Some(10_000), &[("fe80::3", 64)]),
            interface(5, K::Thunderbolt, None, &[("169.254.3.7", 16)]),
        ];
        let theirs = [
            "192.168.1.9:47474",
            "[fe80::9%2]:47474",
            "10.0.0.9:47474",
            "10.0.0.10:47474",
            "172.17.0.1:47474",
            "[fe80::9%4]:47474",
            "169.254.8.8:47474",
            "10.9.9.9:47474",
        ]
        .map(at);
        let expected = [
            "169.254.8.8:47474",
            "[fe80::9%4]:47474",
            "10.0.0.9:47474",
            "10.0.0.10:47474",
            "192.168.1.9:47474",
        ]
        .map(at);
        assert_eq!(reachable(&interfaces, &theirs), expected);
        assert_eq!(reachable(&interfaces, &[]), []);
    }

    #[test]
    fn a_way_is_tried_once_and_again_when_it_failed_or_comes_back() {
        let (mut paths, a, b) = (Paths::default(), at("10.0.0.9:1"), at("10.1.0.9:1"));
        assert_eq!(paths.due(0, NODE, &[a, b]), [a, b]);
        paths.tried(0, NODE, a, Trial::Unproven);
        assert_eq!(paths.due(WAIT_MS_MAX, NODE, &[a, b]), [b]);
        paths.tried(0, NODE, a, Trial::Slower);
        paths.tried(0, NODE, b, Trial::Failed);
        assert_eq!(paths.due(WAIT_MS - 1, NODE, &[a, b]), []);
        assert_eq!(paths.due(WAIT_MS, NODE, &[a, b]), [b]);
        paths.tried(WAIT_MS, NODE, b, Trial::Failed);
        assert_eq!(paths.due(3 * WAIT_MS - 1, NODE, &[a, b]), []);
        assert_eq!(paths.due(3 * WAIT_MS, NODE, &[a, b]), [b]);
        (0..20).for_each(|_| paths.tried(0, NODE, b, Trial::Failed));
        assert_eq!(paths.due(WAIT_MS_MAX, NODE, &[a, b]), [b]);
        assert_eq!(paths.due(WAIT_MS_MAX, NODE, &[b]), [b]);
        assert_eq!(paths.due(WAIT_MS_MAX, NODE, &[a, b]), [a, b], "it was away");
        paths.tried(0, NODE, a, Trial::Slower);
        paths.tried(0, NODE, b, Trial::Failed);
        paths.answers(NODE, a);
        assert_eq!(paths.due(0, NODE, &[a, b]), [], "it was slower, and has not failed");
        paths.answers(NODE, b);
        assert_eq!(paths.due(0, NODE, &[a, b]), [b]);
        paths.tried(0, NODE, b, Trial::Failed);
        assert_eq!(paths.due(WAIT_MS, NODE, &[a, b]), [b], "the back-off begins again");
        paths.tried(0, NODE, a, Trial::Taken);
        paths.tried(0, NODE, b, Trial::Slower);
        paths.keep(|node| node == NODE);
        assert_eq!(paths.due(0, NODE, &[a, b]), []);
        paths.forget_all();
        assert_eq!(paths.due(0, NODE, &[a, b]), [a, b]);
        paths.tried(0, NODE, a, Trial::Taken);
        paths.keep(|_| false);
        assert_eq!(paths.due(0, NODE, &[a, b]), [a, b]);
    }

    #[test]
    fn ports_make_no_other_interface_and_scopes_do() {
        assert!(
            is_same_interface(at("10.0.0.9:1"), at("10.0.0.9:2"))
                && is_same_interface(at("[::ffff:10.0.0.9]:1"), at("10.0.0.9:2"))
        );
        assert!(
            !is_same_interface(at("[fe80::1%2]:1"), at("[fe80::1%3]:1"))
                && !is_same_interface(at("10.0.0.9:1"), at("10.0.0.8:1"))
        );
    }
}
