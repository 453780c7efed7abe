//! The network interfaces of this machine, and the addresses at which this node answers there.

use crate::discovery::{Advert, Tags, reachable};
use crate::identity::Boot;
use crate::os::{Interface, InterfaceSet, InterfaceSource};
use crate::topology::Port;
use crate::trace;
use crate::wire::PROTOCOL_VERSION;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// The interfaces at the last look, and the announcement of this node on them.
pub(super) struct Network {
    interface_source: Box<dyn InterfaceSource>,
    interface_set: InterfaceSet,
    look_at: Instant,
    /// The instance name of the announcement.
    instance: String,
    port: u16,
    /// Own addresses to announce; empty if discovery determines them.
    advertised: Vec<SocketAddr>,
}

/// The changes since the last look.
pub(super) struct Rewired {
    /// The names of the interfaces that are used now.
    pub(super) chosen: Vec<String>,
    /// They are other ones, or have other addresses.
    pub(super) has_moved: bool,
}

impl Network {
    pub(super) fn new(
        interface_source: Box<dyn InterfaceSource>,
        interface_set: InterfaceSet,
        instance: String,
        port: u16,
        advertised: Vec<SocketAddr>,
    ) -> Network {
        Network {
            interface_source,
            interface_set,
            look_at: Instant::now(),
            instance,
            port,
            advertised,
        }
    }

    /// Looks at the interfaces, if it is time. `None` if nothing has changed.
    pub(super) fn look(&mut self, now: Instant) -> Option<Rewired> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK;
        let interface_set = self
            .interface_source
            .look()
            .filter(|interface_set| *interface_set != self.interface_set)?;
        let before = std::mem::replace(&mut self.interface_set, interface_set);
        let names =
            |chosen: &[Interface]| chosen.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
        let chosen = names(&self.interface_set.chosen);
        trace::info!(before = ?names(&before.chosen), now = ?chosen, "the network of this machine \
            has changed");
        let addresses = |interface_set: &InterfaceSet| {
            interface_set
                .chosen
                .iter()
                .map(|i| (i.name.clone(), i.addresses.clone()))
                .collect::<Vec<_>>()
        };
        Some(Rewired { chosen, has_moved: addresses(&self.interface_set) != addresses(&before) })
    }

    pub(super) fn interface_set(&self) -> &InterfaceSet {
        &self.interface_set
    }

    /// The port of this machine that has this local address; `None` if no interface has it now.
    pub(super) fn port_of(&self, at: SocketAddr) -> Option<Port> {
        self.interface_set.of(at).map(|interface| Port::unmeasured(interface.kind, interface.index))
    }

    /// The name of that interface.
    pub(super) fn name_of(&self, at: Option<SocketAddr>) -> Option<String> {
        at.and_then(|at| self.interface_set.of(at)).map(|interface| interface.name.clone())
    }

    /// Whether the interface that had this local address is gone.
    pub(super) fn is_cut_off(&self, ours: Option<SocketAddr>) -> bool {
        !self.interface_set.all.is_empty() && ours.is_some_and(|ours| !self.interface_set.has(ours))
    }

    /// The addresses among `theirs` to which this machine's interfaces lead, the most promising
    /// first.
    pub(super) fn reachable(&self, theirs: &[SocketAddr]) -> Vec<SocketAddr> {
        reachable(&self.interface_set.chosen, theirs)
    }

    /// The IPv4 subnets of the interfaces in use, or all of them if there is none, as
    /// `10.77.0.1/24`.
    pub(super) fn subnets(&self) -> Vec<String> {
        let all = || self.interface_set.chosen.iter().flat_map(|i| &i.addresses);
        let has_ipv4 = all().any(|a| a.ip.is_ipv4());
        let shown = all().filter(|a| a.ip.is_ipv4() || !has_ipv4);
        shown.map(|a| format!("{}/{}", a.ip, a.prefix_bits)).collect()
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The announcement of this node.
    pub(super) fn advert(&self, boot: Boot, tags: Tags) -> Advert {
        Advert {
            instance: self.instance.clone(),
            boot,
            tags: Some(tags),
            version: PROTOCOL_VERSION,
            suites: 1,
            pairing: None,
            port: self.port,
            addresses: self.advertised.clone(),
        }
    }

    /// The addresses that this node tells other members, the preferred ones first.
    pub(super) fn own_addresses(&self) -> Vec<SocketAddr> {
        let mut own = self.advertised.clone();
        if own.is_empty() {
            let ips = self.interface_set.chosen.iter().flat_map(|i| &i.addresses).map(|a| a.ip);
            own = ips.map(|ip| SocketAddr::new(ip, self.port)).collect();
        }
        // IPv4 addresses are preferred, and an interface may have many others.
        own.sort_by_key(|at| match at.ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        });
        own.truncate(Advert::ADDRESSES_MAX);
        own
    }
}
