//! Layer: Core.
//!
//! What an election has to tell besides what it wants done.

use crate::events::Loss;
use crate::identity::{MemberId, NodeId};

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It is in the new View and was not in the one before.
    Joined(MemberId),
    /// These came out of a View of their own.
    Merged(Vec<MemberId>),
    /// It is not in the new View, and said so before.
    Left(MemberId),
    /// It is not in the new View.
    Lost(MemberId, Loss),
    /// It is kept out for so many milliseconds.
    Quarantined(NodeId, u64),
    /// This node was away.
    Woke,
    /// Two living processes use this identity.
    Twin(NodeId),
    /// It is heard, and does not hear this node.
    OneWay(MemberId),
}

/// Most that wait to be taken; whoever steps takes them after each step.
pub(super) const NOTICES_MAX: usize = 256;
