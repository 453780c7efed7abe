//! Layer: Core.
//!
//! What is on its way between nodes. A link is like a TCP connection: in order, and what was on its way is lost when it breaks.
//! A wild network also loses, repeats and reorders single messages, which no rule may mind.

use crate::election::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One-way delay of a message.
const DELAY_MS: u64 = 1;

/// The links of all nodes.
#[derive(Default)]
pub(super) struct Network {
    /// By sender and receiver: what comes when.
    wires: BTreeMap<(u8, u8), VecDeque<(u64, Message)>>,
    linked: BTreeSet<(u8, u8)>,
    /// From, to: what is sent this way is lost, and nobody is told.
    muted: BTreeSet<(u8, u8)>,
    pub(super) weather: Weather,
}

/// How many of 1000 messages meet with something.
#[derive(Clone, Copy, Default)]
pub(super) struct Weather {
    /// By up to 200 ms.
    pub(super) late: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) overtaking: u64,
}

/// What becomes of a message, by chance.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    pub(super) late_ms: u64,
    pub(super) lost: bool,
    pub(super) repeated: bool,
    pub(super) overtaking: bool,
}

impl Network {
    pub(super) fn is_linked(&self, a: u8, b: u8) -> bool {
        self.linked.contains(&pair(a, b))
    }

    pub(super) fn link(&mut self, a: u8, b: u8) {
        self.linked.insert(pair(a, b));
    }

    /// Whether there was a link.
    pub(super) fn unlink(&mut self, a: u8, b: u8) -> bool {
        self.wires.remove(&(a, b));
        self.wires.remove(&(b, a));
        self.linked.remove(&pair(a, b))
    }

    pub(super) fn links(&self) -> Vec<(u8, u8)> {
        self.linked.iter().copied().collect()
    }

    pub(super) fn neighbours(&self, n: u8) -> Vec<u8> {
        let other = |(a, b): &(u8, u8)| [(*a == n).then_some(*b), (*b == n).then_some(*a)].into_iter().flatten().next();
        self.linked.iter().filter_map(other).collect()
    }

    /// All that goes to or comes from this node is lost.
    pub(super) fn forget(&mut self, n: u8) {
        self.wires.retain(|(from, to), _| *from != n && *to != n);
    }

    pub(super) fn mute(&mut self, from: u8, to: u8) {
        self.muted.insert((from, to));
    }

    pub(super) fn mend(&mut self) {
        self.muted.clear();
    }

    pub(super) fn is_muted(&self, from: u8, to: u8) -> bool {
        self.muted.contains(&(from, to))
    }

    pub(super) fn send(&mut self, now: u64, from: u8, to: u8, message: Message, fate: Fate) {
        if fate.lost {
            return;
        }
        let wire = self.wires.entry((from, to)).or_default();
        let after = wire.back().map_or(0, |(at, _)| *at);
        let at = (now + DELAY_MS + fate.late_ms).max(after);
        if fate.overtaking {
            let at = wire.front().map_or(at, |(first, _)| (*first).max(now + DELAY_MS));
            wire.push_front((at, message.clone()));
        } else {
            wire.push_back((at, message.clone()));
        }
        if fate.repeated {
            let after = wire.back().map_or(at, |(at, _)| *at);
            wire.push_back((after, message));
        }
    }

    /// All that is on its way from one to the other.
    pub(super) fn take(&mut self, from: u8, to: u8) -> Vec<Message> {
        self.wires.remove(&(from, to)).unwrap_or_default().into_iter().map(|(_, message)| message).collect()
    }

    /// The links over which something has come.
    pub(super) fn due(&self, now: u64) -> Vec<(u8, u8)> {
        self.wires.iter().filter(|(_, w)| w.front().is_some_and(|m| m.0 <= now)).map(|(k, _)| *k).collect()
    }

    pub(super) fn pop_due(&mut self, now: u64, from: u8, to: u8) -> Option<Message> {
        let wire = self.wires.get_mut(&(from, to))?;
        if wire.front()?.0 > now { None } else { wire.pop_front().map(|m| m.1) }
    }

    /// When the next message comes, to those who take any.
    pub(super) fn next(&self, takes: impl Fn(u8) -> bool) -> Option<u64> {
        self.wires.iter().filter(|((_, to), _)| takes(*to)).filter_map(|(_, wire)| Some(wire.front()?.0)).min()
    }
}

fn pair(a: u8, b: u8) -> (u8, u8) {
    (a.min(b), a.max(b))
}
