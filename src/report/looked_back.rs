//! What other nodes see when they look back at an observer.

use super::events::NodeInfo;

/// What an observed node has seen when it looked back, see
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
    /// By how many milliseconds the clock of its machine is ahead of this machine's, as it seems:
    /// less the time that the answer took.
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
