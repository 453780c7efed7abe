//! Prefers a peer's IPv4 address on the same link for bulk data.
//!
//! The address that answers first is random, and often IPv6. On the same wire IPv4 is cheaper: its
//! header is 20 bytes shorter, of the 1500 bytes of an Ethernet packet.

use crate::os::Interface;
use std::net::{IpAddr, SocketAddr};

/// Among `theirs`, the first IPv4 address in a network of the interface that has our address
/// `ours`. `None` if `ours` is an IPv4 address already, or there is no such address.
pub(super) fn ipv4_path(
    interfaces: &[Interface],
    ours: SocketAddr,
    mut theirs: impl Iterator<Item = SocketAddr>,
) -> Option<SocketAddr> {
    let SocketAddr::V6(v6) = ours else { return None };
    if v6.ip().to_ipv4_mapped().is_some() {
        return None;
    }
    // Two interfaces may have the same link-local address; then the scope identifies the interface.
    let is_it = |i: &&Interface| v6.scope_id() == 0 || v6.scope_id() == i.index;
    let has_it = |i: &&Interface| i.addresses.iter().any(|a| a.ip == IpAddr::V6(*v6.ip()));
    let interface = interfaces.iter().filter(is_it).find(has_it)?;
    theirs.find(|to| to.is_ipv4() && interface.addresses.iter().any(|a| a.subnet_has(to.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{InterfaceAddress, InterfaceKind};

    fn interface(index: u32, addresses: [(&str, u8); 2]) -> Interface {
        let address = |(ip, prefix_bits): (&str, u8)| InterfaceAddress {
            ip: ip.parse().expect("an address"),
            prefix_bits,
        };
        let addresses = addresses.map(address).into();
        Interface {
            name: format!("eth{index}"),
            index,
            kind: InterfaceKind::Ethernet,
            addresses,
            speed_mbps: None,
            mtu: None,
        }
    }

    fn lighter_than(ours: &str, theirs: &[&str]) -> Option<String> {
        let interfaces = [
            interface(2, [("fe80::1", 64), ("192.168.1.7", 24)]),
            interface(3, [("fe80::1", 64), ("10.0.0.7", 8)]),
        ];
        let ours = ours.parse().expect("an address");
        let theirs = theirs.iter().map(|to| to.parse().expect("an address"));
        ipv4_path(&interfaces, ours, theirs).map(|to| to.to_string())
    }

    #[test]
    fn an_ipv4_address_on_the_same_wire_is_lighter() {
        let theirs =
            ["[fe80::9%2]:47474", "172.17.0.1:47474", "10.0.0.9:47474", "192.168.1.9:47474"];
        assert_eq!(lighter_than("[fe80::1%2]:5000", &theirs).as_deref(), Some("192.168.1.9:47474"));
        assert_eq!(lighter_than("[fe80::1%3]:5000", &theirs).as_deref(), Some("10.0.0.9:47474"));
    }

    #[test]
    fn another_wire_or_nothing_known_is_not() {
        assert_eq!(
            lighter_than("192.168.1.7:5000", &["192.168.1.9:47474"]),
            None,
            "it is IPv4 already"
        );
        assert_eq!(
            lighter_than("[::ffff:192.168.1.7]:5000", &["192.168.1.9:47474"]),
            None,
            "it is IPv4 already"
        );
        assert_eq!(
            lighter_than("[fe80::1%2]:5000", &["10.0.0.9:47474", "[fe80::9%2]:47474"]),
            None,
            "another wire"
        );
        assert_eq!(
            lighter_than("[fe80::5%2]:5000", &["192.168.1.9:47474"]),
            None,
            "no address of ours"
        );
        assert_eq!(
            lighter_than("[fe80::1%4]:5000", &["192.168.1.9:47474"]),
            None,
            "no interface of ours"
        );
    }
}
