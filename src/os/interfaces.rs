//! The network interfaces of this machine, as the operating system reports them.

use super::interface::{Interface, InterfaceAddress, InterfaceFacts, InterfaceKind};
use if_addrs::{IfAddr, IfOperStatus};
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// The interfaces that are up and have an address, by index. This is a snapshot: cables and radios
/// come and go.
///
/// On Linux the kind, speed and MTU come from `/sys/class/net`. On other systems the kind follows
/// from the name, and speed and MTU are unknown. Fails if the operating system does not list its
/// interfaces.
pub fn inventory() -> io::Result<Vec<Interface>> {
    let mut interfaces = BTreeMap::<u32, Interface>::new();
    for entry in if_addrs::get_if_addrs()? {
        // An interface without an index has disappeared since it was listed; one without a carrier
        // leads nowhere.
        let (Some(index), IfOperStatus::Up) = (entry.index, &entry.oper_status) else { continue };
        let interface =
            interfaces.entry(index).or_insert_with(|| describe(Path::new(SYS_NET), index, &entry));
        interface.addresses.push(address_of(&entry.addr));
    }
    for interface in interfaces.values_mut() {
        interface.addresses.sort_unstable();
    }
    Ok(interfaces.into_values().collect())
}

/// An address with its subnet, as the system lists it.
pub(crate) fn address_of(addr: &IfAddr) -> InterfaceAddress {
    let prefix_bits = match addr {
        IfAddr::V4(v4) => v4.prefixlen,
        IfAddr::V6(v6) => v6.prefixlen,
    };
    InterfaceAddress { ip: addr.ip(), prefix_bits }
}

fn describe(sys_net: &Path, index: u32, entry: &if_addrs::Interface) -> Interface {
    let sys = sys_net.join(&entry.name);
    let facts = InterfaceFacts { point_to_point: entry.is_p2p(), ..facts_of(&sys) };
    Interface {
        name: entry.name.clone(),
        index,
        kind: InterfaceKind::of(&entry.name, &facts),
        addresses: Vec::new(),
        // An unplugged cable reports speed -1, and the speed of virtual interfaces cannot be read.
        speed_mbps: number(&sys.join("speed")).filter(|mbps| *mbps > 0),
        mtu: number(&sys.join("mtu")),
    }
}

fn facts_of(sys: &Path) -> InterfaceFacts {
    let driver = fs::read_link(sys.join("device/driver")).ok();
    InterfaceFacts {
        hardware_type: number(&sys.join("type")),
        driver: driver
            .and_then(|link| link.file_name().map(|name| name.to_string_lossy().into_owned())),
        wireless: sys.join("wireless").exists() || sys.join("phy80211").exists(),
        bridge: sys.join("bridge").exists(),
        point_to_point: false,
    }
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

const SYS_NET: &str = "/sys/class/net";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn this_machine_has_a_loopback_that_is_not_usable() {
        let interfaces = inventory().expect("the system lists its interfaces");
        let loopback = interfaces
            .iter()
            .find(|i| i.kind == InterfaceKind::Loopback)
            .expect("a loopback interface");
        let localhost = InterfaceAddress { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix_bits: 8 };
        assert!(loopback.addresses.contains(&localhost));
        assert!(!loopback.usable());
        assert!(interfaces.windows(2).all(|pair| pair[0].index < pair[1].index));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn facts_are_read_from_sys() {
        let root = std::env::temp_dir().join(format!("potluck-interfaces-{}", std::process::id()));
        let sys = root.join("net0");
        fs::create_dir_all(sys.join("phy80211")).expect("writable");
        fs::create_dir_all(sys.join("device")).expect("writable");
        std::os::unix::fs::symlink("../../drivers/iwlwifi", sys.join("device/driver"))
            .expect("writable");
        for (file, text) in [("type", "1\n"), ("mtu", "1500\n"), ("speed", "-1\n")] {
            fs::write(sys.join(file), text).expect("writable");
        }
        let expected = InterfaceFacts {
            hardware_type: Some(1),
            driver: Some("iwlwifi".to_owned()),
            wireless: true,
            ..InterfaceFacts::default()
        };
        let (facts, mtu, speed) =
            (facts_of(&sys), number(&sys.join("mtu")), number(&sys.join("speed")));
        let absent = facts_of(&root.join("absent"));
        fs::remove_dir_all(&root).expect("ours");
        assert_eq!((facts, mtu, speed), (expected, Some(1500), None));
        assert_eq!(absent, InterfaceFacts::default());
    }
}
