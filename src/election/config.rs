//! Timeouts of an election, and the rule for Views it may make.

use super::detector::Limits;
use crate::protocol::Partition;

/// Timeouts of an election, in milliseconds, and the rule for Views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Heartbeat interval. Shorter costs messages, longer delays failure detection.
    pub heartbeat_ms: u64,
    /// Silence limits of the failure detector on wired links; a radio raises them.
    pub limits: Limits,
    /// A closed direct link may be re-dialled for this long before its peer counts as lost. A
    /// relayed link gets this much for each of its links, at most three times.
    pub redial_ms: u64,
    /// How long the group waits for more peers after the newest one: (at rest, with operations in
    /// flight).
    pub damping_ms: (u64, u64),
    /// Upper bound of that wait, counted from the first new peer: (at rest, with operations in
    /// flight).
    pub damping_cap_ms: (u64, u64),
    /// Delay between two neighbours in the queue of proposers: a proposer waits its position times
    /// this for the ones ahead of it.
    pub turn_ms: u64,
    /// Operations in flight get this long to finish before a View without losses is left.
    pub drain_ms: u64,
    /// An `Ask` without an answer from all members has failed after this. Lost members are usually
    /// detected sooner.
    pub ask_ms: u64,
    /// A phase of a proposal (promises, acceptances) has failed after this.
    pub phase_ms: u64,
    /// The same while all missing members wait for their disks. After this a disk counts as stuck.
    pub persisting_ms: u64,
    /// Quarantine of a node that is lost repeatedly: (first, maximum). A first value of 0 disables
    /// it.
    pub quarantine_ms: (u64, u64),
    /// Rule for the Views that may be made.
    pub partition: Partition,
    /// Whether a node without peers forms a View of its own, `damping_cap_ms.0` after its start.
    pub alone: Alone,
    /// Seed of the jitter.
    pub seed: u64,
}

/// Behaviour of a node that has no peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It waits. The default, because a group of one is rarely wanted.
    Waits,
    /// It forms a View of one.
    Forms,
}

impl Default for ElectionConfig {
    fn default() -> ElectionConfig {
        ElectionConfig {
            heartbeat_ms: 250,
            limits: Limits::WIRED,
            redial_ms: 300,
            damping_ms: (100, 500),
            damping_cap_ms: (1000, 3000),
            turn_ms: 150,
            drain_ms: 500,
            ask_ms: 500,
            phase_ms: 2000,
            persisting_ms: 5000,
            quarantine_ms: (10_000, 300_000),
            partition: Partition::default(),
            alone: Alone::Waits,
            seed: 0,
        }
    }
}
