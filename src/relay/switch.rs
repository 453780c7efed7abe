//! A node's part in all circuits that touch it: it relays the circuits of others, and holds the
//! ends of its own.
//!
//! For each incoming frame at most one is passed on. A circuit's window bounds its bytes in flight,
//! and every node checks it, so the bytes of a circuit in a link's queue are bounded, too. A
//! neighbour that exceeds a window or breaks the protocol is dishonest. A frame that can be due to
//! timing, such as one for a circuit that the other side ended a moment ago, is answered with
//! `Close` or ignored.

#[cfg(test)]
mod tests;

use crate::identity::MemberId;
use crate::link::{Rate, TokenBucket};
use crate::protocol::{Circuit, FRAME_COST, RelayBody, RelayFrame, WINDOW, cost};
use std::collections::BTreeMap;

/// One end of a circuit, at this node. Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End(pub u64);

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send the frame on the link to this neighbour.
    Send(MemberId, RelayFrame),
    /// Another node opened a circuit to this node, over these nodes.
    Begun(End, Vec<MemberId>),
    /// Bytes arrived for this end.
    Bytes(End, Vec<u8>),
    /// The other end consumed frames of this total cost.
    Room(End, u32),
    /// The circuit of this end has ended.
    Ended(End),
}

/// A neighbour broke the protocol. Close its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dishonest;

/// A node's part in all circuits; see the module. Times are in milliseconds and never go back.
#[derive(Debug)]
pub struct Switch {
    me: MemberId,
    numbers: u32,
    ends: u64,
    slots: BTreeMap<Key, CircuitSlot>,
    /// The budgets per neighbour.
    used: BTreeMap<MemberId, Used>,
}

/// A circuit, as identified on one of this node's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    neighbour: MemberId,
    /// Whether this node opened the circuit on this link.
    by_me: bool,
    number: u32,
}

/// A relayed circuit has two slots, which refer to each other. At B, on the path A, B, C:
///
/// ```text
/// (A, by_me: false, 7): On { to: (C, ..), under_way: cost of A's frames not credited by C }
/// (C, by_me: true,  3): On { to: (A, ..), under_way: cost of C's frames not credited by A }
/// ```
///
/// A frame with bytes raises `under_way` of the slot that it arrives at; a credit lowers that of
/// the other slot.
#[derive(Clone, Copy, Debug)]
enum CircuitSlot {
    /// The circuit goes on at `to`. `under_way`: cost of the frames that arrived at this key, and
    /// that the end behind `to` has not credited.
    On { to: Key, under_way: u32 },
    /// The circuit ends here. `unread`: cost of the frames that arrived and were not consumed.
    /// `under_way`: cost of the frames sent and not credited by the other end.
    Here { end: End, unread: u32, under_way: u32 },
}

/// The remaining budget of a neighbour for circuits to be opened and bytes to be relayed.
#[derive(Debug)]
struct Used {
    opens: TokenBucket,
    bytes: TokenBucket,
}

impl Switch {
    /// Makes the switch of node `me`, without circuits.
    pub fn new(me: MemberId) -> Switch {
        Switch { me, numbers: 0, ends: 0, slots: BTreeMap::new(), used: BTreeMap::new() }
    }

    /// Whether no circuit touches this node.
    #[cfg(any(test, fuzzing))]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Opens a circuit over these nodes, the first of which is this node. `None` if there are
    /// too many circuits, or fewer than two nodes.
    pub fn open(&mut self, nodes: Vec<MemberId>) -> Option<(End, Act)> {
        let neighbour = *nodes.get(1)?;
        let key = self.new_key(neighbour, SLOTS_MAX)?;
        let end = self.new_end();
        self.slots.insert(key, CircuitSlot::Here { end, unread: 0, under_way: 0 });
        Some((end, key.send(RelayBody::Open(nodes))))
    }

    /// Handles a frame that arrived over the direct link of `from`. `takes` states whether a node
    /// has a direct link that accepts one more frame.
    ///
    /// # Errors
    /// `from` broke the protocol. Its circuits stay until its link is closed, see
    /// [`Switch::unlinked`].
    pub fn on_frame(
        &mut self,
        now: u64,
        from: MemberId,
        frame: RelayFrame,
        takes: impl Fn(MemberId) -> bool,
    ) -> Result<Vec<Act>, Dishonest> {
        let Circuit { by_sender, number } = frame.circuit;
        let key = Key { neighbour: from, by_me: !by_sender, number };
        match frame.body {
            RelayBody::Open(nodes) => self.on_open(now, key, nodes, takes),
            RelayBody::Bytes(bytes) => self.on_bytes(now, key, bytes, takes),
            RelayBody::Took(cost) => self.on_took(key, cost, takes),
            RelayBody::Close => Ok(self.end(key)),
        }
    }

    /// Sends bytes from this end. The caller keeps to the window; the switch only counts.
    pub fn send(&mut self, end: End, bytes: Vec<u8>) -> Option<Act> {
        let (key, slot) = self.of(end)?;
        if let CircuitSlot::Here { under_way, .. } = slot {
            *under_way = under_way.saturating_add(cost(bytes.len()));
        }
        Some(key.send(RelayBody::Bytes(bytes)))
    }

    /// This end consumed frames of this total cost: credits the other end.
    pub fn took(&mut self, end: End, cost: u32) -> Option<Act> {
        let (key, slot) = self.of(end)?;
        if let CircuitSlot::Here { unread, .. } = slot {
            *unread = unread.saturating_sub(cost);
        }
        Some(key.send(RelayBody::Took(cost)))
    }

    /// Closes the circuit of this end.
    pub fn close(&mut self, end: End) -> Option<Act> {
        let key = self.of(end)?.0;
        self.slots.remove(&key);
        Some(key.send(RelayBody::Close))
    }

    /// The direct link of a neighbour has ended or was replaced: ends all circuits over it.
    pub fn unlinked(&mut self, neighbour: MemberId) -> Vec<Act> {
        self.used.remove(&neighbour);
        let over: Vec<Key> =
            self.slots.keys().filter(|key| key.neighbour == neighbour).copied().collect();
        over.into_iter().flat_map(|key| self.end(key)).collect()
    }

    fn on_open(
        &mut self,
        now: u64,
        key: Key,
        nodes: Vec<MemberId>,
        takes: impl Fn(MemberId) -> bool,
    ) -> Result<Vec<Act>, Dishonest> {
        let place = nodes
            .iter()
            .position(|id| *id == self.me)
            .filter(|place| *place > 0)
            .ok_or(Dishonest)?;
        if key.by_me || self.slots.contains_key(&key) || nodes[place - 1] != key.neighbour {
            return Err(Dishonest);
        }
        let theirs = self
            .slots
            .keys()
            .filter(|known| known.neighbour == key.neighbour && !known.by_me)
            .count();
        let is_full = self.slots.len() + 2 > SLOTS_MAX - OWN_MIN;
        if is_full || theirs >= CIRCUITS_MAX || !self.used_by(key.neighbour, now).opens.take(now, 1)
        {
            return Ok(vec![key.send(RelayBody::Close)]);
        }
        let Some(next) = nodes.get(place + 1).copied() else {
            let end = self.new_end();
            self.slots.insert(key, CircuitSlot::Here { end, unread: 0, under_way: 0 });
            return Ok(vec![Act::Begun(end, nodes)]);
        };
        match self.new_key(next, SLOTS_MAX - OWN_MIN).filter(|_| takes(next)) {
            None => Ok(vec![key.send(RelayBody::Close)]),
            Some(on) => {
                self.slots.insert(key, CircuitSlot::On { to: on, under_way: 0 });
                self.slots.insert(on, CircuitSlot::On { to: key, under_way: 0 });
                Ok(vec![on.send(RelayBody::Open(nodes))])
            }
        }
    }

    fn on_bytes(
        &mut self,
        now: u64,
        key: Key,
        bytes: Vec<u8>,
        takes: impl Fn(MemberId) -> bool,
    ) -> Result<Vec<Act>, Dishonest> {
        let more = cost(bytes.len());
        let Some(slot) = self.slots.get_mut(&key) else {
            return Ok(vec![key.send(RelayBody::Close)]);
        };
        let (CircuitSlot::On { under_way: open, .. } | CircuitSlot::Here { unread: open, .. }) =
            slot;
        *open = open.checked_add(more).filter(|open| *open <= WINDOW).ok_or(Dishonest)?;
        match *slot {
            CircuitSlot::Here { end, .. } => Ok(vec![Act::Bytes(end, bytes)]),
            CircuitSlot::On { to, .. } => {
                let within = self.used_by(key.neighbour, now).bytes.take(now, u64::from(more));
                if within && takes(to.neighbour) {
                    Ok(vec![to.send(RelayBody::Bytes(bytes))])
                } else {
                    Ok(self.cut(key))
                }
            }
        }
    }

    fn on_took(
        &mut self,
        key: Key,
        taken: u32,
        takes: impl Fn(MemberId) -> bool,
    ) -> Result<Vec<Act>, Dishonest> {
        // Credits are for whole frames, so nodes relay no more credits than data frames.
        if taken < FRAME_COST {
            return Err(Dishonest);
        }
        match self.slots.get_mut(&key) {
            None => Ok(Vec::new()),
            Some(CircuitSlot::Here { end, under_way, .. }) => {
                *under_way = under_way.checked_sub(taken).ok_or(Dishonest)?;
                Ok(vec![Act::Room(*end, taken)])
            }
            Some(CircuitSlot::On { to, .. }) => {
                let to = *to;
                if let Some(CircuitSlot::On { under_way, .. }) = self.slots.get_mut(&to) {
                    *under_way = under_way.checked_sub(taken).ok_or(Dishonest)?;
                }
                if takes(to.neighbour) {
                    Ok(vec![to.send(RelayBody::Took(taken))])
                } else {
                    Ok(self.cut(key))
                }
            }
        }
    }

    /// Ends a circuit because the neighbour of `key` ended it, or the link to that neighbour ended.
    fn end(&mut self, key: Key) -> Vec<Act> {
        match self.slots.remove(&key) {
            None => Vec::new(),
            Some(CircuitSlot::Here { end, .. }) => vec![Act::Ended(end)],
            Some(CircuitSlot::On { to, .. }) => {
                self.slots.remove(&to);
                vec![to.send(RelayBody::Close)]
            }
        }
    }

    /// Ends a relayed circuit at both sides because of a bound of this node.
    fn cut(&mut self, key: Key) -> Vec<Act> {
        let mut acts = self.end(key);
        acts.push(key.send(RelayBody::Close));
        acts
    }

    fn of(&mut self, end: End) -> Option<(Key, &mut CircuitSlot)> {
        let is_it = |slot: &CircuitSlot| match slot {
            CircuitSlot::Here { end: here, .. } => *here == end,
            CircuitSlot::On { .. } => false,
        };
        self.slots.iter_mut().find(|(_, slot)| is_it(slot)).map(|(key, slot)| (*key, slot))
    }

    fn new_key(&mut self, neighbour: MemberId, most: usize) -> Option<Key> {
        if self.slots.len() >= most {
            return None;
        }
        self.numbers = self.numbers.checked_add(1)?;
        Some(Key { neighbour, by_me: true, number: self.numbers })
    }

    fn new_end(&mut self) -> End {
        self.ends += 1;
        End(self.ends)
    }

    fn used_by(&mut self, neighbour: MemberId, now: u64) -> &mut Used {
        let full = |rate| TokenBucket::full(rate, now);
        self.used
            .entry(neighbour)
            .or_insert_with(|| Used { opens: full(OPENS), bytes: full(BYTES) })
    }
}

impl Key {
    fn send(self, body: RelayBody) -> Act {
        Act::Send(
            self.neighbour,
            RelayFrame { circuit: Circuit { by_sender: self.by_me, number: self.number }, body },
        )
    }
}

/// Most circuits opened over one link: in a row of 32 nodes the middle link carries 256 between
/// the two halves.
const CIRCUITS_MAX: usize = 256;
/// Most slots in all, about 200 bytes each. A relayed circuit has two, one per link.
const SLOTS_MAX: usize = 1024;
/// Slots reserved for circuits that this node opens: one for each of its links, and as many for
/// tries.
const OWN_MIN: usize = 64;
/// The burst covers a View's worth of nodes that all seek all others at once; the rate covers later
/// retries.
const OPENS: Rate = Rate { per_second: 50, burst: 1024 };
/// Cost of the frames relayed for one neighbour: 16 MiB per second. For comparison, ten thousand
/// calls per second make 3 MB of control messages.
const BYTES: Rate = Rate { per_second: 16 << 20, burst: 16 << 20 };
