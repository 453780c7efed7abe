//! The activity of discovery on each interface, which explains why no peer is seen.

use crate::os::InterfaceAddress;
use derive_more::Display;
use std::fmt;

/// The report on one interface of this machine, or on a requested one that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InterfaceReport {
    /// Its name in the system, or as requested.
    pub interface: String,
    /// The activity there.
    pub activity: Activity,
}

/// The activity of discovery on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// It queries and listens.
    #[non_exhaustive]
    Active {
        /// Own addresses announced there.
        addresses: Vec<InterfaceAddress>,
        /// Queries sent, if the implementation counts them.
        queries: Option<u64>,
        /// Readable adverts received from nodes of other machines, repetitions included. On
        /// loopback, from other nodes.
        adverts: u64,
        /// Unreadable records under our service name, restarts of the responder because there were
        /// too many records or they came too fast, and its errors; on all interfaces together.
        dropped: u64,
    },
    /// It stays silent there.
    Skipped(SkipReason),
}

/// Why an interface is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum SkipReason {
    /// It was not requested.
    #[display("not asked for")]
    NotAsked,
    /// It is down or has no carrier.
    #[display("down")]
    Down,
    /// A point-to-point link, such as most VPNs, over which multicast reaches no other node.
    #[display("point-to-point, probably a VPN")]
    PointToPoint,
    /// Requested, but this machine has no such interface or address now.
    #[display("not on this machine")]
    Missing,
}

impl InterfaceReport {
    /// Whether the interface is not used because it was not asked for.
    pub fn is_not_asked(&self) -> bool {
        self.activity == Activity::Skipped(SkipReason::NotAsked)
    }
}

impl fmt::Display for InterfaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.activity {
            Activity::Skipped(skip) => write!(f, "{}: skipped ({skip})", self.interface),
            Activity::Active { queries: Some(queries), adverts, .. } => {
                write!(f, "{}: {queries} queries sent, {adverts} heard", self.interface)
            }
            Activity::Active { queries: None, adverts, .. } => {
                write!(f, "{}: {adverts} heard", self.interface)
            }
        }
    }
}

/// Why discovery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum DiscoveryProblem {
    /// The system refused the multicast sockets or the thread behind them.
    #[display("multicast is not available on this machine; name a peer with --peer host:port")]
    Unavailable,
    /// The announcement is invalid.
    #[display("the announcement is not valid; the instance name or port is wrong")]
    BadAdvert,
    /// The text of a fixed peer is not `host` or `host:port`.
    #[display("a peer must be written as host or host:port; put IPv6 addresses in brackets")]
    BadPeer,
    /// More fixed peers than allowed.
    #[display("too many fixed peers; 64 are the limit, and one that is reachable suffices")]
    TooManyPeers,
    /// The name of a fixed peer does not resolve within two seconds.
    #[display("the peer's name has no address; check the spelling or give its IP address")]
    Unresolved,
}

impl std::error::Error for DiscoveryProblem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_like_a_sentence() {
        let active =
            Activity::Active { addresses: Vec::new(), queries: Some(6), adverts: 0, dropped: 0 };
        let eth = InterfaceReport { interface: "eth0".to_owned(), activity: active };
        assert_eq!(eth.to_string(), "eth0: 6 queries sent, 0 heard");
        let vpn = InterfaceReport {
            interface: "utun4".to_owned(),
            activity: Activity::Skipped(SkipReason::PointToPoint),
        };
        assert_eq!(vpn.to_string(), "utun4: skipped (point-to-point, probably a VPN)");
    }
}
