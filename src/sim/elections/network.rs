//! Simulated links. A link is like a TCP connection: ordered, and messages in flight are lost when
//! it breaks. At a given rate messages are also late, repeated or reordered; no rule relies on the
//! opposite.

use crate::protocol::Message;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One-way delay of a message.
const DELAY_MS: u64 = 1;

/// The links of all nodes.
#[derive(Default)]
pub(super) struct Network {
    /// By (sender, receiver): messages in flight with their arrival times.
    queues: BTreeMap<(u8, u8), VecDeque<(u64, Message)>>,
    linked: BTreeSet<(u8, u8)>,
    /// Pairs that can never have a direct link.
    walls: BTreeSet<(u8, u8)>,
    /// Relayed links: the relays, in order from the smaller end.
    relayed: BTreeMap<(u8, u8), Vec<u8>>,
    /// Whether nodes relay for others.
    relays: bool,
    /// (From, to): messages in this direction are lost silently.
    muted: BTreeSet<(u8, u8)>,
    pub(super) rates: Rates,
}

/// Probability of each disturbance of a message, in parts per thousand.
#[derive(Clone, Copy, Default)]
pub(super) struct Rates {
    /// Delayed by up to 200 ms.
    pub(super) late: u64,
    pub(super) repeated: u64,
    pub(super) overtaking: u64,
}

/// The disturbances drawn for one message.
#[derive(Clone, Copy, Default)]
pub(super) struct Disturbance {
    pub(super) late_ms: u64,
    pub(super) repeated: bool,
    pub(super) overtaking: bool,
}

impl Network {
    /// Whether there is a direct or relayed link.
    pub(super) fn is_linked(&self, a: u8, b: u8) -> bool {
        self.is_direct(a, b) || self.relayed.contains_key(&pair(a, b))
    }

    pub(super) fn is_direct(&self, a: u8, b: u8) -> bool {
        self.linked.contains(&pair(a, b))
    }

    /// Rules out a direct link between the two for good; others may relay.
    pub(super) fn wall(&mut self, a: u8, b: u8) {
        self.relays = true;
        self.walls.insert(pair(a, b));
    }

    pub(super) fn has_wall(&self, a: u8, b: u8) -> bool {
        self.walls.contains(&pair(a, b))
    }

    /// The relays of the shortest path between two nodes without a link, over direct links that
    /// work in both directions.
    pub(super) fn path(&self, a: u8, b: u8, is_awake: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
        let works =
            |x: u8, y: u8| self.is_direct(x, y) && !self.is_muted(x, y) && !self.is_muted(y, x);
        let mut before = BTreeMap::from([(a, a)]);
        let mut open = VecDeque::from([a]);
        while let Some(at) = open.pop_front().filter(|_| self.relays) {
            let neighbours = self
                .linked
                .iter()
                .flat_map(|(x, y)| [(*x, *y), (*y, *x)])
                .filter(|(x, _)| *x == at);
            for next in
                neighbours.map(|(_, next)| next).filter(|next| works(at, *next)).collect::<Vec<_>>()
            {
                if next == b && at != a {
                    let mut over: Vec<u8> =
                        std::iter::successors(Some(at), |x| before.get(x).copied())
                            .take_while(|x| *x != a)
                            .collect();
                    over.reverse();
                    return Some(over);
                }
                if next != b && is_awake(next) && !before.contains_key(&next) {
                    before.insert(next, at);
                    open.push_back(next);
                }
            }
        }
        None
    }

    /// Links `a` and `b` over these relays, in order from `a`.
    pub(super) fn relay(&mut self, a: u8, b: u8, mut over: Vec<u8>) {
        if a > b {
            over.reverse();
        }
        self.relayed.insert(pair(a, b), over);
    }

    /// The relayed links that use this direct one.
    pub(super) fn relayed_over(&self, a: u8, b: u8) -> Vec<(u8, u8)> {
        let uses = |ends: &(u8, u8)| {
            self.legs(ends.0, ends.1).iter().any(|leg| pair(leg.0, leg.1) == pair(a, b))
        };
        self.relayed.keys().filter(|ends| uses(ends)).copied().collect()
    }

    /// The direct links of the path, in order; a direct link is its own only leg.
    fn legs(&self, from: u8, to: u8) -> Vec<(u8, u8)> {
        let Some(over) = self.relayed.get(&pair(from, to)) else { return vec![(from, to)] };
        let mut nodes = vec![from.min(to)];
        nodes.extend(over);
        nodes.push(from.max(to));
        if from > to {
            nodes.reverse();
        }
        nodes.windows(2).map(|two| (two[0], two[1])).collect()
    }

    /// Whether messages in this direction are lost on the path.
    pub(super) fn loses(&self, from: u8, to: u8) -> bool {
        self.legs(from, to).into_iter().any(|(a, b)| self.is_muted(a, b))
    }

    pub(super) fn link(&mut self, a: u8, b: u8) {
        self.relayed.remove(&pair(a, b));
        self.linked.insert(pair(a, b));
    }

    /// Removes the link. Returns whether there was one.
    pub(super) fn unlink(&mut self, a: u8, b: u8) -> bool {
        self.queues.remove(&(a, b));
        self.queues.remove(&(b, a));
        let was_relayed = self.relayed.remove(&pair(a, b)).is_some();
        self.linked.remove(&pair(a, b)) || was_relayed
    }

    pub(super) fn neighbours(&self, n: u8) -> Vec<u8> {
        let other = |(a, b): &(u8, u8)| {
            [(*a == n).then_some(*b), (*b == n).then_some(*a)].into_iter().flatten().next()
        };
        self.linked.iter().chain(self.relayed.keys()).filter_map(other).collect()
    }

    /// Loses all messages in flight to and from this node.
    pub(super) fn forget(&mut self, n: u8) {
        self.queues.retain(|(from, to), _| *from != n && *to != n);
    }

    /// Loses messages in this direction silently; the other direction works.
    pub(super) fn mute(&mut self, from: u8, to: u8) {
        self.muted.insert((from, to));
    }

    pub(super) fn mend(&mut self) {
        self.muted.clear();
    }

    pub(super) fn is_muted(&self, from: u8, to: u8) -> bool {
        self.muted.contains(&(from, to))
    }

    pub(super) fn send(&mut self, now: u64, from: u8, to: u8, message: Message, how: Disturbance) {
        let queue = self.queues.entry((from, to)).or_default();
        let after = queue.back().map_or(0, |(at, _)| *at);
        let delay_ms = DELAY_MS * self.legs(from, to).len() as u64;
        let queue = self.queues.entry((from, to)).or_default();
        let at = (now + delay_ms + how.late_ms).max(after);
        if how.overtaking {
            let at = queue.front().map_or(at, |(first, _)| (*first).max(now + delay_ms));
            queue.push_front((at, message.clone()));
        } else {
            queue.push_back((at, message.clone()));
        }
        if how.repeated {
            let after = queue.back().map_or(at, |(at, _)| *at);
            queue.push_back((after, message));
        }
    }

    /// Takes all messages in flight from one node to another.
    pub(super) fn take(&mut self, from: u8, to: u8) -> Vec<Message> {
        self.queues
            .remove(&(from, to))
            .unwrap_or_default()
            .into_iter()
            .map(|(_, message)| message)
            .collect()
    }

    /// The (sender, receiver) pairs with a message that has arrived.
    pub(super) fn due(&self, now: u64) -> Vec<(u8, u8)> {
        self.queues
            .iter()
            .filter(|(_, w)| w.front().is_some_and(|m| m.0 <= now))
            .map(|(k, _)| *k)
            .collect()
    }

    pub(super) fn pop_due(&mut self, now: u64, from: u8, to: u8) -> Option<Message> {
        let queue = self.queues.get_mut(&(from, to))?;
        if queue.front()?.0 > now { None } else { queue.pop_front().map(|m| m.1) }
    }

    /// Arrival time of the next message to a node that accepts one.
    pub(super) fn next(&self, takes: impl Fn(u8) -> bool) -> Option<u64> {
        self.queues
            .iter()
            .filter(|((_, to), _)| takes(*to))
            .filter_map(|(_, queue)| Some(queue.front()?.0))
            .min()
    }
}

fn pair(a: u8, b: u8) -> (u8, u8) {
    (a.min(b), a.max(b))
}
