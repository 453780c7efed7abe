//! The phase of the group's work in which the fault occurs.
//!
//! The program under test does not know phases. A call's progress is measured by the bytes that the
//! victim has received: the first half is the reduce-scatter, the second half the all-gather. The
//! fault is *requested* at that point. A signal arrives within a millisecond, a network change
//! within about ten; the call takes about a second.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use potluck_harness::{Chance, Group};
use serde_json::Value;

use crate::fault::{Held, Ready};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No call is in flight; all members call right after the fault.
    Idle,
    /// Between 10 % and 40 % of the bytes have arrived.
    ReduceScatter,
    /// Between 60 % and 90 % of the bytes have arrived.
    AllGather,
    /// The last bytes or the vote are in transit, or the call is complete; random.
    BeforeDone,
    /// Another member has just been killed in the middle of the call; the moment is random.
    ViewChange,
    /// Between 10 % and 90 % of the bytes of a call have arrived, which the members make as a
    /// sub-group: another member of the View takes no part in it.
    SubGroup,
}

/// The phases of a call of all members.
pub const OF_ALL: [Phase; 5] =
    [Phase::Idle, Phase::ReduceScatter, Phase::AllGather, Phase::BeforeDone, Phase::ViewChange];

pub const ALL: [Phase; 6] = {
    let [idle, scatter, gather, done, change] = OF_ALL;
    [idle, scatter, gather, done, change, Phase::SubGroup]
};

/// The share of bytes at which the other member is killed, and the maximum time until the fault in
/// milliseconds: the duration of a View change here.
const CHANGE_AT: f64 = 0.5;
const CHANGE_MS: usize = 30;

impl Phase {
    /// The name that `--phase` accepts.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::ReduceScatter => "reduce-scatter",
            Phase::AllGather => "all-gather",
            Phase::BeforeDone => "before-done",
            Phase::ViewChange => "view-change",
            Phase::SubGroup => "sub-group",
        }
    }

    /// How many extra members the group has: the last ones. One is killed in a change of the View,
    /// and one is outside of a sub-group.
    pub fn extra(self) -> usize {
        usize::from(matches!(self, Phase::ViewChange | Phase::SubGroup))
    }

    /// The first `callers` members call `order` if the phase is part of a call; the fault is
    /// injected when the group is in the phase.
    pub fn struck_by(
        self,
        mut fault: Ready,
        group: &mut Group,
        victim: usize,
        (order, callers): (&Value, usize),
        chance: &mut Chance,
    ) -> Result<Held> {
        let share = match self {
            Phase::Idle => None,
            Phase::ReduceScatter => Some(0.1 + 0.3 * chance.unit()),
            Phase::AllGather => Some(0.6 + 0.3 * chance.unit()),
            // A slow fault is requested earlier.
            Phase::BeforeDone if fault.is_slow() => Some(0.92 + 0.06 * chance.unit()),
            Phase::BeforeDone => Some(0.95 + 0.05 * chance.unit()),
            Phase::ViewChange => Some(CHANGE_AT),
            Phase::SubGroup => Some(0.1 + 0.8 * chance.unit()),
        };
        if let Some(share) = share {
            group.on_the_way_of(callers, victim, order, share).context("before the fault")?;
        }
        // Part of the fault: the time between the loss of a member and the fault, so that the fault
        // falls into any moment of the change of the View.
        let apart = Duration::from_millis(chance.below(CHANGE_MS) as u64);
        // Dropping a `Peer` kills it: the last, extra member.
        let change = |group: &mut Group| drop(group.peers.pop());
        match (self, fault.is_slow()) {
            (Phase::ViewChange, true) => {
                fault.strike(group, victim)?;
                thread::sleep(apart);
                change(group);
            }
            (Phase::ViewChange, false) => {
                change(group);
                thread::sleep(apart);
                fault.strike(group, victim)?;
            }
            _ => fault.strike(group, victim)?,
        }
        fault.struck(group, victim)
    }
}
