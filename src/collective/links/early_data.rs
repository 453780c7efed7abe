//! Data of peers for operations that have not begun here.

use crate::protocol::{MEMBERS_MAX, OPS_LISTED_MAX, OpId, Rank, RankSet};
use std::collections::BTreeMap;

/// Most operations that have not begun here and for which a peer may have sent data. The sender
/// lists an operation until this member has reported it decided, also if it is decided at the
/// sender. The same number again covers operations that have been reported and are about to be
/// retired here. A step counts as one, however many of its calls are among them.
pub const EARLY_OPS_MAX: usize = 2 * OPS_LISTED_MAX;

/// Counts early data by peer. An honest peer stays within the bounds.
pub struct EarlyData {
    /// By operation that has not begun here: the ranks that have sent data for it.
    senders: BTreeMap<OpId, RankSet>,
    peers: [PeerEarlyData; MEMBERS_MAX],
    frames_max: usize,
    bytes_max: usize,
}

/// The early data of one peer.
#[derive(Default)]
struct PeerEarlyData {
    /// By operation, or step: the number of its calls with early data.
    calls: BTreeMap<OpId, usize>,
    frames: usize,
    bytes: usize,
}

impl EarlyData {
    /// Room for so many frames and bytes of each peer.
    pub fn new(frames_max: usize, bytes_max: usize) -> EarlyData {
        EarlyData { senders: BTreeMap::new(), peers: Default::default(), frames_max, bytes_max }
    }

    /// Notes that `from` sends data for an operation that has not begun here. Returns false, and
    /// notes nothing, if it has too many such operations.
    pub fn note(&mut self, from: Rank, op: OpId) -> bool {
        if self.has(from, op) {
            return true;
        }
        let calls = &mut self.peers[from.index()].calls;
        if calls.len() >= EARLY_OPS_MAX && !calls.contains_key(&op.whole()) {
            return false;
        }
        *calls.entry(op.whole()).or_default() += 1;
        self.senders.entry(op).or_default().insert(from);
        true
    }

    /// Whether `from` has been noted for this operation.
    pub fn has(&self, from: Rank, op: OpId) -> bool {
        self.senders.get(&op).is_some_and(|ranks| ranks.contains(from))
    }

    /// The operation has begun here, or is over: it no longer counts.
    pub fn forget(&mut self, op: OpId) {
        let ranks = self.senders.remove(&op).unwrap_or_default();
        let of_ranks = self.peers.iter_mut().enumerate();
        for (_, kept) in of_ranks.filter(|(rank, _)| ranks.contains(Rank::from(*rank))) {
            let Some(calls) = kept.calls.get_mut(&op.whole()) else { continue };
            *calls -= 1;
            if *calls == 0 {
                kept.calls.remove(&op.whole());
            }
        }
    }

    /// Counts a frame of `len` bytes to be kept. Returns whether it is within the bounds; it is
    /// counted in any case.
    pub fn keep(&mut self, from: Rank, len: usize) -> bool {
        let kept = &mut self.peers[from.index()];
        (kept.frames, kept.bytes) = (kept.frames + 1, kept.bytes + len);
        kept.frames <= self.frames_max && kept.bytes <= self.bytes_max
    }

    /// A frame that was counted is no longer kept.
    pub fn give_back(&mut self, from: Rank, len: usize) {
        let kept = &mut self.peers[from.index()];
        (kept.frames, kept.bytes) = (kept.frames - 1, kept.bytes - len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Lane, PARTS_MAX};

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::of_view(7), number }
    }

    #[test]
    fn a_step_is_one_until_its_last_call_is_out() {
        let (mut early, from) = (EarlyData::new(1, 1), Rank(3));
        for number in 0..EARLY_OPS_MAX as u64 {
            assert!((0..PARTS_MAX as u8).all(|call| early.note(from, op(number).part(call))));
        }
        assert!(early.note(from, op(3)) && early.note(from, op(3).part(0)));
        early.forget(op(3));
        for call in 0..PARTS_MAX as u8 {
            assert!(!early.note(from, op(1000)) && early.has(from, op(3).part(call)));
            early.forget(op(3).part(call));
        }
        assert!(early.note(from, op(1000)) && !early.note(from, op(1001)));
        assert!(early.note(Rank(4), op(1001)), "another peer has its own room");
        early.forget(op(2000));
    }
}
