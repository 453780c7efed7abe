//! The network that the machines of a run have in common.

use std::net::{IpAddr, Ipv4Addr};

/// The smallest IPv4 network with all these addresses, as `10.0.0.0/29`. None where these are not
/// two or more addresses of one private range.
pub fn common(addresses: impl Iterator<Item = IpAddr>) -> Option<String> {
    let bits = |address| match address {
        IpAddr::V4(ip) if !ip.is_loopback() => Some(ip.to_bits()),
        _ => None,
    };
    let addresses = addresses.map(bits).collect::<Option<Vec<u32>>>()?;
    let first = *addresses.first()?;
    let same = addresses.iter().map(|other| (first ^ other).leading_zeros()).min()?;
    let mask = u32::MAX.checked_shl(u32::BITS - same).unwrap_or(0);
    (LENGTHS.contains(&same)).then(|| format!("{}/{same}", Ipv4Addr::from_bits(first & mask)))
}

/// No private range is larger. A network of one address has no second machine.
const LENGTHS: std::ops::Range<u32> = 8..32;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(addresses: &[&str]) -> Option<String> {
        common(addresses.iter().map(|text| text.parse().expect("an address")))
    }

    #[test]
    fn it_has_all_addresses_and_no_smaller_one_has() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]), some("10.0.0.0/30"));
        assert_eq!(of(&["192.168.1.7", "192.168.1.200"]), some("192.168.1.0/24"));
        assert_eq!(of(&["192.168.1.6", "192.168.1.7"]), some("192.168.1.6/31"));
        assert_eq!(of(&["10.200.0.1", "10.0.0.1"]), some("10.0.0.0/8"));
    }

    #[test]
    fn there_is_none_for_one_machine_or_several_ranges_or_ipv6() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["10.0.0.1"]), None);
        assert_eq!(of(&["10.0.0.1", "192.168.1.1"]), None, "it would have the loopback addresses");
        assert_eq!(of(&["10.0.0.1", "fd00::1"]), None);
        assert_eq!(of(&["127.0.0.1", "127.0.0.2"]), None);
    }
}
