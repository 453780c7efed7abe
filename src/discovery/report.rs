//! Layer: Words.
//!
//! What discovery did on each interface: the reason behind "I see nobody".

use std::fmt;
use std::net::IpAddr;

/// One interface of this machine, or one that was asked for and is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceReport {
    /// Its name as the system has it, or as it was asked for.
    pub interface: String,
    /// What happens there.
    pub activity: Activity,
}

/// What discovery does on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It asks and listens.
    Active {
        /// Own addresses announced there.
        addresses: Vec<IpAddr>,
        /// Questions sent, where the implementation counts them.
        queries: Option<u64>,
        /// Readable adverts of other nodes heard there, repetitions included.
        adverts: u64,
        /// Records under our service name that could not be read, or came faster than they were
        /// taken.
        dropped: u64,
    },
    /// It stays silent there.
    Skipped(Skip),
}

/// Why an interface is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// Nobody asked for it.
    NotAsked,
    /// It is down or has no carrier.
    Down,
    /// A point-to-point link, such as most VPNs: multicast reaches nobody there.
    PointToPoint,
    /// Asked for, but this machine has no such interface or address now.
    Missing,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skip::NotAsked => "not asked for",
            Skip::Down => "down",
            Skip::PointToPoint => "point-to-point, probably a VPN",
            Skip::Missing => "not on this machine",
        })
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

/// Why discovery could not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryProblem {
    /// No interface was listed, so there is nowhere to announce.
    NoInterface,
    /// The system refused the multicast sockets or the thread behind them.
    Unavailable,
    /// The announcement itself is not valid.
    BadAdvert,
    /// The text of a fixed peer is not `host` or `host:port`.
    BadPeer,
    /// More fixed peers than are allowed.
    TooManyPeers,
    /// The name of a fixed peer has no address, or none within two seconds.
    Unresolved,
}

impl fmt::Display for DiscoveryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiscoveryProblem::NoInterface => {
                "no network interface to announce on; name one with --interface"
            }
            DiscoveryProblem::Unavailable => {
                "multicast is not available on this machine; name a peer with --peer host:port"
            }
            DiscoveryProblem::BadAdvert => {
                "the announcement is not valid; the instance name or port is wrong"
            }
            DiscoveryProblem::BadPeer => {
                "a peer must be written as host or host:port; put IPv6 addresses in brackets"
            }
            DiscoveryProblem::TooManyPeers => {
                "too many fixed peers; 64 are the limit, and one that is reachable suffices"
            }
            DiscoveryProblem::Unresolved => {
                "the peer's name has no address; check the spelling or give its IP address"
            }
        })
    }
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
            activity: Activity::Skipped(Skip::PointToPoint),
        };
        assert_eq!(vpn.to_string(), "utun4: skipped (point-to-point, probably a VPN)");
    }
}
