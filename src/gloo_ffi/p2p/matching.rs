//! Matches messages with posted receives, for all operations and peers. Decides only: nothing is
//! moved here.
//!
//! # Bounds
//! A peer can make this rank keep at most:
//! - for each operation [`SLOTS_MAX`] flows, and for each flow its eager messages;
//! - twice [`OPS_LISTED_MAX`](crate::protocol::OPS_LISTED_MAX) operations that have not begun here;
//!   a step with all its calls counts as one;
//! - [`EARLY_BYTES_MAX`] bytes and [`EARLY_MESSAGES_MAX`] messages without a posted receive, in
//!   all.
//!
//! An honest peer stays below these bounds, so exceeding one is a protocol violation.

use super::stream::{
    Arrival, Departure, EAGER_PART_BYTES, EAGER_PART_MESSAGES_MAX, Inward, Misfit, Outward,
    Payload, Posting, RegionId, Span,
};
use crate::collective::{EarlyData, Retired};
use crate::protocol::{EngineFault, MEMBERS_MAX, OPS_IN_FLIGHT_MAX, OpId, PARTS_MAX, Rank};
use std::collections::BTreeMap;

/// Most flows of one operation from one rank to another. A collective needs one or two.
pub const SLOTS_MAX: usize = 16;

/// Most bytes of messages from one peer without a posted receive: enough for the largest number of
/// full steps, in which every call has two flows.
pub const EARLY_BYTES_MAX: usize = OPS_IN_FLIGHT_MAX * PARTS_MAX * 2 * EAGER_PART_BYTES;

/// Most messages from one peer without a posted receive.
pub const EARLY_MESSAGES_MAX: usize =
    OPS_IN_FLIGHT_MAX * PARTS_MAX * 2 * EAGER_PART_MESSAGES_MAX as usize;

/// The message state of one rank.
pub struct Matching {
    me: Rank,
    size: usize,
    ops: BTreeMap<OpId, Op>,
    retired: Retired,
    early: EarlyData,
    /// By peer: the fault that ended the last link, while there is no new one.
    lost: [Option<EngineFault>; MEMBERS_MAX],
    closed: bool,
}

/// The messages of one operation.
struct Op {
    state: OpState,
    /// Incremented whenever a message makes progress.
    moved: u64,
    /// By peer: the fault after which no more messages are exchanged with it. A new link does not
    /// restore messages lost with the old one.
    lost: [Option<EngineFault>; MEMBERS_MAX],
    /// By peer: sends and posted receives that are not complete.
    open: [usize; MEMBERS_MAX],
    outward: BTreeMap<(Rank, u32), Outward>,
    inward: BTreeMap<(Rank, u32), Inward>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpState {
    /// Not begun here.
    Early,
    Begun,
    Failed(EngineFault),
}

/// One flow of an operation between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFlow {
    /// The operation.
    pub op: OpId,
    /// The other end.
    pub peer: Rank,
    /// The flow number.
    pub flow: u32,
}

impl Matching {
    /// No operations yet.
    pub fn new(me: Rank, size: usize) -> Matching {
        Matching {
            me,
            size: size.min(MEMBERS_MAX),
            ops: BTreeMap::new(),
            retired: Retired::default(),
            early: EarlyData::new(EARLY_MESSAGES_MAX, EARLY_BYTES_MAX),
            lost: [None; MEMBERS_MAX],
            closed: false,
        }
    }

    /// `op` exchanges messages from now on. Has no effect if it has begun, failed or ended before.
    pub fn begin(&mut self, op: OpId) {
        if self.closed || self.retired.contains(op) {
            return;
        }
        let entry = self.ops.entry(op).or_insert_with(|| Op::new(OpState::Early));
        if entry.state == OpState::Early {
            entry.state = OpState::Begun;
            self.early.forget(op);
        }
    }

    /// Fails `op`, unless it has failed before or is over. Returns whether this call made it fail.
    pub fn fail(&mut self, op: OpId, fault: EngineFault) -> bool {
        if self.closed || self.retired.contains(op) {
            return false;
        }
        let entry = self.ops.entry(op).or_insert_with(|| Op::new(OpState::Early));
        if matches!(entry.state, OpState::Failed(_)) {
            return false;
        }
        let before = std::mem::replace(entry, Op::new(OpState::Failed(fault)));
        self.give_room_back(op, &before);
        true
    }

    /// Forgets `op`, which is over.
    pub fn retire(&mut self, op: OpId) {
        if let Some(before) = self.ops.remove(&op) {
            self.give_room_back(op, &before);
        }
        self.retired.insert(op);
    }

    /// Refuses new operations, fails those in progress and returns them.
    pub fn close(&mut self) -> Vec<OpId> {
        let running: Vec<OpId> = self
            .ops
            .iter()
            .filter(|(_, op)| op.state == OpState::Begun)
            .map(|(op, _)| *op)
            .collect();
        for op in &running {
            self.fail(*op, EngineFault::Closed);
        }
        self.closed = true;
        running
    }

    /// The fault of `op`, if it failed.
    pub fn fault(&self, op: OpId) -> Option<EngineFault> {
        match self.ops.get(&op)?.state {
            OpState::Failed(fault) => Some(fault),
            OpState::Early | OpState::Begun => None,
        }
    }

    /// `Ok` if `op` exchanges messages, otherwise the reason why not.
    pub fn check(&self, op: OpId) -> Result<(), EngineFault> {
        match self.ops.get(&op).map(|op| op.state) {
            Some(OpState::Failed(fault)) => Err(fault),
            _ if self.closed => Err(EngineFault::Closed),
            Some(OpState::Begun) => Ok(()),
            None if self.retired.contains(op) => Err(EngineFault::Cancelled),
            Some(OpState::Early) | None => Err(EngineFault::Unfit),
        }
    }

    /// Changes whenever a message of `op` makes progress.
    pub fn moved(&self, op: OpId) -> u64 {
        self.ops.get(&op).map_or(0, |op| op.moved)
    }

    /// A message of `op` has made progress.
    pub fn note_moved(&mut self, op: OpId) {
        if let Some(op) = self.ops.get_mut(&op) {
            op.moved = op.moved.wrapping_add(1);
        }
    }

    /// A message is to be sent.
    ///
    /// # Errors
    /// The reason why not. After [`EngineFault::Unfit`] the state is unchanged. After any other
    /// fault the operation cannot continue.
    pub fn send(&mut self, to: PeerFlow, span: Span) -> Result<Departure, EngineFault> {
        let op = self.open_with(to)?;
        let departure =
            entry_of(&mut op.outward, to, Outward::of).ok_or(EngineFault::Unfit)?.send(span);
        op.open[to.peer.index()] += 1;
        Ok(departure)
    }

    /// A receive is posted.
    ///
    /// # Errors
    /// As for [`send`](Matching::send); or a [`Misfit`] if the message has already arrived with
    /// another length.
    pub fn post(&mut self, from: PeerFlow, span: Span) -> Result<Posting, Refusal> {
        // A message that has arrived can be received even if its link is lost: a rank that is done
        // may leave before the others.
        let stashed = self.check(from.op).is_ok() && self.has_stashed(from);
        let op = match stashed {
            true => self.ops.get_mut(&from.op).ok_or(EngineFault::Unfit)?,
            false => self.open_with(from)?,
        };
        let inward = entry_of(&mut op.inward, from, Inward::of).ok_or(EngineFault::Unfit)?;
        // `post` removes the stashed message, whether or not it fits.
        let here = inward.stashed().next();
        let posting = inward.post(span);
        op.open[from.peer.index()] += usize::from(posting.is_ok());
        if let Some(len) = here {
            self.early.give_back(from.peer, len);
        }
        Ok(posting?)
    }

    /// A frame of a message has arrived; `left` more frames of this message follow. `None` if the
    /// frame is to be dropped.
    ///
    /// # Errors
    /// The reason why the frame does not fit.
    pub fn arrive(
        &mut self,
        from: PeerFlow,
        left: usize,
        payload: Payload,
    ) -> Result<Option<Arrival>, Misfit> {
        let Some(op) = self.wanting(from)? else { return Ok(None) };
        op.moved = op.moved.wrapping_add(1);
        let inward = entry_of(&mut op.inward, from, Inward::of).ok_or(Misfit::Violation)?;
        let len = payload.len();
        let arrival = inward.arrive(left, payload)?;
        if matches!(arrival, Arrival::Kept) && !self.early.keep(from.peer, len) {
            return Err(Misfit::Violation);
        }
        Ok(Some(arrival))
    }

    /// Whether a frame that has arrived is of use to an operation here.
    ///
    /// # Errors
    /// The peer uses more operations than it may.
    pub fn wants(&mut self, from: PeerFlow) -> Result<bool, Misfit> {
        Ok(self.wanting(from)?.is_some())
    }

    /// The peer grants a credit. Returns the message that may now be sent.
    ///
    /// # Errors
    /// The peer uses more operations or flows than it may.
    pub fn credit(&mut self, to: PeerFlow) -> Result<Option<Span>, Misfit> {
        let Some(op) = self.wanting(to)? else { return Ok(None) };
        op.moved = op.moved.wrapping_add(1);
        let outward = entry_of(&mut op.outward, to, Outward::of).ok_or(Misfit::Violation)?;
        Ok(outward.credit())
    }

    /// One message to or from a peer is complete. Returns whether its operation is still in
    /// progress.
    pub fn completed(&mut self, op: OpId, peer: Rank) -> bool {
        let Some(op) = self.ops.get_mut(&op).filter(|op| op.state == OpState::Begun) else {
            return false;
        };
        let open = &mut op.open[peer.index()];
        *open = open.saturating_sub(1);
        true
    }

    /// There is a link to `peer`.
    pub fn connect(&mut self, peer: Rank) {
        self.lost[peer.index()] = None;
    }

    /// The fault that ended the link to a peer, of the first peer that has none now.
    #[cfg(feature = "gloo")]
    pub fn lost(&self) -> Option<EngineFault> {
        self.lost.iter().flatten().next().copied()
    }

    /// The link to `peer` is over. Returns the operations that need it, for the caller to fail. The
    /// others can no longer use `peer`.
    pub fn lose(&mut self, peer: Rank, fault: EngineFault) -> Vec<OpId> {
        self.lost[peer.index()] = Some(fault);
        let mut needing = Vec::new();
        for (id, op) in &mut self.ops {
            let concerned = match op.state {
                OpState::Begun => true,
                OpState::Early => self.early.has(peer, *id),
                OpState::Failed(_) => false,
            };
            if concerned {
                op.lost[peer.index()] = Some(fault);
            }
            if op.state == OpState::Begun && op.open[peer.index()] > 0 {
                needing.push(*id);
            }
        }
        needing
    }

    /// The memory of `region` is gone: messages for it will be dropped. Returns whether messages
    /// from it were waiting for credit.
    pub fn forget(&mut self, op: OpId, region: RegionId) -> bool {
        let Some(op) = self.ops.get_mut(&op) else { return false };
        for ((peer, _), inward) in &mut op.inward {
            let open = &mut op.open[peer.index()];
            *open = open.saturating_sub(inward.forget(region));
        }
        op.outward.values_mut().map(|outward| outward.forget(region)).sum::<usize>() > 0
    }

    /// The number of known operations, and the bytes of messages without a posted receive.
    #[cfg(any(test, fuzzing))]
    pub fn kept(&self) -> (usize, usize) {
        let flows = self.ops.values().flat_map(|op| op.inward.values());
        (self.ops.len(), flows.flat_map(Inward::stashed).sum())
    }

    /// The operation, if it may exchange messages with this peer.
    fn open_with(&mut self, peer_flow: PeerFlow) -> Result<&mut Op, EngineFault> {
        if peer_flow.peer == self.me || peer_flow.peer.index() >= self.size {
            return Err(EngineFault::Unfit);
        }
        self.check(peer_flow.op)?;
        let op = self.ops.get_mut(&peer_flow.op).ok_or(EngineFault::Unfit)?;
        match op.lost[peer_flow.peer.index()].or(self.lost[peer_flow.peer.index()]) {
            Some(fault) => Err(fault),
            None => Ok(op),
        }
    }

    fn has_stashed(&self, from: PeerFlow) -> bool {
        let inward = self.ops.get(&from.op).and_then(|op| op.inward.get(&(from.peer, from.flow)));
        inward.is_some_and(|inward| inward.stashed().next().is_some())
    }

    /// The operation of a frame; `None` if the frame is to be dropped. Records operations that have
    /// not begun.
    fn wanting(&mut self, from: PeerFlow) -> Result<Option<&mut Op>, Misfit> {
        if self.closed || self.retired.contains(from.op) {
            return Ok(None);
        }
        let peer = from.peer.index();
        if peer >= self.size {
            return Err(Misfit::Violation);
        }
        match self.ops.get(&from.op).map(|op| op.state) {
            Some(OpState::Failed(_)) => return Ok(None),
            Some(OpState::Begun) => {}
            Some(OpState::Early) | None if self.early.note(from.peer, from.op) => {}
            Some(OpState::Early) | None => return Err(Misfit::Violation),
        }
        let op = self.ops.entry(from.op).or_insert_with(|| Op::new(OpState::Early));
        // A lost link may have left a gap before this message, so it cannot be matched.
        Ok(op.lost[peer].is_none().then_some(op))
    }

    /// An operation is dropped, with the early data in it.
    fn give_room_back(&mut self, id: OpId, op: &Op) {
        self.early.forget(id);
        for ((peer, _), inward) in &op.inward {
            inward.stashed().for_each(|len| self.early.give_back(*peer, len));
        }
    }
}

/// Why a receive cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A fault of the operation or of its link.
    Fault(EngineFault),
    /// The message that has already arrived does not fit.
    Misfit(Misfit),
}

impl From<EngineFault> for Refusal {
    fn from(fault: EngineFault) -> Refusal {
        Refusal::Fault(fault)
    }
}

impl From<Misfit> for Refusal {
    fn from(misfit: Misfit) -> Refusal {
        Refusal::Misfit(misfit)
    }
}

impl Op {
    fn new(state: OpState) -> Op {
        Op {
            state,
            moved: 0,
            lost: [None; MEMBERS_MAX],
            open: [0; MEMBERS_MAX],
            outward: BTreeMap::new(),
            inward: BTreeMap::new(),
        }
    }
}

/// The state of a flow, created if there is room for one more.
fn entry_of<T>(
    flows: &mut BTreeMap<(Rank, u32), T>,
    peer_flow: PeerFlow,
    new: fn(OpId) -> T,
) -> Option<&mut T> {
    let key = (peer_flow.peer, peer_flow.flow);
    let of_peer = (peer_flow.peer, 0)..=(peer_flow.peer, u32::MAX);
    if !flows.contains_key(&key) && flows.range(of_peer).count() >= SLOTS_MAX {
        return None;
    }
    Some(flows.entry(key).or_insert_with(|| new(peer_flow.op)))
}
