//! Quarantine of nodes that are lost repeatedly. Every loss costs the group a View, so such a node
//! is excluded for a while, each time for longer. So is a node that withholds a vote or breaks the
//! protocol again and again: as long as it has a place, calls may wait for it.

use crate::identity::NodeId;
use crate::report::QuarantineReason;
use std::collections::{BTreeMap, VecDeque};

/// This many losses within [`WINDOW_MS`] lead to quarantine.
const LOSSES_MAX: usize = 3;

/// This many breaches of the protocol within [`WINDOW_MS`] lead to quarantine.
const BREACHES_MAX: usize = 3;

/// Older losses and breaches do not count.
const WINDOW_MS: u64 = 60_000;

/// Earlier quarantines are forgotten after this time without a loss or a breach.
const FORGET_MS: u64 = 600_000;

/// Most remembered nodes; the one whose last loss or breach is the oldest is evicted.
const NODES_MAX: usize = 64;

/// Loss records by node, over all its boots.
#[derive(Clone, Debug, Default)]
pub(super) struct Quarantine {
    records: BTreeMap<NodeId, Record>,
}

#[derive(Clone, Debug, Default)]
struct Record {
    losses: VecDeque<u64>,
    /// When it broke the protocol.
    breaches: VecDeque<u64>,
    /// Time of its last loss or breach.
    last: u64,
    times: u32,
    until: u64,
    /// The reason, if the quarantine excludes it from the View it is a member of, too.
    expelled: Option<QuarantineReason>,
}

impl Quarantine {
    /// Records that a View was made without this node although it had not announced to leave.
    /// Returns the length of its quarantine if one begins now: `first_ms`, doubled for each further
    /// one, at most `cap_ms`.
    pub(super) fn lost(
        &mut self,
        node: NodeId,
        now: u64,
        (first_ms, cap_ms): (u64, u64),
    ) -> Option<u64> {
        let record = self.record(node, now);
        record.losses.push_back(now);
        record.losses.retain(|at| now < at + WINDOW_MS);
        if record.losses.len() < LOSSES_MAX || first_ms == 0 {
            return None;
        }
        record.expelled = None;
        Some(record.keep_out(now, (first_ms, cap_ms)))
    }

    /// Records that this node broke the protocol. Returns the length of its quarantine if one
    /// begins now, which also excludes it from the View it is a member of.
    pub(super) fn breached(&mut self, node: NodeId, now: u64, times: (u64, u64)) -> Option<u64> {
        let record = self.record(node, now);
        record.breaches.push_back(now);
        record.breaches.retain(|at| now < at + WINDOW_MS);
        if record.breaches.len() < BREACHES_MAX {
            return None;
        }
        record.breaches.clear();
        self.expel(node, now, times, QuarantineReason::BrokeProtocol)
    }

    /// Starts the quarantine of a node, which also excludes it from the View it is a member of.
    /// Returns the duration in milliseconds.
    pub(super) fn expel(
        &mut self,
        node: NodeId,
        now: u64,
        (first_ms, cap_ms): (u64, u64),
        why: QuarantineReason,
    ) -> Option<u64> {
        if first_ms == 0 {
            return None;
        }
        let record = self.record(node, now);
        record.expelled = Some(why);
        Some(record.keep_out(now, (first_ms, cap_ms)))
    }

    /// Why this node is excluded from the View that it is a member of; `None` if it is not.
    pub(super) fn expels(&self, node: NodeId, now: u64) -> Option<QuarantineReason> {
        self.records.get(&node).filter(|record| now < record.until)?.expelled
    }

    pub(super) fn holds(&self, node: NodeId, now: u64) -> bool {
        self.records.get(&node).is_some_and(|record| now < record.until)
    }

    /// How long the node stays in quarantine, in milliseconds; 0 if it is not.
    pub(super) fn left_ms(&self, node: NodeId, now: u64) -> u64 {
        self.records.get(&node).map_or(0, |record| record.until.saturating_sub(now))
    }

    /// The nodes in quarantine, the remaining time of each in milliseconds, and the reason.
    pub(super) fn held(&self, now: u64) -> impl Iterator<Item = (NodeId, u64, QuarantineReason)> {
        let held = self.records.iter().filter(move |(_, r)| now < r.until);
        let why = |r: &Record| r.expelled.unwrap_or(QuarantineReason::LostOften);
        held.map(move |(node, r)| (*node, r.until - now, why(r)))
    }

    /// The record of a node that something is recorded of now.
    fn record(&mut self, node: NodeId, now: u64) -> &mut Record {
        if self.records.len() >= NODES_MAX && !self.records.contains_key(&node) {
            let oldest = self.records.iter().min_by_key(|(_, r)| r.last).map(|(node, _)| *node);
            oldest.map(|node| self.records.remove(&node));
        }
        let record = self.records.entry(node).or_default();
        if now >= record.last + FORGET_MS {
            *record = Record::default();
        }
        record.last = now;
        record
    }
}

impl Record {
    fn keep_out(&mut self, now: u64, (first_ms, cap_ms): (u64, u64)) -> u64 {
        self.losses.clear();
        let for_ms = first_ms.saturating_mul(1 << self.times.min(32)).min(cap_ms);
        self.times += 1;
        self.until = now + for_ms;
        for_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: (u64, u64) = (10_000, 300_000);

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    #[test]
    fn the_third_loss_within_a_minute_is_too_many_and_each_time_doubles() {
        let mut quarantine = Quarantine::default();
        let mut now = 0;
        let mut held = Vec::new();
        for _ in 0..21 {
            now += 5000;
            held.extend(quarantine.lost(node(1), now, TIMES));
        }
        assert_eq!(held, [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]);
        assert!(
            quarantine.holds(node(1), now + 299_999) && !quarantine.holds(node(1), now + 300_000)
        );
        assert_eq!(
            quarantine.held(now).collect::<Vec<_>>(),
            [(node(1), 300_000, QuarantineReason::LostOften)]
        );
    }

    #[test]
    fn losses_that_are_far_apart_do_not_count_together() {
        let mut quarantine = Quarantine::default();
        for at in (0..20).map(|i| i * 30_001) {
            assert_eq!(quarantine.lost(node(1), at, TIMES), None);
        }
    }

    #[test]
    fn ten_good_minutes_are_a_new_beginning() {
        let mut quarantine = Quarantine::default();
        let mut thrice =
            |from: u64| (0..3).filter_map(|i| quarantine.lost(node(1), from + i, TIMES)).next();
        assert_eq!(
            [0, 100_000, 800_000].map(&mut thrice),
            [Some(10_000), Some(20_000), Some(10_000)]
        );
    }

    #[test]
    fn a_vote_withheld_is_enough_and_each_time_doubles() {
        let mut quarantine = Quarantine::default();
        let why = QuarantineReason::WithheldVote;
        assert_eq!(quarantine.expel(node(1), 0, TIMES, why), Some(10_000));
        assert_eq!(quarantine.expels(node(1), 9999), Some(why));
        assert!(quarantine.holds(node(1), 9999));
        assert_eq!(quarantine.expels(node(1), 10_000), None);
        assert_eq!(quarantine.expel(node(1), 10_000, TIMES, why), Some(20_000));
        assert_eq!(quarantine.expel(node(1), 30_000, (0, 0), why), None);
    }

    #[test]
    fn the_third_breach_within_a_minute_is_too_many() {
        let mut quarantine = Quarantine::default();
        let mut breached = |now| quarantine.breached(node(1), now, TIMES);
        assert_eq!(
            [0, 30_000, 60_000, 89_999].map(&mut breached),
            [None, None, None, Some(10_000)]
        );
        assert_eq!([100_000, 100_001, 100_002].map(&mut breached), [None, None, Some(20_000)]);
        assert_eq!(quarantine.expels(node(1), 120_001), Some(QuarantineReason::BrokeProtocol));
        assert_eq!(quarantine.expels(node(1), 120_002), None);
    }

    #[test]
    fn the_memory_is_bounded_and_each_node_has_its_own() {
        let mut quarantine = Quarantine::default();
        for n in 0..200 {
            assert_eq!(quarantine.lost(node(n), u64::from(n), TIMES), None);
        }
        assert_eq!(quarantine.records.len(), NODES_MAX);
    }
}
