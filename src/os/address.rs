//! The policy on which addresses a hint may make us dial.

use super::interface::InterfaceAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses to which hints may lead. Configured peers are exempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPolicy {
    /// This machine only, for tests and demonstrations.
    Loopback,
    /// Adverts lead to our own subnets, which these are, and to link-local IPv6 addresses. Members
    /// and earlier runs may also name other private addresses.
    Lan(Vec<InterfaceAddress>),
}

impl AddressPolicy {
    /// Lower ports belong to system services; a forged advert must not make us connect to them.
    const PORT_MIN: u16 = 1024;

    /// No limit to own subnets, for nodes whose addresses come from another source than interfaces.
    pub fn everywhere() -> AddressPolicy {
        let ip = Ipv4Addr::UNSPECIFIED.into();
        AddressPolicy::Lan(vec![InterfaceAddress { ip, prefix_bits: 0 }])
    }

    /// Whether an advert may make us dial `to`. Any host on the network can send adverts, so they
    /// must not lead to hosts behind a router, a tunnel or a bridge.
    pub fn allows_advertised(&self, to: SocketAddr) -> bool {
        match self {
            AddressPolicy::Loopback => self.allows(to),
            AddressPolicy::Lan(_) => self.allows(to) && self.is_on_link(to.ip()),
        }
    }

    /// Whether a hint of a member, or of an earlier run, may make us dial `to`.
    pub fn allows(&self, to: SocketAddr) -> bool {
        let ip = to.ip();
        if to.port() < AddressPolicy::PORT_MIN || !is_dialable(ip) {
            return false;
        }
        match self {
            AddressPolicy::Loopback => ip.is_loopback(),
            AddressPolicy::Lan(_) if ip.is_loopback() || lacks_scope(to) => false,
            AddressPolicy::Lan(_) => is_local(ip) || self.is_on_link(ip),
        }
    }

    fn is_on_link(&self, ip: IpAddr) -> bool {
        let AddressPolicy::Lan(subnets) = self else { return false };
        let is_scoped = matches!(ip, IpAddr::V6(v6) if is_link_local(&v6));
        is_scoped || subnets.iter().any(|of| of.subnet_has(ip))
    }
}

/// Whether this is the address of a single host. IPv4-mapped addresses are refused, because they
/// would bypass the rules for IPv4.
pub(crate) fn is_dialable(ip: IpAddr) -> bool {
    let odd = match ip {
        IpAddr::V4(ip) => ip == Ipv4Addr::BROADCAST || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
    };
    !(odd || ip.is_unspecified() || ip.is_multicast())
}

/// A link-local IPv6 address is meaningless without its interface.
fn lacks_scope(to: SocketAddr) -> bool {
    matches!(to, SocketAddr::V6(v6) if is_link_local(v6.ip()) && v6.scope_id() == 0)
}

fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => is_link_local(&ip) || ip.segments()[0] & 0xfe00 == 0xfc00,
    }
}

/// fe80::/10.
pub(crate) fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(policy: &AddressPolicy, to: &str) -> bool {
        policy.allows(to.parse().expect("an address of this test"))
    }

    #[test]
    fn hints_lead_to_neighbours_only() {
        let ours = InterfaceAddress { ip: IpAddr::from([198, 51, 100, 7]), prefix_bits: 24 };
        let lan = AddressPolicy::Lan(vec![ours]);
        let good = [
            "10.1.2.3:47474",
            "172.16.0.1:47474",
            "192.168.1.9:1024",
            "169.254.3.4:5000",
            "198.51.100.200:47474",
        ];
        let good6 = ["[fe80::1%3]:47474", "[fd00::1]:47474"];
        for to in good.iter().chain(&good6) {
            assert!(allows(&lan, to), "refused {to}");
        }
        let bad = [
            "8.8.8.8:47474",
            "198.51.101.1:47474",
            "127.0.0.1:47474",
            "224.0.0.251:5353",
            "0.0.0.0:47474",
            "10.0.0.1:22",
        ];
        let bad6 = [
            "[fe80::1]:47474",
            "[::1]:47474",
            "[ff02::fb]:5353",
            "[2001:db8::1]:47474",
            "[::ffff:10.0.0.1]:47474",
            "[::]:9999",
        ];
        for to in bad.iter().chain(&bad6).chain(&["255.255.255.255:47474", "0.1.2.3:47474"]) {
            assert!(!allows(&lan, to), "allowed {to}");
        }
    }

    #[test]
    fn adverts_lead_to_own_subnets_only() {
        let subnet = |address: &str, prefix_bits| InterfaceAddress {
            ip: address.parse().expect("an address of this test"),
            prefix_bits,
        };
        let lan = AddressPolicy::Lan(vec![subnet("192.168.1.7", 24), subnet("fd00::7", 64)]);
        let advertised = |to: &str| lan.allows_advertised(to.parse().expect("an address"));
        for to in ["192.168.1.9:47474", "[fd00::9]:47474", "[fe80::1%3]:47474"] {
            assert!(advertised(to), "refused {to}");
        }
        for to in ["192.168.2.9:47474", "10.0.0.1:47474", "169.254.3.4:5000", "[fd01::9]:47474"] {
            assert!(!advertised(to) && allows(&lan, to), "{to}");
        }
        assert!(!advertised("192.168.1.9:22"));
    }

    #[test]
    fn loopback_means_nothing_else() {
        assert!(allows(&AddressPolicy::Loopback, "127.0.0.1:40000"));
        assert!(allows(&AddressPolicy::Loopback, "[::1]:40000"));
        assert!(!allows(&AddressPolicy::Loopback, "192.168.1.2:40000"));
        assert!(!allows(&AddressPolicy::Loopback, "127.0.0.1:80"));
    }
}
