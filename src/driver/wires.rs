//! Layer: Host.
//!
//! How this machine is connected, which changes while a node runs: cables are plugged in and
//! pulled, radios find their network.

use crate::discovery::AddressPolicy;
use crate::topology::Interface;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The network of this machine at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// All interfaces that are up and have an address.
    pub all: Vec<Interface>,
    /// Those that a node uses: it announces itself there, and dials what lies behind them.
    pub chosen: Vec<Interface>,
    /// Which hints may be dialled.
    pub policy: AddressPolicy,
    /// Own addresses on cables that the user declared as trusted.
    pub trusted: BTreeSet<IpAddr>,
}

/// Looks at it.
pub trait Wires: Send {
    /// How it is now; `None` when the system does not tell. Does not block for longer than reading
    /// some small files takes.
    fn look(&mut self) -> Option<Wiring>;
}

impl Wiring {
    /// Of a machine whose addresses are told in another way.
    pub fn none() -> Wiring {
        Wiring {
            all: Vec::new(),
            chosen: Vec::new(),
            policy: AddressPolicy::Lan(Vec::new()),
            trusted: BTreeSet::new(),
        }
    }

    /// Whether this is one of the machine's own addresses now.
    pub(super) fn has(&self, at: SocketAddr) -> bool {
        self.of(at).is_some()
    }

    /// The interface with this address of the machine's own.
    pub(super) fn of(&self, at: SocketAddr) -> Option<&Interface> {
        let ip = at.ip().to_canonical();
        // An interface may have got its link-local address since it was looked at; the scope tells
        // which it is all the same.
        let is_scoped = |index: u32| matches!(at, SocketAddr::V6(v6) if v6.scope_id() != 0 && v6.scope_id() == index);
        self.all.iter().find(|i| is_scoped(i.index) || i.addresses.iter().any(|a| a.ip == ip))
    }
}

/// Wires that nobody pulls: those of nodes in memory.
pub struct Unchanging;

impl Wires for Unchanging {
    fn look(&mut self) -> Option<Wiring> {
        None
    }
}
