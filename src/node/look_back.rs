//! A look back: another node is asked whether it hears and reaches the node that asks.

use crate::identity::NodeId;
use crate::os::wall_clock;
use crate::report::{DialBack, Sight};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Most addresses that are dialled for one look back.
pub(super) const DIALS_MAX: usize = 8;

/// Most faults of a machine that are told.
const FAULTS_MAX: usize = 8;

/// A question for a look back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookBack {
    /// Own addresses to dial; only the first eight are.
    pub dial: Vec<String>,
    /// Any text, so that the question travels in packets of full size.
    pub padding: String,
    /// How many bytes of padding the answer is to have, at most 64 KiB.
    pub pad: usize,
}

impl LookBack {
    /// A question that travels in packets of full size, as its answer does.
    pub(super) fn of(dial: Vec<String>) -> LookBack {
        LookBack { dial, padding: "x".repeat(PADDING_MAX), pad: PADDING_MAX }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookBackAnswer {
    /// The milliseconds since 1970 on the clock of that machine.
    pub clock_ms: u64,
    /// Whether it hears announcements of the node that asks.
    pub hears: bool,
    /// The faults of its machine, in one sentence each.
    pub faults: Vec<String>,
    /// How its dials have ended.
    pub dials: Vec<DialedBack>,
    /// As much padding as was asked for.
    pub padding: String,
}

impl From<LookBackAnswer> for Sight {
    fn from(answer: LookBackAnswer) -> Sight {
        let dials = answer.dials.into_iter().take(DIALS_MAX);
        let here = i64::try_from(wall_clock().as_millis()).unwrap_or(i64::MAX);
        let there = i64::try_from(answer.clock_ms).unwrap_or(i64::MAX);
        Sight {
            clock_ahead_ms: there.saturating_sub(here),
            hears: answer.hears,
            faults: answer.faults.into_iter().take(FAULTS_MAX).collect(),
            dials: dials.map(|DialedBack { to, error }| DialBack { to, error }).collect(),
        }
    }
}

/// A dial for a look back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialedBack {
    /// The address.
    pub to: String,
    /// Why no node answers there; null if one does.
    pub error: Option<String>,
}

/// The answers to one question for a look back.
#[derive(Clone, Debug, Default)]
pub struct LookBackRound {
    /// The nodes whose answers are missing.
    pub waits_for: BTreeSet<NodeId>,
    /// Those that have answered, or have not in time.
    pub answers: Vec<LookedBackOf>,
}

/// The answer of a node; `None` if none has come.
pub type LookedBackOf = (NodeId, Option<Sight>);

/// The knowledge of the control plane about a node that asks for a look back.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whether announcements of it are heard.
    pub(super) hears: bool,
    /// Those of the addresses it names that may be dialled.
    pub(super) dial: Vec<SocketAddr>,
}

/// Most padding of an answer.
pub(super) const PADDING_MAX: usize = 64 << 10;
