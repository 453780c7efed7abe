//! Nodes that are seen, and addresses that are dialled, without a link: one sentence each says why.

use super::events::NodeInfo;
use crate::discovery::DEFAULT_PORTS;
use crate::identity::Boot;
use crate::link::Refusal;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// A node that is seen, or an address that is dialled, with which this node has no link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unlinked {
    /// Its addresses; none for a name without an address.
    pub addresses: Vec<SocketAddr>,
    /// The reason.
    pub why: UnlinkedReason,
}

/// Why there is no link.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnlinkedReason {
    /// It announces itself with the tag of another cluster.
    OtherCluster,
    /// It announces another version of the protocol.
    OtherVersion {
        /// Its version.
        theirs: u8,
        /// The version of this node.
        ours: u8,
    },
    /// A node of this cluster announces itself, with addresses in none of this machine's subnets.
    OtherNetwork {
        /// The IPv4 subnets of this machine, or all of them if it has no IPv4, as `10.77.0.1/24`.
        ours: Vec<String>,
    },
    /// A node of this cluster announces itself, there is no connection to it, and it has made none
    /// to this node.
    Announced {
        /// How the dials end.
        error: io::ErrorKind,
    },
    /// A node was linked, and nothing answers at its addresses any more.
    Ended {
        /// That node.
        peer: NodeInfo,
        /// How the dials end.
        error: io::ErrorKind,
    },
    /// Nothing answers at an address that the user has named.
    ByHand {
        /// How the dials end.
        error: io::ErrorKind,
    },
    /// A peer that the user has named has no address.
    NoAddress {
        /// The name.
        name: String,
    },
    /// Nothing answers where a node was in an earlier run, or where another one has seen it.
    Earlier {
        /// How the dials end.
        error: io::ErrorKind,
    },
    /// A node of this cluster ends each link with this node before it says anything.
    NotAdmitted {
        /// That node.
        peer: NodeInfo,
    },
    /// A node of this cluster is connected, and its messages do not arrive.
    Silent {
        /// That node.
        peer: NodeInfo,
    },
    /// A node answers, and the handshake is refused: this text says why.
    Refused(String),
}

impl UnlinkedReason {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            UnlinkedReason::OtherCluster => "other-cluster",
            UnlinkedReason::OtherVersion { .. } => "other-version",
            UnlinkedReason::OtherNetwork { .. } => "other-network",
            UnlinkedReason::Announced { .. } => "not-reached",
            UnlinkedReason::Ended { .. } => "ended",
            UnlinkedReason::NoAddress { .. } => "no-address",
            UnlinkedReason::ByHand { .. } => "no-answer",
            UnlinkedReason::Earlier { .. } => "no-answer-where-it-was",
            UnlinkedReason::NotAdmitted { .. } => "not-admitted",
            UnlinkedReason::Silent { .. } => "silent",
            UnlinkedReason::Refused(_) => "refused",
        }
    }

    /// Whether it is the same reason; the errors may differ.
    fn is_like(&self, other: &UnlinkedReason) -> bool {
        use UnlinkedReason as R;
        match (self, other) {
            (R::Announced { .. }, R::Announced { .. })
            | (R::ByHand { .. }, R::ByHand { .. })
            | (R::Earlier { .. }, R::Earlier { .. }) => true,
            (R::Ended { peer, .. }, R::Ended { peer: other, .. }) => peer == other,
            _ => self == other,
        }
    }

    /// Whether a node of this cluster announces itself on the network.
    pub fn is_announced(&self) -> bool {
        use UnlinkedReason as R;
        matches!(
            self,
            R::OtherNetwork { .. } | R::Announced { .. } | R::NotAdmitted { .. } | R::Silent { .. }
        )
    }
}

impl Unlinked {
    /// Joins the addresses of one node, or of one host if the node is unknown, that have the same
    /// reason. Of several errors it keeps that of the first address, IPv4 before IPv6.
    pub(crate) fn joined(
        all: impl IntoIterator<Item = (Option<Boot>, SocketAddr, UnlinkedReason)>,
    ) -> Vec<Unlinked> {
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(_, to, _)| (to.is_ipv6(), *to));
        let mut joined: Vec<(Option<Boot>, Unlinked)> = Vec::new();
        for (node, to, why) in all {
            let is_same = |(other, of): &&mut (Option<Boot>, Unlinked)| {
                let is_same_host = || of.addresses.iter().any(|at| at.ip() == to.ip());
                *other == node && of.why.is_like(&why) && (node.is_some() || is_same_host())
            };
            match joined.iter_mut().find(is_same) {
                Some((_, of)) => of.addresses.push(to),
                None => joined.push((node, Unlinked { addresses: vec![to], why })),
            }
        }
        joined.into_iter().map(|(_, of)| of).collect()
    }

    /// A peer that the user has named and that has no address.
    pub(crate) fn without_address(name: &str) -> Unlinked {
        let why = UnlinkedReason::NoAddress { name: name.to_owned() };
        Unlinked { addresses: Vec::new(), why }
    }

    /// The first address, with all ports that were tried on its host.
    fn place(&self) -> String {
        let Some(first) = self.addresses.first() else { return "an unknown address".to_owned() };
        let ports = self.addresses.iter().filter(|at| at.ip() == first.ip()).map(SocketAddr::port);
        match ports.max() {
            Some(last) if last > first.port() => {
                format!("{} (ports {} to {last})", first.ip(), first.port())
            }
            _ => first.to_string(),
        }
    }
}

impl fmt::Display for Unlinked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.place();
        match &self.why {
            UnlinkedReason::OtherCluster => {
                write!(f, "another cluster is here ({at}): `potluck join` enters it with its key")
            }
            UnlinkedReason::OtherVersion { theirs, ours } => write!(
                f,
                "a node at {at} speaks protocol {theirs}, this one {ours}: run the same version \
                 on both"
            ),
            UnlinkedReason::OtherNetwork { ours } => write!(
                f,
                "a node of this cluster at {at} is in another subnet than this machine ({}): give \
                 both addresses in one subnet, or, if a router connects the two, name it by hand: \
                 --peer {}",
                ours.join(", "),
                self.addresses.first().map_or_else(|| at.clone(), ToString::to_string),
            ),
            UnlinkedReason::Announced { error: io::ErrorKind::ConnectionRefused } => write!(
                f,
                "a node of this cluster announces itself at {at}, and its machine refuses \
                 connections: it has just ended, or {}",
                self.firewall("a firewall there refuses them")
            ),
            UnlinkedReason::Announced {
                error: error @ (io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable),
            } => write!(
                f,
                "a node of this cluster announces itself at {at}, and nothing gets there \
                 ({error}): it has just gone, or the access point keeps its machines apart \
                 (client isolation)"
            ),
            UnlinkedReason::Announced { error: io::ErrorKind::ConnectionReset } => write!(
                f,
                "a node of this cluster announces itself at {at}, and each connection is closed: \
                 it has just ended, or is overloaded"
            ),
            UnlinkedReason::Announced { error } => write!(
                f,
                "a node of this cluster announces itself at {at}, and neither of the two machines \
                 reaches the other ({error}): {}",
                self.firewall("firewalls drop the connections")
            ),
            UnlinkedReason::Ended { peer, error } => {
                write!(f, "{peer} was linked, and does not answer at {at} any more ({error})")
            }
            UnlinkedReason::ByHand { error } => {
                write!(f, "nothing answers at {at}, which was named by hand ({error})")
            }
            UnlinkedReason::NoAddress { name } => write!(
                f,
                "the peer {name} has no address: check the spelling, or give its IP address"
            ),
            UnlinkedReason::Earlier { error } => {
                write!(f, "nothing answers at {at}, where a node was earlier ({error})")
            }
            UnlinkedReason::NotAdmitted { peer } => write!(
                f,
                "{peer} at {at} does not admit this node: it denies it, or admits known nodes only \
                 (there: `potluck deny`, `potluck known`)"
            ),
            UnlinkedReason::Silent { peer } => write!(
                f,
                "{peer} at {at} is connected, and its answers do not arrive: packets of full size \
                 are lost on the way (compare the MTU of both interfaces), or it is overloaded"
            ),
            UnlinkedReason::Refused(why) => write!(f, "{at}: {why}"),
        }
    }
}

impl Unlinked {
    /// The cause, and a command that mends it on one of the machines.
    fn firewall(&self, cause: &str) -> String {
        let port = self.addresses.first().map_or(0, SocketAddr::port);
        let ports =
            if DEFAULT_PORTS.contains(&port) { "47474:47489".to_owned() } else { port.to_string() };
        format!("{cause}. On one of the two, for example: sudo ufw allow {ports}/tcp")
    }
}

/// How a dial has ended without an answer; `None` if something has answered.
pub(crate) fn without_answer(refusal: &Refusal) -> Option<io::ErrorKind> {
    match refusal {
        Refusal::Io(kind) => Some(*kind),
        Refusal::TooSlow => Some(io::ErrorKind::TimedOut),
        Refusal::Closed => Some(io::ErrorKind::ConnectionReset),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use UnlinkedReason as R;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// The sentences about these addresses of one node, or of unknown ones.
    fn said(node: Option<Boot>, all: &[(&str, UnlinkedReason)]) -> Vec<String> {
        let all = all.iter().map(|(to, why)| (node, at(to), why.clone()));
        Unlinked::joined(all).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_of_one_node_make_one_sentence_whatever_their_errors() {
        let late = R::Announced { error: io::ErrorKind::TimedOut };
        let absent = R::Announced { error: io::ErrorKind::NetworkUnreachable };
        let all = [("[fe80::1]:47474", absent.clone()), ("10.0.0.2:47474", late.clone())];
        let [one] = &said(Some(Boot(1)), &all)[..] else { panic!("one sentence") };
        assert!(one.contains("at 10.0.0.2:47474,") && one.contains("(timed out)"), "{one}");
        assert!(one.ends_with("sudo ufw allow 47474:47489/tcp"), "{one}");
        let other_port = said(Some(Boot(1)), &[("10.0.0.2:5000", late.clone())]);
        assert!(other_port[0].ends_with("sudo ufw allow 5000/tcp"), "{other_port:?}");
        let nowhere = said(Some(Boot(1)), &[("10.0.0.2:47474", absent)]);
        assert!(!nowhere[0].contains("firewall"), "{nowhere:?}");
        let nodes = [
            (Some(Boot(1)), at("10.0.0.2:1"), late.clone()),
            (Some(Boot(2)), at("10.0.0.3:1"), late),
        ];
        assert_eq!(Unlinked::joined(nodes).len(), 2, "one for each node");
    }

    #[test]
    fn ports_of_an_unknown_host_make_one_sentence_and_hosts_their_own() {
        let error = io::ErrorKind::ConnectionRefused;
        let all: Vec<(String, UnlinkedReason)> = (47_474..47_490)
            .flat_map(|port| [format!("10.0.0.9:{port}"), format!("10.0.0.8:{port}")])
            .map(|to| (to, R::ByHand { error }))
            .collect();
        let all: Vec<(&str, UnlinkedReason)> =
            all.iter().map(|(to, why)| (&**to, why.clone())).collect();
        let expected = ["10.0.0.8", "10.0.0.9"].map(|host| {
            format!(
                "nothing answers at {host} (ports 47474 to 47489), which was named by hand \
                 (connection refused)"
            )
        });
        assert_eq!(said(None, &all), expected);
        let refused = R::Refused("no".to_owned());
        let both = [("10.0.0.9:1", refused.clone()), ("10.0.0.9:2", R::Earlier { error })];
        assert_eq!(said(None, &both).len(), 2, "the reasons differ");
    }
}
