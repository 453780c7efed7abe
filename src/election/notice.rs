//! Notifications of an election. They are for the user and ask for no action, unlike `Effect`.

use crate::identity::{MemberId, NodeId};
use crate::report::LossReason;

/// A change worth reporting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A member of the new View that was not in this node's View before.
    Joined(MemberId),
    /// Members that come from another View than this node's: two groups have merged.
    Merged(Vec<MemberId>),
    /// A member that is not in the new View and had announced that it leaves.
    Left(MemberId),
    /// A member that is not in the new View, and how the loss was detected.
    Lost(MemberId, LossReason),
    /// The node is in quarantine for this many milliseconds.
    Quarantined(NodeId, u64),
    /// This node was suspended or stopped.
    Woke,
    /// Two living processes use this identity.
    Duplicate(NodeId),
    /// This node hears the member, but the member does not hear this node.
    OneWay(MemberId),
}

/// Bound of the queue of notices; further ones are dropped. The control loop takes all after each
/// step.
pub(super) const NOTICES_MAX: usize = 256;
