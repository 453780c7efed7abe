//! What the group is doing when it happens.
//!
//! Nothing in the program under test knows of phases. A call is watched by the bytes that the
//! victim has received: half of them are the reduce-scatter, the other half the all-gather. That is
//! where the fault is *asked for*; a signal arrives within a millisecond, a change of the network
//! within some ten, of a call that takes about a second.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use potluck_harness::{Chance, Group};
use serde_json::Value;

use crate::fault::Ready;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No call is under way; everybody calls right after it.
    Idle,
    /// From a tenth to two fifths of the bytes are in.
    ReduceScatter,
    /// From six to nine tenths.
    AllGather,
    /// The last bytes are on their way, or the vote, or it is all over. A matter of chance.
    BeforeDone,
    /// Another member has just been killed in the middle of the call. A matter of chance.
    ViewChange,
}

pub const ALL: [Phase; 5] =
    [Phase::Idle, Phase::ReduceScatter, Phase::AllGather, Phase::BeforeDone, Phase::ViewChange];

/// The share of bytes at which the other member is killed, and the most that may be between that
/// and the fault, in milliseconds: as long as a View change takes here.
const CHANGE_AT: f64 = 0.5;
const CHANGE_MS: usize = 30;

impl Phase {
    /// As `--phase` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "idle",
            Phase::ReduceScatter => "reduce-scatter",
            Phase::AllGather => "all-gather",
            Phase::BeforeDone => "before-done",
            Phase::ViewChange => "view-change",
        }
    }

    /// How many more there are in the group, who do not live through it: the last ones.
    pub fn extra(self) -> usize {
        usize::from(self == Phase::ViewChange)
    }

    /// Everybody calls as `order` says, if the phase is one of a call; the fault strikes when the
    /// group is in the phase.
    pub fn struck_by(
        self,
        mut fault: Ready,
        group: &mut Group,
        victim: usize,
        order: &Value,
        chance: &mut Chance,
    ) -> Result<()> {
        let share = match self {
            Phase::Idle => None,
            Phase::ReduceScatter => Some(0.1 + 0.3 * chance.unit()),
            Phase::AllGather => Some(0.6 + 0.3 * chance.unit()),
            // A slow one is asked for somewhat earlier.
            Phase::BeforeDone if fault.is_slow() => Some(0.92 + 0.06 * chance.unit()),
            Phase::BeforeDone => Some(0.95 + 0.05 * chance.unit()),
            Phase::ViewChange => Some(CHANGE_AT),
        };
        if let Some(share) = share {
            group.on_the_way(victim, order, share).context("before the fault")?;
        }
        let apart = Duration::from_millis(chance.below(CHANGE_MS) as u64);
        // Whoever leaves the group's hands is killed: the last one, if it is too many.
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
