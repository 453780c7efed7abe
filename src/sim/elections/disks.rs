//! Simulated disks: they take time, fail, and lose pending writes when their node dies. A failed
//! write is tried again until it succeeds, as the control loop does.

use crate::election::Durable;
use std::collections::BTreeMap;

/// Shortest duration of a write.
const WRITE_MS: u64 = 2;

/// The disks of all nodes.
#[derive(Default)]
pub(super) struct Disks {
    under_way: Vec<Write>,
    /// The durable state of each node.
    held: BTreeMap<u8, Durable>,
    /// Nodes with a slow disk, and the duration of a write there, in milliseconds.
    pub(super) slow: BTreeMap<u8, u64>,
    /// Nodes whose writes fail, and until when.
    pub(super) failing: BTreeMap<u8, u64>,
}

/// Time from a failed write to the next attempt: doubled from the first value to the second.
const RETRY_MS: (u64, u64) = (100, 5000);

/// A pending write.
pub(super) struct Write {
    at: u64,
    pub(super) node: u8,
    pub(super) ticket: u64,
    durable: Durable,
    /// Time until the next attempt, should it fail.
    retry_ms: u64,
}

impl Disks {
    pub(super) fn held(&self, node: u8) -> Durable {
        self.held.get(&node).cloned().unwrap_or_default()
    }

    /// Starts a write of `WRITE_MS + more_ms`, or of the slow disk's time. Writes of one node end
    /// in order.
    pub(super) fn write(
        &mut self,
        now: u64,
        node: u8,
        ticket: u64,
        durable: Durable,
        more_ms: u64,
    ) {
        let after =
            self.under_way.iter().filter(|w| w.node == node).map(|w| w.at).max().unwrap_or(0);
        let quick = (now + WRITE_MS + more_ms).max(after);
        let at = self.slow.get(&node).map_or(quick, |ms| now.max(after) + ms);
        self.under_way.push(Write { at, node, ticket, durable, retry_ms: RETRY_MS.0 });
    }

    /// Takes the writes that have ended.
    pub(super) fn due(&mut self, now: u64) -> Vec<Write> {
        let (due, rest) = self.under_way.drain(..).partition(|w| w.at <= now);
        self.under_way = rest;
        due
    }

    /// Whether this write, which has ended, has failed.
    pub(super) fn refuses(&self, now: u64, write: &Write) -> bool {
        self.failing.get(&write.node).is_some_and(|until| now < *until)
    }

    /// Tries a failed write again, before those that the node has begun after it.
    pub(super) fn try_again(&mut self, now: u64, mut write: Write) {
        write.at = now + write.retry_ms;
        write.retry_ms = (2 * write.retry_ms).min(RETRY_MS.1);
        let (at, retry_ms) = (write.at, write.retry_ms);
        let later = self.under_way.iter_mut().filter(|w| w.node == write.node);
        later.for_each(|w| (w.at, w.retry_ms) = (at.max(w.at), retry_ms));
        let is_later = |w: &Write| w.node == write.node && w.ticket > write.ticket;
        let place = self.under_way.iter().position(is_later);
        self.under_way.insert(place.unwrap_or(self.under_way.len()), write);
    }

    /// Makes a write durable.
    pub(super) fn keep(&mut self, write: &Write) {
        self.held.insert(write.node, write.durable.clone());
    }

    /// Loses the pending writes of a node.
    pub(super) fn forget(&mut self, node: u8) {
        self.under_way.retain(|w| w.node != node);
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.under_way.iter().map(|w| w.at).min()
    }
}
