//! Layer: Core.
//!
//! A node's part in all circuits that touch it: those that it passes on, and the ends of its own.
//!
//! For a frame that comes in at most one goes on. What a circuit may have under way is bounded by
//! its window, which every station checks: so what a link's queue holds of it is bounded, too.
//! Whoever exceeds it, or says what makes no sense, is not honest; what may be chance, as a circuit
//! that ended at the other side a moment ago, is answered with its end.

use super::frame::{Circuit, FRAME_COST, RelayBody, RelayFrame, WINDOW, cost};
use crate::identity::MemberId;
use std::collections::BTreeMap;

/// One end of a circuit of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End(pub u64);

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// For this neighbour's link.
    Send(MemberId, RelayFrame),
    /// Somebody has opened a circuit to this node, over these stations.
    Begun(End, Vec<MemberId>),
    /// They came for this end.
    Bytes(End, Vec<u8>),
    /// The other end has taken what cost so much.
    Room(End, u32),
    /// Nothing comes or goes any more.
    Ended(End),
}

/// A neighbour said what no honest one says. Its link is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dishonest;

/// See the module. Time is in milliseconds and never goes back.
#[derive(Debug)]
pub struct Switch {
    me: MemberId,
    numbers: u32,
    ends: u64,
    slots: BTreeMap<Key, Slot>,
    /// By neighbour.
    used: BTreeMap<MemberId, Used>,
}

/// A circuit on one of this node's links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    neighbour: MemberId,
    /// It came to this link from this node's side.
    by_me: bool,
    number: u32,
}

#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Goes on there. What came here and has not been taken there yet costs so much.
    On { to: Key, under_way: u32 },
    /// What came and has not been taken here, and what was sent and has not been taken there.
    Here { end: End, unread: u32, under_way: u32 },
}

/// What a neighbour may still have passed on.
#[derive(Clone, Copy, Debug)]
struct Used {
    opens: Bucket,
    bytes: Bucket,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u64,
    filled: u64,
}

impl Switch {
    /// Of this node, without circuits.
    pub fn new(me: MemberId) -> Switch {
        Switch { me, numbers: 0, ends: 0, slots: BTreeMap::new(), used: BTreeMap::new() }
    }

    /// Whether no circuit touches this node.
    #[cfg(any(test, fuzzing))]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Begins a circuit over these stations, of which this node is the first. `None` when there are
    /// too many.
    pub fn open(&mut self, stations: Vec<MemberId>) -> Option<(End, Act)> {
        let neighbour = *stations.get(1)?;
        let key = self.new_key(neighbour, SLOTS_MAX)?;
        let end = self.new_end();
        self.slots.insert(key, Slot::Here { end, unread: 0, under_way: 0 });
        Some((end, key.send(RelayBody::Open(stations))))
    }

    /// A frame came over the direct link of `from`. `takes` says whether a node has a direct link
    /// that takes one more.
    ///
    /// # Errors
    /// `from` is not honest. Its circuits are as they were, until its link is closed.
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
            RelayBody::Open(stations) => self.on_open(now, key, stations, takes),
            RelayBody::Bytes(bytes) => self.on_bytes(now, key, bytes, takes),
            RelayBody::Took(cost) => self.on_took(key, cost, takes),
            RelayBody::Close => Ok(self.end(key)),
        }
    }

    /// This end says something. It keeps to its window by itself.
    pub fn send(&mut self, end: End, bytes: Vec<u8>) -> Option<Act> {
        let (key, slot) = self.of(end)?;
        if let Slot::Here { under_way, .. } = slot {
            *under_way = under_way.saturating_add(cost(bytes.len()));
        }
        Some(key.send(RelayBody::Bytes(bytes)))
    }

    /// This end has taken what cost so much.
    pub fn took(&mut self, end: End, cost: u32) -> Option<Act> {
        let (key, slot) = self.of(end)?;
        if let Slot::Here { unread, .. } = slot {
            *unread = unread.saturating_sub(cost);
        }
        Some(key.send(RelayBody::Took(cost)))
    }

    /// This end is given up.
    pub fn close(&mut self, end: End) -> Option<Act> {
        let key = self.of(end)?.0;
        self.slots.remove(&key);
        Some(key.send(RelayBody::Close))
    }

    /// The direct link of a neighbour has ended, or another one has taken its place: all that went
    /// over it is over.
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
        stations: Vec<MemberId>,
        takes: impl Fn(MemberId) -> bool,
    ) -> Result<Vec<Act>, Dishonest> {
        let place = stations
            .iter()
            .position(|id| *id == self.me)
            .filter(|place| *place > 0)
            .ok_or(Dishonest)?;
        if key.by_me || self.slots.contains_key(&key) || stations[place - 1] != key.neighbour {
            return Err(Dishonest);
        }
        let theirs = self
            .slots
            .keys()
            .filter(|known| known.neighbour == key.neighbour && !known.by_me)
            .count();
        let is_full = self.slots.len() + 2 > SLOTS_MAX - OWN_MIN;
        if is_full
            || theirs >= CIRCUITS_MAX
            || !self.used_by(key.neighbour, now).opens.take(now, 1, OPENS)
        {
            return Ok(vec![key.send(RelayBody::Close)]);
        }
        let Some(next) = stations.get(place + 1).copied() else {
            let end = self.new_end();
            self.slots.insert(key, Slot::Here { end, unread: 0, under_way: 0 });
            return Ok(vec![Act::Begun(end, stations)]);
        };
        match self.new_key(next, SLOTS_MAX - OWN_MIN).filter(|_| takes(next)) {
            None => Ok(vec![key.send(RelayBody::Close)]),
            Some(on) => {
                self.slots.insert(key, Slot::On { to: on, under_way: 0 });
                self.slots.insert(on, Slot::On { to: key, under_way: 0 });
                Ok(vec![on.send(RelayBody::Open(stations))])
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
        let (Slot::On { under_way: open, .. } | Slot::Here { unread: open, .. }) = slot;
        *open = open.checked_add(more).filter(|open| *open <= WINDOW).ok_or(Dishonest)?;
        match *slot {
            Slot::Here { end, .. } => Ok(vec![Act::Bytes(end, bytes)]),
            Slot::On { to, .. } => {
                let within =
                    self.used_by(key.neighbour, now).bytes.take(now, u64::from(more), BYTES);
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
        // Whole frames are taken, so that this costs the stations no more than what was sent.
        if taken < FRAME_COST {
            return Err(Dishonest);
        }
        match self.slots.get_mut(&key) {
            None => Ok(Vec::new()),
            Some(Slot::Here { end, under_way, .. }) => {
                *under_way = under_way.checked_sub(taken).ok_or(Dishonest)?;
                Ok(vec![Act::Room(*end, taken)])
            }
            Some(Slot::On { to, .. }) => {
                let to = *to;
                if let Some(Slot::On { under_way, .. }) = self.slots.get_mut(&to) {
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

    /// A circuit ends here because of its other side on this link.
    fn end(&mut self, key: Key) -> Vec<Act> {
        match self.slots.remove(&key) {
            None => Vec::new(),
            Some(Slot::Here { end, .. }) => vec![Act::Ended(end)],
            Some(Slot::On { to, .. }) => {
                self.slots.remove(&to);
                vec![to.send(RelayBody::Close)]
            }
        }
    }

    /// This node ends a circuit that it passes on.
    fn cut(&mut self, key: Key) -> Vec<Act> {
        let mut acts = self.end(key);
        acts.push(key.send(RelayBody::Close));
        acts
    }

    fn of(&mut self, end: End) -> Option<(Key, &mut Slot)> {
        let is_it = |slot: &Slot| matches!(slot, Slot::Here { end: here, .. } if *here == end);
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
        let full = |rate: Rate| Bucket { left: rate.burst, filled: now };
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

#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Thousandths of these in a millisecond are so many in a second.
    per_second: u64,
    burst: u64,
}

impl Bucket {
    fn take(&mut self, now: u64, wanted: u64, rate: Rate) -> bool {
        let grown = now.saturating_sub(self.filled).saturating_mul(rate.per_second) / 1000;
        if grown > 0 {
            self.left = self.left.saturating_add(grown).min(rate.burst);
            self.filled = now;
        }
        let enough = self.left >= wanted;
        self.left -= if enough { wanted } else { 0 };
        enough
    }
}

/// Circuits that come over one link: in a row of 16 the link in the middle carries 64 between the
/// two halves.
const CIRCUITS_MAX: usize = 128;
/// Ends of circuits on links in all, about 200 bytes each.
const SLOTS_MAX: usize = 1024;
/// Of these so many are left for those that this node begins itself: as many as it has links, and
/// as many that are tried.
const OWN_MIN: usize = 64;
/// As many as a View's worth of ends that all seek others at once, and then a try now and then.
const OPENS: Rate = Rate { per_second: 50, burst: 256 };
/// What is passed on for one neighbour. Ten thousand calls a second are 3 MB of control messages.
const BYTES: Rate = Rate { per_second: 16 << 20, burst: 16 << 20 };

#[cfg(test)]
#[path = "switch_tests.rs"]
mod tests;
