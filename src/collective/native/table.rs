//! The operations that a backend knows: those in flight, those with early data that have not been
//! started here, and those that are over.

use super::super::links::EarlyData;
use super::super::retired::Retired;
use super::active_op::ActiveOp;
use super::outbox::{EARLY_BYTES_MAX, EARLY_FRAMES_MAX, Spent};
use crate::link::DataHeader;
use crate::memory::{Block, OutOfMemory};
use crate::protocol::{OpId, Rank, RankSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The operations of one backend.
pub struct Table {
    entries: BTreeMap<OpId, Entry>,
    retired: Retired,
    /// Counts the data held for operations that have not been started here.
    early: EarlyData,
    closed: bool,
}

/// The state of an operation that is not decided.
enum Entry {
    Early(Early),
    ActiveOp(Arc<ActiveOp>),
    /// Failed here; later frames for it are dropped.
    Failed,
}

/// Frames with their senders.
pub type EarlyFrames = Vec<(Rank, DataHeader, Block)>;

/// The data that arrived for an operation before it was started here.
#[derive(Default)]
pub struct Early {
    /// The ranks that have granted credit.
    pub credited: RankSet,
    /// The frames in order of arrival.
    pub frames: EarlyFrames,
    /// There was no memory for one of them.
    pub lack: Option<OutOfMemory>,
    spent: BTreeMap<Rank, Spent>,
}

/// The operation of a frame for which there is no memory.
pub enum Lacking {
    /// In flight: it fails.
    ActiveOp(Arc<ActiveOp>),
    /// Over, or noted to fail when it is started here.
    Nowhere,
    /// Not started here, and there is no room to note it: the sender exceeded the eager bounds.
    Overrun,
}

/// The routing decision for a frame.
pub enum Routed {
    /// Deliver it to this operation.
    Deliver(Arc<ActiveOp>, Block),
    /// Nothing: it was kept for later, or dropped.
    Taken,
    /// There is no room for it: its sender exceeded the eager bounds.
    Overrun,
}

/// Why an operation may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The backend is closed.
    Closed,
    /// The operation is over, or has been started before.
    Over,
}

impl Default for Table {
    fn default() -> Table {
        Table {
            entries: BTreeMap::new(),
            retired: Retired::default(),
            early: EarlyData::new(EARLY_FRAMES_MAX, EARLY_BYTES_MAX),
            closed: false,
        }
    }
}

impl Table {
    /// Adds an operation that begins. `make` receives the ranks that have granted credit. Returns
    /// the data that arrived before.
    pub fn begin(
        &mut self,
        op: OpId,
        make: impl FnOnce(RankSet) -> Arc<ActiveOp>,
    ) -> Result<(Arc<ActiveOp>, Early), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let fresh = match self.entries.get(&op) {
            None => !self.retired.contains(op),
            Some(Entry::Early(_)) => true,
            Some(Entry::ActiveOp(_) | Entry::Failed) => false,
        };
        if !fresh {
            return Err(Refused::Over);
        }
        let early = self.take_early(op);
        let active = make(early.credited);
        self.entries.insert(op, Entry::ActiveOp(Arc::clone(&active)));
        Ok((active, early))
    }

    /// Routes a frame from `from`. If its operation has not been started here, it is kept within
    /// the eager bounds.
    pub fn route(&mut self, from: Rank, header: &DataHeader, block: Block) -> Routed {
        match self.entries.get_mut(&header.op) {
            Some(Entry::ActiveOp(active)) => Routed::Deliver(Arc::clone(active), block),
            Some(Entry::Failed) => Routed::Taken,
            None if self.closed || self.retired.contains(header.op) => Routed::Taken,
            Some(Entry::Early(_)) | None => self.keep(from, header, block),
        }
    }

    /// There was no memory for a frame of `op` from `from`.
    pub fn lacks(&mut self, from: Rank, op: OpId, lack: OutOfMemory) -> Lacking {
        match self.entries.get(&op) {
            Some(Entry::ActiveOp(active)) => return Lacking::ActiveOp(Arc::clone(active)),
            Some(Entry::Failed) => return Lacking::Nowhere,
            None if self.closed || self.retired.contains(op) => return Lacking::Nowhere,
            Some(Entry::Early(_)) | None => {}
        }
        let Some(early) = self.early_of(from, op) else { return Lacking::Overrun };
        early.lack = Some(lack);
        Lacking::Nowhere
    }

    /// `peer` grants credit for `op`. Returns the operation if it is in flight.
    pub fn credit(&mut self, op: OpId, peer: Rank) -> Option<Arc<ActiveOp>> {
        match self.entries.get_mut(&op) {
            Some(Entry::ActiveOp(active)) => return Some(Arc::clone(active)),
            Some(Entry::Early(early)) => _ = early.credited.insert(peer),
            Some(Entry::Failed) => {}
            None if self.closed || self.retired.contains(op) => {}
            None => {
                let credited = RankSet::EMPTY.with(peer);
                self.entries.insert(op, Entry::Early(Early { credited, ..Early::default() }));
            }
        }
        None
    }

    /// The operation, if it is in flight.
    pub fn find(&self, op: OpId) -> Option<Arc<ActiveOp>> {
        match self.entries.get(&op) {
            Some(Entry::ActiveOp(active)) => Some(Arc::clone(active)),
            _ => None,
        }
    }

    /// `op` has failed here: later frames for it are dropped.
    pub fn fail(&mut self, op: OpId) {
        if let Some(entry) = self.entries.get_mut(&op) {
            *entry = Entry::Failed;
        }
    }

    /// `op` is over. Returns it if it was in flight.
    pub fn retire(&mut self, op: OpId) -> Option<Arc<ActiveOp>> {
        let active = self.find(op);
        self.take_early(op);
        self.entries.remove(&op);
        self.retired.insert(op);
        active
    }

    /// All operations in flight.
    pub fn active(&self) -> Vec<Arc<ActiveOp>> {
        let active = |entry: &Entry| match entry {
            Entry::ActiveOp(active) => Some(Arc::clone(active)),
            Entry::Early(_) | Entry::Failed => None,
        };
        self.entries.values().filter_map(active).collect()
    }

    /// Drops all operations and refuses new ones. Returns those that were in flight.
    pub fn close(&mut self) -> Vec<Arc<ActiveOp>> {
        let active = self.active();
        self.entries.clear();
        self.closed = true;
        active
    }

    fn keep(&mut self, from: Rank, header: &DataHeader, block: Block) -> Routed {
        let len = block.len();
        let is_kept = self.early.keep(from, len)
            && self.early_of(from, header.op).is_some_and(|early| {
                let fits = early.spent.entry(from).or_default().add(len);
                if fits {
                    early.frames.push((from, *header, block));
                }
                fits
            });
        if is_kept {
            return Routed::Taken;
        }
        self.early.give_back(from, len);
        Routed::Overrun
    }

    /// The early data of `op`, which is not in flight, for one more frame of `from`. `None` if
    /// `from` has too many operations there.
    fn early_of(&mut self, from: Rank, op: OpId) -> Option<&mut Early> {
        if !self.early.note(from, op) {
            return None;
        }
        let entry = self.entries.entry(op).or_insert_with(|| Entry::Early(Early::default()));
        if let Entry::Early(early) = entry { Some(early) } else { None }
    }

    /// Removes and returns the early data of `op`; nothing if `op` is in flight.
    fn take_early(&mut self, op: OpId) -> Early {
        if !matches!(self.entries.get(&op), Some(Entry::Early(_))) {
            return Early::default();
        }
        let Some(Entry::Early(early)) = self.entries.remove(&op) else { return Early::default() };
        self.early.forget(op);
        early.frames.iter().for_each(|(from, _, block)| self.early.give_back(*from, block.len()));
        early
    }
}

#[cfg(test)]
mod tests {
    use super::super::outbox::EAGER_OP_BYTES;
    use super::*;
    use crate::collective::links::EARLY_OPS_MAX;
    use crate::link::Phase;
    use crate::memory::Pool;
    use crate::protocol::{Lane, OPS_LISTED_MAX, PARTS_MAX};

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::of_view(7), number }
    }

    fn block(len: usize) -> Block {
        Pool::new().block(len).expect("there is memory")
    }

    /// Whether there is room for a frame of an operation.
    fn kept(table: &mut Table, from: u8, op: OpId, len: usize) -> bool {
        let header = DataHeader { op, flow: 0, chunk: 0, phase: Phase::Reduce, len: len as u32 };
        matches!(table.route(Rank(from), &header, block(len)), Routed::Taken)
    }

    #[test]
    fn early_frames_are_bounded_per_operation_and_peer() {
        let mut table = Table::default();
        assert!(kept(&mut table, 1, op(0), EAGER_OP_BYTES));
        assert!(!kept(&mut table, 1, op(0), 1));
        assert!(kept(&mut table, 2, op(0), EAGER_OP_BYTES), "another peer has its own room");
        let more = (1..1000).take_while(|n| kept(&mut table, 1, op(*n), 100)).count();
        assert_eq!(more + 1, EARLY_OPS_MAX);
        table.retire(op(5));
        assert!(kept(&mut table, 1, op(3000), 100), "room is given back");
        assert!(!kept(&mut table, 1, op(3001), 100));
        assert!(
            kept(&mut table, 1, op(5), 1 << 20),
            "the data of ended operations is dropped, not kept"
        );
    }

    /// A step counts once against the bound of operations per peer; here it has eight calls.
    #[test]
    fn a_step_counts_as_one_however_many_calls_it_has() {
        let mut table = Table::default();
        let all = |number: u64| (0..8).map(move |index| op(number).part(index));
        let steps = EARLY_OPS_MAX as u64;
        assert!((0..steps).flat_map(all).all(|call| kept(&mut table, 1, call, 4)));
        assert!(!kept(&mut table, 1, op(steps).part(0), 4));
        all(3).for_each(|call| _ = table.retire(call));
        assert!(kept(&mut table, 1, op(steps).part(0), 4), "room is given back");
        assert!(!kept(&mut table, 1, op(steps + 1).part(0), 4));
    }

    #[test]
    fn all_that_is_kept_of_a_peer_is_bounded() {
        let mut table = Table::default();
        let frames = (0..).take_while(|n| kept_full_call(&mut table, *n)).count();
        assert_eq!(frames * EAGER_OP_BYTES, EARLY_BYTES_MAX);
    }

    /// These may all be decided at the peer, whose own count of early data then has none of them.
    #[test]
    fn there_is_room_for_all_operations_that_a_peer_may_list() {
        let mut table = Table::default();
        let mut listed = 0..OPS_LISTED_MAX as u64;
        assert!(listed.all(|number| kept(&mut table, 1, op(number), EAGER_OP_BYTES)));
    }

    /// Routes a frame of maximum size for call `n`; 64 calls form a step.
    fn kept_full_call(table: &mut Table, n: u64) -> bool {
        let (step, call) = (op(n / PARTS_MAX as u64), (n % PARTS_MAX as u64) as u8);
        kept(table, 1, step.part(call), EAGER_OP_BYTES)
    }

    /// A frame for which there is no memory is noted within the bounds of early data, and its room
    /// is given back.
    #[test]
    fn a_frame_without_memory_is_noted_for_its_operation() {
        let (mut table, lack) = (Table::default(), OutOfMemory { bytes: 9 });
        let noted = |table: &mut Table, number| {
            matches!(table.lacks(Rank(1), op(number), lack), Lacking::Nowhere)
        };
        let numbers = EARLY_OPS_MAX as u64;
        assert!((0..numbers).all(|number| noted(&mut table, number)));
        assert!(matches!(table.lacks(Rank(1), op(numbers), lack), Lacking::Overrun));
        assert!(noted(&mut table, 3), "a second frame of the same operation");
        assert!(kept(&mut table, 1, op(3), 100), "and one for which there is memory");
        let early = table.take_early(op(3));
        assert_eq!((early.lack, early.frames.len()), (Some(lack), 1));
        assert!(noted(&mut table, numbers), "room is given back");
        table.retire(op(4));
        assert!(
            noted(&mut table, 4) && noted(&mut table, numbers + 1),
            "ended operations are dropped"
        );
    }
}
