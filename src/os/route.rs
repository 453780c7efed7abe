//! Which interface leads to the machines of an own subnet: a VPN may have taken the route.

use derive_more::Display;
use if_addrs::{IfAddr, get_if_addrs};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// An IPv4 subnet of this machine whose other machines are sought over another interface.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
#[display("packets to {subnet} go over {over} and not over {own}: a VPN is in the way")]
pub struct TakenRoute {
    /// The subnet, as `10.77.0.1/24`, with this machine's address.
    pub subnet: String,
    /// The interface with that address.
    pub own: String,
    /// The interface over which the packets go, or its address if that has no interface.
    pub over: String,
}

/// The subnets of these addresses of this machine that another interface has taken. Nothing is
/// sent.
pub fn taken_routes(own: &[IpAddr]) -> Vec<TakenRoute> {
    let all = get_if_addrs().unwrap_or_default();
    let ours = all.iter().filter(|at| own.contains(&at.ip()));
    let taken = ours.filter_map(|at| {
        let IfAddr::V4(v4) = &at.addr else { return None };
        let from = local_address(neighbour(v4.ip, v4.prefixlen)?)?;
        let over = all.iter().find(|of| of.ip() == from).map(|of| of.name.clone());
        // Another interface in the same subnet, as Wi-Fi beside a cable, leads there as well.
        let is_inside = matches!(from, IpAddr::V4(from) if is_neighbour(v4.ip, v4.prefixlen, from));
        (over.as_ref() != Some(&at.name) && !is_inside).then(|| TakenRoute {
            subnet: format!("{}/{}", v4.ip, v4.prefixlen),
            own: at.name.clone(),
            over: over.unwrap_or_else(|| from.to_string()),
        })
    });
    taken.collect()
}

/// Another address of the same subnet; `None` if it has no place for one.
fn neighbour(ip: Ipv4Addr, prefix: u8) -> Option<Ipv4Addr> {
    let bits = u32::from(ip);
    let host_bits = 32_u32.checked_sub(u32::from(prefix)).filter(|bits| (2..=31).contains(bits))?;
    let mask = (1_u32 << host_bits) - 1;
    let (first, last) = ((bits & !mask) + 1, (bits | mask) - 1);
    let other = if bits == first { last } else { first };
    Some(Ipv4Addr::from(other))
}

/// Whether both addresses are in the subnet of the first one.
fn is_neighbour(ip: Ipv4Addr, prefix: u8, other: Ipv4Addr) -> bool {
    let host_bits = 32_u32.saturating_sub(u32::from(prefix));
    (u32::from(ip) ^ u32::from(other)).checked_shr(host_bits).unwrap_or(0) == 0
}

/// The address from which this machine would send there. A datagram socket that is connected has
/// sent nothing.
fn local_address(to: Ipv4Addr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(SocketAddr::from((to, 9))).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_is_another_host_of_the_same_subnet() {
        let of = |ip: [u8; 4], prefix| neighbour(Ipv4Addr::from(ip), prefix).map(|ip| ip.octets());
        assert_eq!(of([10, 77, 0, 2], 24), Some([10, 77, 0, 1]));
        assert_eq!(of([10, 77, 0, 1], 24), Some([10, 77, 0, 254]));
        assert_eq!(of([10, 0, 0, 1], 30), Some([10, 0, 0, 2]));
        assert_eq!((of([10, 0, 0, 1], 31), of([10, 0, 0, 1], 32)), (None, None));
    }

    #[test]
    fn neighbours_have_the_bits_of_the_prefix_in_common() {
        let is = |other: [u8; 4], prefix| {
            is_neighbour(Ipv4Addr::new(192, 168, 1, 5), prefix, Ipv4Addr::from(other))
        };
        assert!(is([192, 168, 1, 6], 24) && is([192, 168, 200, 1], 16) && is([10, 0, 0, 1], 0));
        assert!(!is([192, 168, 2, 5], 24) && !is([10, 99, 0, 2], 24) && !is([192, 168, 1, 4], 32));
    }
}
