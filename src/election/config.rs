//! Layer: Core.
//!
//! The times of an election, and which Views it may make.

use super::detector::Limits;
use crate::partition::Partition;

/// The times of an election, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionConfig {
    /// Between two heartbeats. Shorter costs messages, longer delays the detection of silence.
    pub heartbeat_ms: u64,
    /// Silence limits.
    pub limits: Limits,
    /// A lost connection may be dialled again for so long before its peer counts as gone; for each
    /// of its links where others pass it on.
    pub redial_ms: u64,
    /// How long the group waits for more peers after the last new one, at rest and with operations
    /// in flight.
    pub damping_ms: (u64, u64),
    /// The longest it waits for more peers, at rest and with operations in flight.
    pub damping_cap_ms: (u64, u64),
    /// A proposer's place in the queue times this is how long it lets the others go first.
    pub turn_ms: u64,
    /// Operations in flight may finish for so long before a View is left for a joiner.
    pub drain_ms: u64,
    /// A question that is not answered by all for so long has failed. Whoever is gone is noticed
    /// sooner by other means.
    pub ask_ms: u64,
    /// A phase of a proposal that takes longer has failed.
    pub phase_ms: u64,
    /// The same for a member that waits for its disk.
    pub persisting_ms: u64,
    /// How long a node is kept out that is lost again and again, at first and at most; 0 never
    /// keeps it out.
    pub quarantine_ms: (u64, u64),
    /// Which Views may be made.
    pub partition: Partition,
    /// Whether a node that sees nobody makes a View of its own, when it has waited as long as it
    /// would for joiners.
    pub alone: Alone,
    /// Seed of the jitter.
    pub seed: u64,
}

/// What a node does that sees nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// It waits. The rule, because a group of one is rarely what anybody wants.
    Waits,
    /// It is a group.
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
