//! The interfaces on which multicast is used.

use if_addrs::Interface;
use mdns_sd::IfKind;
use std::net::{IpAddr, Ipv4Addr};

/// The interfaces on which multicast is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MdnsScope {
    /// Only 127.0.0.1, for nodes of one machine.
    Loopback,
    /// These interfaces, by name or by one of their IP addresses, with IPv4 and IPv6, whenever they
    /// are present.
    Interfaces(Vec<String>),
}

impl MdnsScope {
    /// The names of its interfaces for the responder.
    pub(super) fn kinds(&self) -> Vec<IfKind> {
        match self {
            MdnsScope::Loopback => vec![IfKind::LoopbackV4],
            MdnsScope::Interfaces(names) => names.iter().flat_map(|name| kinds_of(name)).collect(),
        }
    }

    /// Whether it names this address or its interface.
    pub(super) fn names(&self, at: &Interface) -> bool {
        match self {
            MdnsScope::Loopback => at.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST),
            MdnsScope::Interfaces(names) => {
                names.iter().any(|name| *name == at.name || name.parse() == Ok(at.ip()))
            }
        }
    }

    /// Whether it has this interface, by its name.
    pub(super) fn has_name(&self, interface: &str) -> bool {
        matches!(self, MdnsScope::Interfaces(names) if names.iter().any(|name| name == interface))
    }

    /// Whether the address is announced: on loopback only 127.0.0.1, elsewhere all addresses of the
    /// interface.
    pub(super) fn announces(&self, at: &Interface) -> bool {
        *self != MdnsScope::Loopback || self.names(at)
    }
}

/// An interface named by one address is used with both families, so its other addresses count as
/// well.
pub(super) fn kinds_of(name: &str) -> Vec<IfKind> {
    let Ok(ip) = name.parse::<IpAddr>() else { return vec![IfKind::from(name)] };
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let found = interfaces.iter().find(|at| at.ip() == ip);
    vec![found.map_or(IfKind::Addr(ip), |at| IfKind::Name(at.name.clone()))]
}
