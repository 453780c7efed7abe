//! How nodes find each other.
//!
//! A node announces an [`Advert`], and every other node gets a [`Sighting`] of it. A sighting is a
//! hint, not a proof: the [`Roster`] decides which addresses are dialled and how often, and only
//! the handshake verifies the peer. Peers that are configured, reported by members or stored by an
//! earlier run take the same route, so a network without multicast loses hints, but the cluster
//! still forms.

mod address_evidence;
mod candidate;
#[cfg(test)]
mod contract;
mod dial_outcome;
mod fixed;
mod mdns;
mod memory;
mod origin;
mod other_jobs;
mod paths;
mod relation;
mod report;
mod roster;
mod sighting;

pub use address_evidence::AddressEvidence;
use async_trait::async_trait;
pub use dial_outcome::DialOutcome;
pub use fixed::{DEFAULT_PORTS, FixedPeer};
pub use mdns::{MdnsDiscovery, MdnsScope};
pub use memory::Medium;
pub use origin::Origin;
pub use paths::{Paths, Trial, is_same_interface, reachable};
pub use relation::Relation;
use report::DiscoveryProblem;
pub use report::{Activity, InterfaceReport, SkipReason};
pub use roster::{Dial, Limits, Roster};
#[cfg(test)]
pub(crate) use sighting::advert;
pub use sighting::{Advert, Sighting, Tags};

/// Announces this node and finds others.
#[async_trait]
pub trait Discovery: Send {
    /// Announces this node until [`withdraw`](Discovery::withdraw), in place of the earlier
    /// announcement. Takes effect at once, except that an instance name that was just withdrawn
    /// waits for up to two seconds, until the other nodes have forgotten it.
    async fn announce(&mut self, advert: &Advert) -> Result<(), DiscoveryProblem>;

    /// Waits for the next sighting, without a bound. Cancel-safe. Own announcements are not
    /// reported; the same advert may be reported any number of times.
    async fn next(&mut self) -> Sighting;

    /// Sets the interfaces to use from now on. Does nothing in implementations that are not bound
    /// to interfaces.
    fn follow(&mut self, _interfaces: &[String]) {}

    /// The activity on each interface so far.
    fn report(&self) -> Vec<InterfaceReport>;

    /// Withdraws the announcement and tells the other nodes so; returns within a second.
    async fn withdraw(&mut self);
}
