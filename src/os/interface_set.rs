//! The network interfaces of this machine, which change while a node runs: cables are plugged in
//! and pulled, and Wi-Fi connects.

use super::address::AddressPolicy;
use super::interface::Interface;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The network interfaces of this machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSet {
    /// All interfaces that are up and have an address.
    pub all: Vec<Interface>,
    /// The interfaces that a node uses: it announces itself there and dials nodes behind them.
    pub chosen: Vec<Interface>,
    /// The discovered addresses that may be dialled.
    pub policy: AddressPolicy,
    /// Own addresses on cables that the user declared as trusted.
    pub trusted: BTreeSet<IpAddr>,
}

/// The source of [`InterfaceSet`].
pub trait InterfaceSource: Send {
    /// The present state; `None` if the system does not report it. Blocks no longer than reading a
    /// few small files takes.
    fn look(&mut self) -> Option<InterfaceSet>;
}

impl InterfaceSet {
    /// For a node whose addresses come from another source.
    pub fn none() -> InterfaceSet {
        InterfaceSet {
            all: Vec::new(),
            chosen: Vec::new(),
            policy: AddressPolicy::everywhere(),
            trusted: BTreeSet::new(),
        }
    }

    /// Whether this is one of the machine's addresses now.
    pub(crate) fn has(&self, at: SocketAddr) -> bool {
        self.of(at).is_some()
    }

    /// The interface that has this local address.
    pub(crate) fn of(&self, at: SocketAddr) -> Option<&Interface> {
        let ip = at.ip().to_canonical();
        // An interface may have got its link-local address after the last look; its scope
        // identifies it as well.
        let is_scoped = |index: u32| {
            matches!(
                at,
                SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.scope_id() == index
            )
        };
        self.all.iter().find(|i| is_scoped(i.index) || i.addresses.iter().any(|a| a.ip == ip))
    }
}

/// Interfaces that never change, for nodes in memory.
pub struct FixedInterfaces;

impl InterfaceSource for FixedInterfaces {
    fn look(&mut self) -> Option<InterfaceSet> {
        None
    }
}
