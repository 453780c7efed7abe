//! Addresses of machines that other programs can use.

use std::net::IpAddr;

/// The address by which other programs reach a machine on the network on which it has `address`.
/// `networks` are its addresses, by network. It is `address` itself, unless that is link-local:
/// such a one means nothing without an interface, which few programs can be told.
pub fn for_programs(address: IpAddr, networks: &[Vec<IpAddr>]) -> Option<IpAddr> {
    if !is_link_local(address) {
        return Some(address);
    }
    let same = networks.iter().find(|network| network.contains(&address))?;
    let usable = same.iter().copied().filter(|other| !is_link_local(*other));
    usable.min_by_key(|other| (other.is_ipv6(), *other))
}

fn is_link_local(address: IpAddr) -> bool {
    // 169.254.0.0/16, which cables without a router have, needs no interface.
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_stands_for_another_one_on_its_network() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let networks = [
            vec![ip("10.0.0.9"), ip("fe80::9")],
            vec![ip("fd00::7"), ip("fe80::7"), ip("192.168.7.7")],
            vec![ip("fe80::5")],
        ];
        let usable = |text: &str| for_programs(ip(text), &networks);
        assert_eq!(usable("fe80::7"), Some(ip("192.168.7.7")), "IPv4 where there is one");
        assert_eq!(usable("fd00::7"), Some(ip("fd00::7")), "the path itself");
        assert_eq!(usable("fe80::5"), None, "there is no other");
        assert_eq!(usable("fe80::1"), None, "it has no such address");
    }
}
