//! The addresses of the two ends of a connection, as one of its ends sees them.
//!
//! Any host can copy an advert, announce its own address with it, and forward every byte of the
//! connections that arrive there. It reads nothing, but the path of the link is in its hands. So
//! each end signs the two addresses that it sees in its introduction: the one that dialled, the
//! address that it dialled. If the addresses at each end mirror those at the other one, nothing on
//! the way has rewritten an address, and the path is [proven](PathProof::Proven).

use crate::wire::{Decode, Encode, Malformed, Reader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses of a connection's two ends, as one of them sees them.
///
/// They are plain: an IPv4-mapped address is an IPv4 address, and there are no scopes, because a
/// scope is a number of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    ours: SocketAddr,
    theirs: SocketAddr,
}

/// Whether both ends of a link see the same two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathProof {
    /// They do: the peer itself has the address at which this end sees it.
    Proven,
    /// They do not, or an end sees none: network address translation, a proxy, or a circuit. The
    /// peer has the identity that it claims, but its address here says nothing about it.
    Unproven,
}

impl Endpoints {
    /// Length of encoded endpoints in bytes.
    pub const BYTES: usize = 2 * PLACE_BYTES;

    /// The endpoints of a connection; `None` for one without addresses, as a circuit is.
    pub fn new(ours: SocketAddr, theirs: SocketAddr) -> Option<Endpoints> {
        let is_address = |at: SocketAddr| !at.ip().is_unspecified() && at.port() != 0;
        (is_address(ours) && is_address(theirs))
            .then(|| Endpoints { ours: plain(ours), theirs: plain(theirs) })
    }

    fn is_mirrored_by(&self, other: &Endpoints) -> bool {
        self.ours == other.theirs && self.theirs == other.ours
    }
}

impl PathProof {
    /// Compares the addresses at the two ends.
    pub fn of(own: Option<Endpoints>, peer: Option<Endpoints>) -> PathProof {
        match (own, peer) {
            (Some(own), Some(peer)) if own.is_mirrored_by(&peer) => PathProof::Proven,
            _ => PathProof::Unproven,
        }
    }

    /// Whether the path is proven.
    pub fn is_proven(self) -> bool {
        self == PathProof::Proven
    }
}

/// By hand: all zeros for a connection without addresses, so that all introductions are equally
/// long.
impl Encode for Option<Endpoints> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.extend_from_slice(&[0; Endpoints::BYTES]),
            Some(Endpoints { ours, theirs }) => {
                put(out, *ours);
                put(out, *theirs);
            }
        }
    }
}

impl Decode for Option<Endpoints> {
    fn decode(r: &mut Reader<'_>) -> Result<Option<Endpoints>, Malformed> {
        let both = [place(r)?, place(r)?];
        match both {
            [None, None] => Ok(None),
            [Some(ours), Some(theirs)] => Ok(Some(Endpoints { ours, theirs })),
            _ => Err(Malformed::Inconsistent),
        }
    }
}

fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

fn put(out: &mut Vec<u8>, at: SocketAddr) {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&at.port().to_le_bytes());
}

/// `None` for zeros.
fn place(r: &mut Reader<'_>) -> Result<Option<SocketAddr>, Malformed> {
    let (ip, port) = (Ipv6Addr::from(r.array::<16>()?), r.u16()?);
    match (IpAddr::V6(ip).to_canonical(), port) {
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0) => Ok(None),
        (_, 0) | (IpAddr::V6(Ipv6Addr::UNSPECIFIED) | IpAddr::V4(Ipv4Addr::UNSPECIFIED), _) => {
            Err(Malformed::Inconsistent)
        }
        (ip, port) => Ok(Some(SocketAddr::new(ip, port))),
    }
}

/// An IPv6 or IPv4-mapped address, then a port.
const PLACE_BYTES: usize = 16 + 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    fn seen(ours: &str, theirs: &str) -> Option<Endpoints> {
        Endpoints::new(ours.parse().expect("an address"), theirs.parse().expect("an address"))
    }

    #[test]
    fn endpoints_survive_the_wire() {
        for (ours, theirs) in [
            ("10.0.0.1:47474", "10.0.0.2:50000"),
            ("[fe80::1%3]:47474", "[fe80::2%7]:50000"),
            ("[2001:db8::1]:1", "[::1]:65535"),
            ("[::ffff:10.0.0.1]:9", "10.0.0.2:9"),
        ] {
            assert!(seen(ours, theirs).is_some());
            assert_codec(&seen(ours, theirs));
            assert_eq!(seen(ours, theirs).to_bytes().len(), Endpoints::BYTES);
        }
        assert_codec(&None::<Endpoints>);
    }

    #[test]
    fn half_an_address_is_malformed() {
        let whole = seen("10.0.0.1:47474", "[fe80::2]:50000").to_bytes();
        for (zeroed, why) in [
            (0..PLACE_BYTES, "one end without an address"),
            (PLACE_BYTES..2 * PLACE_BYTES, "the other one"),
            (16..18, "no port"),
            (12..16, "no IPv4 address"),
            (PLACE_BYTES..PLACE_BYTES + 16, "no IPv6 address"),
        ] {
            let mut bent = whole.clone();
            bent[zeroed].fill(0);
            let read = Option::<Endpoints>::from_bytes(&bent);
            assert_eq!(read, Err(Malformed::Inconsistent), "{why}");
        }
    }

    #[test]
    fn a_path_is_proven_when_each_end_sees_the_mirror_image() {
        let (a, b) = ("10.0.0.1:50000", "10.0.0.2:47474");
        assert!(PathProof::of(seen(a, b), seen(b, a)).is_proven());
        for (own, peer, why) in [
            (seen(a, b), seen(a, b), "the same image"),
            (seen(a, "10.0.0.3:47474"), seen(b, "10.0.0.3:50001"), "a proxy"),
            (seen(a, "10.0.0.2:9001"), seen(b, a), "another port was dialled"),
            (seen(a, b), seen(b, "10.0.0.1:50001"), "another port is seen"),
            (seen(a, b), seen(b, "192.168.1.1:50000"), "translated on the way"),
            (None, seen(b, a), "this end sees none"),
            (seen(a, b), None, "the other end sees none"),
            (None, None, "a circuit"),
        ] {
            assert_eq!(PathProof::of(own, peer), PathProof::Unproven, "{why}");
        }
    }

    #[test]
    fn scopes_and_mapped_addresses_are_no_difference() {
        let (a, b) = ("[fe80::1%3]:50000", "[fe80::2%3]:47474");
        let (at_b, from_b) = ("[fe80::2%8]:47474", "[fe80::1%8]:50000");
        assert!(PathProof::of(seen(a, b), seen(at_b, from_b)).is_proven());
        let v4 = seen("10.0.0.1:50000", "10.0.0.2:47474");
        let mapped = seen("[::ffff:10.0.0.2]:47474", "[::ffff:10.0.0.1]:50000");
        assert!(PathProof::of(v4, mapped).is_proven());
    }

    #[test]
    fn a_connection_without_addresses_has_no_endpoints() {
        for (ours, theirs) in [
            ("0.0.0.0:0", "10.0.0.1:5000"),
            ("[::]:47474", "[fe80::1]:5000"),
            ("10.0.0.1:5000", "10.0.0.2:0"),
        ] {
            assert_eq!(seen(ours, theirs), None);
        }
    }
}
