//! The change to the next View.

use crate::identity::MemberId;
use crate::protocol::Ballot;
use std::collections::BTreeSet;

/// The change to the next View. It begins anew with each View that is installed.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewChange {
    pub(super) attempt: Attempt,
    /// A `Prepare` whose promise is delayed so that operations can finish.
    pub(super) draining: Option<Drain>,
    /// Do not propose before this time: another proposer is active.
    pub(super) yield_until: u64,
    /// The same, but applies only while this node or one of its peers waits for a disk.
    pub(super) yield_to_disks_until: u64,
    pub(super) yielded_to: Option<MemberId>,
    pub(super) retry_at: u64,
    pub(super) failures: u32,
    pub(super) repair_since: Option<u64>,
    /// Since when another View is wanted and none may be made.
    pub(super) stranded_since: Option<u64>,
    /// This node has been away: until this time it waits for all members of its View, see `beside`.
    pub(super) returning_until: u64,
    /// Since when the View is outgrown, see [`Election::is_outgrown`](super::Election).
    pub(super) outgrown_since: Option<u64>,
    /// This node has lost a data link of the installed View, or that must end for another reason.
    pub(super) broken: bool,
    /// Cache: the candidates and the last answer of [`Election::clique`](super::Election). Cleared
    /// when a reachability report changes.
    pub(super) clique: Option<(BTreeSet<MemberId>, BTreeSet<MemberId>)>,
}

/// The proposer's state. A failure (`*`) also sets `retry_at`, with back-off. A cut-off and a
/// wake-up always return to `Idle`.
///
/// ```text
///        wanted, due, all links up            all Willing
///  Idle ---------------------------> Asking -------------> Proposing
///   ^                                  |                       |
///   +-- ask_ms*, Unwilling*, member ---+                       |
///   |   lost, nothing wanted, another                          |
///   |   Ask goes first                                         |
///   +-- View installed, phase_ms*, Nack*, member lost, --------+
///       another Ask goes first
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Attempt {
    #[default]
    Idle,
    Asking {
        members: BTreeSet<MemberId>,
        willing: BTreeSet<MemberId>,
        until: u64,
    },
    Proposing {
        began: u64,
        /// Start of the phase.
        since: u64,
    },
}

/// A proposal whose promise is delayed.
#[derive(Clone, Debug)]
pub(super) struct Drain {
    pub(super) from: MemberId,
    pub(super) ballot: Ballot,
    pub(super) members: Vec<MemberId>,
    pub(super) until: u64,
}
