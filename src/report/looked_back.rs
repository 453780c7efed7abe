//! What other nodes see when they look back at an observer.

use super::events::NodeInfo;
use std::time::Duration;

/// What an observed node has seen when it looked back, see
/// [`Observer::look_back`](crate::Observer::look_back).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookedBack {
    /// The node.
    pub peer: NodeInfo,
    /// Its answer; `None` if none has come.
    pub sight: Option<Sight>,
}

/// The answer of a node that looked back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sight {
    /// The time since 1970 on the clock of its machine when it answered.
    pub clock: Duration,
    /// Whether it hears the announcements of the observer.
    pub hears: bool,
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
