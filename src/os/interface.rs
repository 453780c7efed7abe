//! A network interface of this machine, its kind, and whether a home cluster should use it.

use derive_more::Display;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One network interface that is up and has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name in the operating system.
    pub name: String,
    /// The number in the operating system, which is also the scope of its link-local addresses.
    pub index: u32,
    /// The kind, as far as it can be determined.
    pub kind: InterfaceKind,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// The nominal speed in Mbit/s, if the system reports one; Wi-Fi usually does not.
    pub speed_mbps: Option<u32>,
    /// The largest packet in bytes, if the system reports it.
    pub mtu: Option<u32>,
}

/// An address of this machine and its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// The number of leading bits that all addresses of its subnet share.
    pub prefix_bits: u8,
}

impl InterfaceAddress {
    /// Whether `ip` lies in its subnet.
    pub fn subnet_has(&self, ip: IpAddr) -> bool {
        let prefix = u32::from(self.prefix_bits);
        match (self.ip, ip) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                prefix <= 32 && (u32::from(ours) ^ u32::from(theirs)).leading_zeros() >= prefix
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                prefix <= 128 && (u128::from(ours) ^ u128::from(theirs)).leading_zeros() >= prefix
            }
            _ => false,
        }
    }
}

/// The kind of an interface.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display,
)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InterfaceKind {
    /// A wire. On macOS possibly Wi-Fi, whose interfaces have the same names there.
    #[display("ethernet")]
    Ethernet,
    /// Radio.
    #[display("wifi")]
    Wifi,
    /// A Thunderbolt or USB4 cable between two machines.
    #[display("thunderbolt")]
    Thunderbolt,
    /// A bridge that connects this host to its network, as on hosts of virtual machines.
    #[display("bridge")]
    Bridge,
    /// A tunnel.
    #[display("vpn")]
    Vpn,
    /// A network inside this host, for containers and virtual machines.
    #[display("container")]
    Container,
    /// The loopback interface.
    #[display("loopback")]
    Loopback,
    /// Any other kind, such as the radio between phones.
    #[serde(other)]
    #[display("other")]
    Other,
}

/// The properties of an interface besides its name, as the operating system reports them. Any of
/// them may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// The ARP hardware type of Linux.
    pub hardware_type: Option<u32>,
    /// Its driver.
    pub driver: Option<String>,
    /// It is a radio.
    pub wireless: bool,
    /// It is a bridge.
    pub bridge: bool,
    /// It connects to a single peer instead of a network.
    pub point_to_point: bool,
}

impl Interface {
    /// Whether to use it by default: no loopback, containers, tunnels or unknown kinds.
    pub fn usable(&self) -> bool {
        use InterfaceKind as K;
        matches!(self.kind, K::Ethernet | K::Wifi | K::Thunderbolt | K::Bridge)
    }
}

impl InterfaceKind {
    /// Determines the kind from the facts if there are any, otherwise from the name. macOS gives
    /// only names, and only the name distinguishes a container's virtual cable from a real one.
    pub fn of(name: &str, facts: &InterfaceFacts) -> InterfaceKind {
        use InterfaceKind as K;
        let hardware = facts.hardware_type;
        let thunderbolt =
            facts.driver.as_deref().is_some_and(|driver| driver.starts_with("thunderbolt"));
        // On macOS bridge0 joins the Thunderbolt ports; bridge100 and up belong to virtual
        // machines.
        let mac_bridge = numbered(name, "bridge").filter(|_| !facts.bridge);
        if hardware == Some(HARDWARE_LOOPBACK) || numbered(name, "lo").is_some() {
            K::Loopback
        } else if is_container(name) || mac_bridge.is_some_and(|number| number >= 100) {
            K::Container
        } else if facts.point_to_point
            || hardware.is_some_and(|h| HARDWARE_TUNNELS.contains(&h))
            || is_vpn(name)
        {
            K::Vpn
        } else if facts.wireless || name.starts_with("wl") {
            K::Wifi
        } else if thunderbolt || name.starts_with("thunderbolt") || mac_bridge == Some(0) {
            K::Thunderbolt
        } else if facts.bridge {
            K::Bridge
        } else if OTHER.iter().any(|prefix| name.starts_with(prefix))
            || numbered(name, "ap").is_some()
        {
            K::Other
        } else if hardware.map_or_else(|| is_wire(name), |h| HARDWARE_WIRES.contains(&h)) {
            K::Ethernet
        } else {
            K::Other
        }
    }
}

/// The number in a name that consists of `prefix` and digits; 0 without digits. `None` for other
/// names.
fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.is_empty() {
        Some(0)
    } else {
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    }
}

fn is_container(name: &str) -> bool {
    // The networks that Docker creates are named br- and twelve hexadecimal digits.
    let docker_network = name
        .strip_prefix("br-")
        .is_some_and(|id| id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    docker_network || CONTAINERS.iter().any(|prefix| name.starts_with(prefix))
}

fn is_vpn(name: &str) -> bool {
    VPNS.iter().any(|prefix| name.starts_with(prefix))
}

fn is_wire(name: &str) -> bool {
    name.starts_with("en") || name.starts_with("eth")
}

const HARDWARE_LOOPBACK: u32 = 772;
/// Ethernet and InfiniBand.
const HARDWARE_WIRES: [u32; 2] = [1, 32];
/// PPP, the IP tunnels, GRE over IPv4 and IPv6, and interfaces without a link layer (TUN,
/// WireGuard).
const HARDWARE_TUNNELS: [u32; 7] = [512, 768, 769, 776, 778, 823, 65534];
const CONTAINERS: [&str; 18] = [
    "docker", "veth", "virbr", "vnet", "lxcbr", "lxdbr", "incusbr", "podman", "cni", "flannel",
    "cali", "cilium", "kube", "nerdctl", "vmnet", "vmenet", "vboxnet", "tap",
];
const VPNS: [&str; 15] = [
    "tun",
    "utun",
    "wg",
    "tailscale",
    "ppp",
    "ipsec",
    "zt",
    "nebula",
    "nordlynx",
    "proton",
    "CloudflareWARP",
    "gpd",
    "sit",
    "gre",
    "ip6tnl",
];
/// Apple's radios and links to coprocessors and phones, and interfaces that lead nowhere.
const OTHER: [&str; 7] = ["awdl", "llw", "anpi", "gif", "stf", "dummy", "ifb"];

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet() -> InterfaceFacts {
        InterfaceFacts { hardware_type: Some(1), ..InterfaceFacts::default() }
    }

    #[test]
    fn linux_interfaces_are_told_by_their_facts() {
        use InterfaceKind as K;
        let wireless = InterfaceFacts { wireless: true, ..ethernet() };
        let bridge = InterfaceFacts { bridge: true, ..ethernet() };
        let cable = InterfaceFacts { driver: Some("thunderbolt-net".to_owned()), ..ethernet() };
        let bare = InterfaceFacts { hardware_type: Some(65534), ..InterfaceFacts::default() };
        let loopback = InterfaceFacts { hardware_type: Some(772), ..InterfaceFacts::default() };
        let infiniband = InterfaceFacts { hardware_type: Some(32), ..InterfaceFacts::default() };
        let expected = [
            ("lo", &loopback, K::Loopback),
            ("eth0", &ethernet(), K::Ethernet),
            ("enp3s0", &ethernet(), K::Ethernet),
            ("london", &ethernet(), K::Ethernet),
            ("bond0", &ethernet(), K::Ethernet),
            ("ib0", &infiniband, K::Ethernet),
            ("tb1", &ethernet(), K::Ethernet),
            ("mesh0", &wireless, K::Wifi),
            ("wlp2s0", &ethernet(), K::Wifi),
            ("br0", &bridge, K::Bridge),
            ("bridge0", &bridge, K::Bridge),
            ("vmbr0", &bridge, K::Bridge),
            ("docker0", &bridge, K::Container),
            ("br-0123456789ab", &bridge, K::Container),
            ("br-lan", &bridge, K::Bridge),
            ("veth12ab", &ethernet(), K::Container),
            ("en5", &cable, K::Thunderbolt),
            ("office", &bare, K::Vpn),
            ("wg0", &bare, K::Vpn),
            ("dummy0", &ethernet(), K::Other),
            ("x25", &InterfaceFacts::default(), K::Other),
        ];
        for (name, facts, kind) in expected {
            assert_eq!(InterfaceKind::of(name, facts), kind, "{name}");
        }
    }

    #[test]
    fn mac_interfaces_are_told_by_their_names() {
        use InterfaceKind as K;
        let expected = [
            ("lo0", K::Loopback),
            ("en0", K::Ethernet),
            ("bridge0", K::Thunderbolt),
            ("bridge100", K::Container),
            ("utun3", K::Vpn),
            ("awdl0", K::Other),
            ("llw0", K::Other),
            ("ap1", K::Other),
            ("anpi0", K::Other),
            ("vmenet0", K::Container),
        ];
        for (name, kind) in expected {
            assert_eq!(InterfaceKind::of(name, &InterfaceFacts::default()), kind, "{name}");
        }
    }

    #[test]
    fn a_subnet_ends_where_its_prefix_says() {
        let of = |ip: &str, prefix_bits| InterfaceAddress {
            ip: ip.parse().expect("an address"),
            prefix_bits,
        };
        let has =
            |ours: InterfaceAddress, ip: &str| ours.subnet_has(ip.parse().expect("an address"));
        let v6 = of("2001:db8::1", 64);
        assert!(has(v6, "2001:db8::ffff") && !has(v6, "2001:db8:0:1::1") && !has(v6, "1.2.3.4"));
        assert!(has(of("1.2.3.4", 0), "9.9.9.9"));
        let one = of("1.2.3.4", 32);
        assert!(has(one, "1.2.3.4") && !has(one, "1.2.3.5"));
    }
}
