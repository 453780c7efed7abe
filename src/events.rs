//! Layer: Words.
//!
//! What happens to a group, as it happens.

use crate::error::Peer;
use crate::identity::{Name, NodeId};
use crate::view::ViewId;
use std::fmt;
use std::time::Duration;

/// Something that happened, as one node saw it. How things stand is told by
/// [`Status`](crate::Status).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A new View. What it means for its members comes right after it.
    Installed {
        /// Its name.
        view: ViewId,
        /// Its members in rank order.
        members: Vec<Peer>,
        /// Whether they share one history.
        in_sync: bool,
    },
    /// It is in the new View, and was not in this node's View before.
    Joined(Who),
    /// These came together, out of another View than this node's: two groups have met.
    Merged(Vec<Who>),
    /// It said good-bye.
    Left(Who),
    /// The new View had to be made without it.
    Lost {
        /// Who.
        peer: Who,
        /// How that was noticed.
        why: Loss,
    },
    /// It was lost three times within a minute, or has withheld its vote, and is kept out, if enough
    /// others are there.
    Quarantined {
        /// Who.
        peer: Who,
        /// For how long from now on.
        lasts: Duration,
    },
    /// This machine has slept, or this process was stopped: it leaves its View and joins anew.
    Woke,
    /// Two living processes use this identity. The one that came first keeps its place.
    Duplicate(Who),
    /// This node hears it, and is not heard by it.
    OneWay(Who),
    /// The links with it leave by another interface now, or lead to another one of its own.
    PathChanged {
        /// Who.
        peer: Who,
        /// This machine's interface, as its operating system calls it; empty where that is not
        /// known.
        interface: String,
    },
    /// So many events were lost, because they were not taken in time: look at the status.
    Lagged(u64),
}

/// A node, whichever life of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its key.
    pub node: NodeId,
    /// What it calls itself, if this node has ever known.
    pub name: Option<Name>,
}

/// How a loss was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its connection ended and could not be made again: mostly its process has.
    Closed,
    /// Nothing was heard of it for too long.
    Silent,
    /// It may be there, but not everybody who goes on reaches it.
    Unreached,
    /// It lives, and does not vote on operations that the others have given up.
    Withheld,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} {}", self.node),
            None => self.node.fmt(f),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Closed => "its connection ended",
            Loss::Silent => "nothing was heard of it",
            Loss::Unreached => "not everybody reaches it",
            Loss::Withheld => "it is there and does not vote",
        })
    }
}

/// One sentence.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Installed { view, members, in_sync } => {
                let sync = if *in_sync { "" } else { ", not in sync" };
                write!(f, "view {view} of {} members{sync}", members.len())
            }
            Event::Joined(who) => write!(f, "{who} joined"),
            Event::Merged(whose) => {
                let names: Vec<String> = whose.iter().map(Who::to_string).collect();
                write!(f, "another group came in: {}", names.join(", "))
            }
            Event::Left(who) => write!(f, "{who} left"),
            Event::Lost { peer, why } => write!(f, "{peer} was lost: {why}"),
            Event::Quarantined { peer, lasts } => {
                write!(f, "{peer} is kept out for {} s", lasts.as_secs())
            }
            Event::Woke => {
                f.write_str("this machine has slept, or this process was stopped; it joins anew")
            }
            Event::Duplicate(who) => {
                write!(f, "two processes use the identity of {who}; give each its own")
            }
            Event::OneWay(who) => write!(f, "{who} is heard and does not hear this node"),
            Event::PathChanged { peer, interface } => {
                write!(f, "the links with {peer} take another path, by {interface}")
            }
            Event::Lagged(n) => write!(f, "{n} events were not taken in time"),
        }
    }
}
