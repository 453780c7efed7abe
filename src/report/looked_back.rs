//! The answers of nodes that look back at an observer.

use super::events::NodeInfo;

/// The result of a look back by an observed node, see
/// [`Observer::look_back`](crate::Observer::look_back).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookedBack {
    /// The node.
    pub peer: NodeInfo,
    /// Its answer; `None` if none has come although its link stood.
    pub sight: Option<Sight>,
}

/// The answer of a node that looked back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sight {
    /// The clock of its machine when it answered, minus that of this machine when the answer came,
    /// in milliseconds. It is too low by the time that the answer took.
    pub clock_ahead_ms: i64,
    /// Whether it hears the announcements of the observer.
    pub hears: bool,
    /// The faults of its machine, in one sentence each.
    pub faults: Vec<String>,
    /// How its dials of the observer's addresses have ended. It dials only addresses in its own
    /// subnets, and other private ones.
    pub dials: Vec<DialBack>,
}

/// A dial of a node that looked back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DialBack {
    /// The address, as text.
    pub to: String,
    /// Why the observer does not answer there; `None` if it does.
    pub error: Option<String>,
}
