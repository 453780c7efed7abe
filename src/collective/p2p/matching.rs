//! Layer: Core.
//!
//! Which operations exchange messages, with whom, and what becomes of each message. Decides only:
//! nothing is moved here.
//!
//! # Bounds
//! What a peer can make this rank keep: for each operation [`SLOTS_MAX`] flows, for each flow the
//! eager messages; for at most [`EARLY_OPS_MAX`] operations that are not under way here, a step
//! with all its calls being one; and of messages that nobody has asked for [`EARLY_BYTES_MAX`] and
//! [`EARLY_MESSAGES_MAX`] in all. An honest peer stays below that by itself, so whoever does not
//! has broken the protocol.

use super::stream::{
    Arrival, Departure, EAGER_PART_BYTES, EAGER_PART_MESSAGES_MAX, Inward, Misfit, Outward,
    Payload, Posting, RegionId, Span,
};
use crate::collective::EngineFault;
use crate::collective::early_ops::{EARLY_OPS_MAX, EarlyOps};
use crate::collective::retired::Retired;
use crate::view::{MEMBERS_MAX, OpId, PARTS_MAX, Rank};
use std::collections::BTreeMap;

/// Most flows of one operation from one rank to another. A collective needs one or two.
pub const SLOTS_MAX: usize = 16;

/// Most bytes of messages from one peer that nobody has asked for: as much as full steps of
/// collectives with two flows each may send.
pub const EARLY_BYTES_MAX: usize = EARLY_OPS_MAX * PARTS_MAX * 2 * EAGER_PART_BYTES;

/// Most such messages.
pub const EARLY_MESSAGES_MAX: usize =
    EARLY_OPS_MAX * PARTS_MAX * 2 * EAGER_PART_MESSAGES_MAX as usize;

/// The messages of one rank.
pub struct Matching {
    me: Rank,
    size: usize,
    ops: BTreeMap<OpId, Op>,
    retired: Retired,
    /// By peer.
    early: [Early; MEMBERS_MAX],
    /// By peer: why there is no link, when there was one.
    lost: [Option<EngineFault>; MEMBERS_MAX],
    closed: bool,
}

/// What is kept for one peer because it came before it was asked for.
#[derive(Default)]
struct Early {
    ops: EarlyOps,
    messages: usize,
    bytes: usize,
}

/// One operation.
struct Op {
    standing: Standing,
    /// Goes up whenever something of it moves.
    moved: u64,
    /// By peer: why nothing more of it is exchanged with that one. A new link does not bring back
    /// what an old one lost.
    lost: [Option<EngineFault>; MEMBERS_MAX],
    /// By peer: messages to and from it that are asked for and not through.
    open: [usize; MEMBERS_MAX],
    outward: BTreeMap<(Rank, u32), Outward>,
    inward: BTreeMap<(Rank, u32), Inward>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has not begun here; a bit for each rank that has sent something of it.
    Early(u16),
    Begun,
    Failed(EngineFault),
}

/// One direction of an operation between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Which operation.
    pub op: OpId,
    /// The other end.
    pub peer: Rank,
    /// Which messages of theirs.
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
            early: Default::default(),
            lost: [None; MEMBERS_MAX],
            closed: false,
        }
    }

    /// `op` exchanges messages from now on. Nothing happens when it has begun, failed or ended
    /// before.
    pub fn begin(&mut self, op: OpId) {
        if self.closed || self.retired.contains(op) {
            return;
        }
        let entry = self.ops.entry(op).or_insert_with(|| Op::new(Standing::Early(0)));
        if let Standing::Early(from) = entry.standing {
            entry.standing = Standing::Begun;
            self.no_longer_early(op, from);
        }
    }

    /// `op` fails here, unless it has already, or is over. Says whether it was this that made it
    /// fail.
    pub fn fail(&mut self, op: OpId, fault: EngineFault) -> bool {
        if self.closed || self.retired.contains(op) {
            return false;
        }
        let entry = self.ops.entry(op).or_insert_with(|| Op::new(Standing::Early(0)));
        let early = match entry.standing {
            Standing::Failed(_) => return false,
            Standing::Early(from) => from,
            Standing::Begun => 0,
        };
        let before = std::mem::replace(entry, Op::new(Standing::Failed(fault)));
        self.give_room_back(&before);
        self.no_longer_early(op, early);
        true
    }

    /// `op` is over: it is forgotten.
    pub fn retire(&mut self, op: OpId) {
        if let Some(before) = self.ops.remove(&op) {
            self.give_room_back(&before);
            if let Standing::Early(from) = before.standing {
                self.no_longer_early(op, from);
            }
        }
        self.retired.insert(op);
    }

    /// Takes no more operations, fails those that are under way and gives them.
    pub fn close(&mut self) -> Vec<OpId> {
        let running: Vec<OpId> = self
            .ops
            .iter()
            .filter(|(_, op)| op.standing == Standing::Begun)
            .map(|(op, _)| *op)
            .collect();
        for op in &running {
            self.fail(*op, EngineFault::Closed);
        }
        self.closed = true;
        running
    }

    /// Why `op` failed, if it did.
    pub fn fault(&self, op: OpId) -> Option<EngineFault> {
        match self.ops.get(&op)?.standing {
            Standing::Failed(fault) => Some(fault),
            Standing::Early(_) | Standing::Begun => None,
        }
    }

    /// Whether `op` exchanges messages, and else why not.
    pub fn check(&self, op: OpId) -> Result<(), EngineFault> {
        match self.ops.get(&op).map(|op| op.standing) {
            Some(Standing::Failed(fault)) => Err(fault),
            _ if self.closed => Err(EngineFault::Closed),
            Some(Standing::Begun) => Ok(()),
            None if self.retired.contains(op) => Err(EngineFault::Cancelled),
            Some(Standing::Early(_)) | None => Err(EngineFault::Unfit),
        }
    }

    /// Changes whenever something of `op` moves.
    pub fn moved(&self, op: OpId) -> u64 {
        self.ops.get(&op).map_or(0, |op| op.moved)
    }

    /// Something of `op` has moved.
    pub fn note_moved(&mut self, op: OpId) {
        if let Some(op) = self.ops.get_mut(&op) {
            op.moved = op.moved.wrapping_add(1);
        }
    }

    /// A message is to be sent.
    ///
    /// # Errors
    /// Why it cannot be. After [`EngineFault::Unfit`] all is as before, after every other fault the
    /// operation cannot go on.
    pub fn send(&mut self, to: Way, span: Span) -> Result<Departure, EngineFault> {
        let op = self.open_with(to)?;
        let departure =
            entry_of(&mut op.outward, to, Outward::of).ok_or(EngineFault::Unfit)?.send(span);
        op.open[to.peer.index()] += 1;
        Ok(departure)
    }

    /// A receive is posted.
    ///
    /// # Errors
    /// As for [`send`](Matching::send), or what the message that is here already says against it.
    pub fn post(&mut self, from: Way, span: Span) -> Result<Posting, Refusal> {
        // What is here is here, whatever has become of its link: who is done may leave before the
        // others.
        let stashed = self.check(from.op).is_ok() && self.has_stashed(from);
        let op = match stashed {
            true => self.ops.get_mut(&from.op).ok_or(EngineFault::Unfit)?,
            false => self.open_with(from)?,
        };
        let inward = entry_of(&mut op.inward, from, Inward::of).ok_or(EngineFault::Unfit)?;
        // It is taken out, whether or not it fits.
        let here = inward.stashed().next();
        let posting = inward.post(span);
        op.open[from.peer.index()] += usize::from(posting.is_ok());
        if let Some(len) = here {
            self.early[from.peer.index()].give_back(len);
        }
        Ok(posting?)
    }

    /// A frame of a message is here, after which `left` of the same message follow. Nothing comes
    /// back when nobody wants it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn arrive(
        &mut self,
        from: Way,
        left: usize,
        payload: Payload,
    ) -> Result<Option<Arrival>, Misfit> {
        let Some(op) = self.wanting(from)? else { return Ok(None) };
        op.moved = op.moved.wrapping_add(1);
        let inward = entry_of(&mut op.inward, from, Inward::of).ok_or(Misfit::Violation)?;
        let len = payload.len();
        let arrival = inward.arrive(left, payload)?;
        if matches!(arrival, Arrival::Kept) {
            self.early[from.peer.index()].take(len)?;
        }
        Ok(Some(arrival))
    }

    /// The peer has memory for one more message. Gives the one that this sets free.
    ///
    /// # Errors
    /// It has asked for more than it may.
    pub fn credit(&mut self, to: Way) -> Result<Option<Span>, Misfit> {
        let Some(op) = self.wanting(to)? else { return Ok(None) };
        op.moved = op.moved.wrapping_add(1);
        let outward = entry_of(&mut op.outward, to, Outward::of).ok_or(Misfit::Violation)?;
        Ok(outward.credit())
    }

    /// One message to or from a peer is through. Says whether its operation still wants to know.
    pub fn settle(&mut self, op: OpId, peer: Rank) -> bool {
        let Some(op) = self.ops.get_mut(&op).filter(|op| op.standing == Standing::Begun) else {
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

    /// The link to `peer` is over. Gives the operations that need it, to be failed; the others may
    /// not use `peer` any more.
    pub fn lose(&mut self, peer: Rank, fault: EngineFault) -> Vec<OpId> {
        self.lost[peer.index()] = Some(fault);
        let mut needing = Vec::new();
        for (id, op) in &mut self.ops {
            let concerned = match op.standing {
                Standing::Begun => true,
                Standing::Early(from) => from & bit(peer) != 0,
                Standing::Failed(_) => false,
            };
            if concerned {
                op.lost[peer.index()] = Some(fault);
            }
            if op.standing == Standing::Begun && op.open[peer.index()] > 0 {
                needing.push(*id);
            }
        }
        needing
    }

    /// The memory of `region` is gone: what was to come into it will be dropped. Says whether
    /// messages from it were held.
    pub fn forget(&mut self, op: OpId, region: RegionId) -> bool {
        let Some(op) = self.ops.get_mut(&op) else { return false };
        for ((peer, _), inward) in &mut op.inward {
            let open = &mut op.open[peer.index()];
            *open = open.saturating_sub(inward.forget(region));
        }
        op.outward.values_mut().map(|outward| outward.forget(region)).sum::<usize>() > 0
    }

    /// Operations known, and bytes of messages that nobody has asked for.
    #[cfg(any(test, fuzzing))]
    pub fn kept(&self) -> (usize, usize) {
        let flows = self.ops.values().flat_map(|op| op.inward.values());
        (self.ops.len(), flows.flat_map(Inward::stashed).sum())
    }

    /// The operation, when it may exchange messages with this peer.
    fn open_with(&mut self, way: Way) -> Result<&mut Op, EngineFault> {
        if way.peer == self.me || way.peer.index() >= self.size {
            return Err(EngineFault::Unfit);
        }
        self.check(way.op)?;
        let op = self.ops.get_mut(&way.op).ok_or(EngineFault::Unfit)?;
        match op.lost[way.peer.index()].or(self.lost[way.peer.index()]) {
            Some(fault) => Err(fault),
            None => Ok(op),
        }
    }

    fn has_stashed(&self, from: Way) -> bool {
        let inward = self.ops.get(&from.op).and_then(|op| op.inward.get(&(from.peer, from.flow)));
        inward.is_some_and(|inward| inward.stashed().next().is_some())
    }

    /// The operation that a frame is for, if it is to be kept; notes operations that have not
    /// begun.
    fn wanting(&mut self, from: Way) -> Result<Option<&mut Op>, Misfit> {
        if self.closed || self.retired.contains(from.op) {
            return Ok(None);
        }
        let peer = from.peer.index();
        if peer >= self.size {
            return Err(Misfit::Violation);
        }
        let new = match self.ops.get(&from.op).map(|op| op.standing) {
            Some(Standing::Failed(_)) => return Ok(None),
            Some(Standing::Begun) => false,
            Some(Standing::Early(ranks)) => ranks & bit(from.peer) == 0,
            None => true,
        };
        let ops = &mut self.early[peer].ops;
        if new && !ops.has_room(from.op) {
            return Err(Misfit::Violation);
        }
        let op = self.ops.entry(from.op).or_insert_with(|| Op::new(Standing::Early(0)));
        if let Standing::Early(ranks) = &mut op.standing
            && new
        {
            *ranks |= bit(from.peer);
            ops.add(from.op);
        }
        // A message that a lost link may have cut a hole before fits nowhere.
        Ok(op.lost[peer].is_none().then_some(op))
    }

    /// `op` is under way here, or over: it takes no place any more among those of these ranks that
    /// are not.
    fn no_longer_early(&mut self, op: OpId, ranks: u16) {
        let of_ranks =
            self.early.iter_mut().enumerate().filter(|(peer, _)| ranks & (1 << peer) != 0);
        of_ranks.for_each(|(_, early)| early.ops.remove(op));
    }

    /// What was kept of an operation is dropped with it.
    fn give_room_back(&mut self, op: &Op) {
        for ((peer, _), inward) in &op.inward {
            inward.stashed().for_each(|len| self.early[peer.index()].give_back(len));
        }
    }
}

impl Early {
    fn take(&mut self, len: usize) -> Result<(), Misfit> {
        (self.messages, self.bytes) = (self.messages + 1, self.bytes + len);
        let fits = self.messages <= EARLY_MESSAGES_MAX && self.bytes <= EARLY_BYTES_MAX;
        if fits { Ok(()) } else { Err(Misfit::Violation) }
    }

    fn give_back(&mut self, len: usize) {
        (self.messages, self.bytes) = (self.messages - 1, self.bytes - len);
    }
}

/// Why a receive cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The operation or its peer cannot.
    Fault(EngineFault),
    /// The message that is here does not fit.
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
    fn new(standing: Standing) -> Op {
        Op {
            standing,
            moved: 0,
            lost: [None; MEMBERS_MAX],
            open: [0; MEMBERS_MAX],
            outward: BTreeMap::new(),
            inward: BTreeMap::new(),
        }
    }
}

/// The flow of this way, made when there is room for one more.
fn entry_of<T>(
    flows: &mut BTreeMap<(Rank, u32), T>,
    way: Way,
    new: fn(OpId) -> T,
) -> Option<&mut T> {
    let key = (way.peer, way.flow);
    let of_peer = (way.peer, 0)..=(way.peer, u32::MAX);
    if !flows.contains_key(&key) && flows.range(of_peer).count() >= SLOTS_MAX {
        return None;
    }
    Some(flows.entry(key).or_insert_with(|| new(way.op)))
}

fn bit(rank: Rank) -> u16 {
    1 << rank.index()
}
