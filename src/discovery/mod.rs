//! Layer: Doors.
//!
//! How nodes hear of each other.
//!
//! Whoever wants to be found announces an [`Advert`]; everybody gets a [`Sighting`] of it. That is
//! a hint, never a proof: the [`Roster`] decides which addresses are worth a dial and how often,
//! and only the handshake behind the dial says who is there. Peers named by hand, told by members
//! or remembered from an earlier run go the same way, so a network without multicast costs a hint,
//! not a cluster.

mod address;
mod candidate;
mod fixed;
mod mdns;
mod memory;
mod paths;
mod rate;
mod report;
mod roster;
mod sighting;

#[cfg(test)]
mod contract;

pub use address::{AddressPolicy, Subnet};
pub use fixed::FixedPeer;
pub use mdns::{MdnsDiscovery, MdnsScope};
pub use memory::Medium;
pub use paths::{Paths, Trial, is_same_place, ways};
pub use report::{Activity, DiscoveryProblem, InterfaceReport, Skip};
pub use roster::{DialOutcome, Limits, Origin, Roster};
pub use sighting::{Advert, Sighting};

use async_trait::async_trait;

/// A way to be found and to find.
#[async_trait]
pub trait Discovery: Send {
    /// Announces this node until [`withdraw`](Discovery::withdraw), in place of what was announced
    /// before. At once, except that a name just withdrawn must first be forgotten by the others,
    /// which takes up to two seconds.
    async fn announce(&mut self, advert: &Advert) -> Result<(), DiscoveryProblem>;

    /// What was noticed next; waits without bound. Cancel-safe. Own announcements are not reported;
    /// the same advert may be, any number of times.
    async fn next(&mut self) -> Sighting;

    /// The interfaces that a node uses are these now. Where discovery is not bound to interfaces
    /// nothing changes.
    fn follow(&mut self, _interfaces: &[String]) {}

    /// What happened on each interface so far.
    fn report(&self) -> Vec<InterfaceReport>;

    /// Takes the announcement back and says so to the others; returns within a second.
    async fn withdraw(&mut self);
}
