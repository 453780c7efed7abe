//! The progress of one operation on one rank: contributions go in, frames and finally the result
//! come out. This file has no thread, socket or clock; any number of threads may advance an
//! operation at once.
//!
//! The progress is complete when all chunks that this rank keeps are here, and all frames of the
//! flows that it does not keep are sent. So a rank without a result is done when its contribution
//! and the data it forwards are on their way. Frames of a result that this rank keeps may still be
//! queued at that time.
//!
//! Each chunk has its own small lock, held while that chunk is folded. Two threads meet at it only
//! if they bring contributions to the same chunk, which must be folded one after the other anyway.
//!
//! # Example
//!
//! One chunk of an all_reduce on the ring 0, 1, 2. Rank 0 finishes it, so the contributions travel
//! from rank 1 over rank 2. Each rank adds those that meet there by ascending rank, its own
//! included. One that comes early waits in the `ChunkState`.
//!
//! ```text
//!          rank 1                  rank 2                    rank 0
//! reduce   contribute a1           contribute a2, it waits   contribute a0, the sum so far
//!          pass_on ----- a1 -----> receive, fold a1 + a2
//!                                  pass_on --- a1 + a2 ----> receive, fold a0 + (a1 + a2)
//!                                                            conclude: divides a mean
//!                                                            land: the chunk is in the result
//! gather   receive, land <------------- the sum ------------ frame of the gather half
//!          frame ----- the sum --> receive, land
//! ```
//!
//! # Memory
//!
//! The result is one [`ResultBuffer`], allocated when the operation's progress is created.
//! Unencoded result chunks are received straight into it. So is the first contribution to arrive
//! for a chunk that this rank finishes. Both are sent on from there. If a rank only adds to a chunk
//! and forwards it, the block of a received contribution becomes the partial sum and then the
//! outgoing frame. Lent elements are read in place. A borrowed contribution is copied to its place
//! in the result until it is added; if it is sent first, it is copied to a block until it is sent.
//! So a ring needs memory for the result and the data in flight. A codec adds blocks for the
//! contribution and the encoded frames.
//!
//! An exchange may have to keep the contributions of higher ranks until those of lower ranks
//! arrive: at most the buffer times the number of members. Exchanges are for small buffers. The
//! same holds for the root of a one-step reduction. On a ring a rank keeps forwarded data until it
//! is sent: in the worst case, an `all_to_all`, at most half the number of members times the
//! buffer.
//!
//! # Ranks
//!
//! The schedule has ranks of the operation's group, all others see ranks of the View: frames are
//! translated where they come and where they leave.
//!
//! Any of this memory may be lacking: then the step ends with [`EngineFault::Memory`], after which
//! the operation's progress must be [cleared](OpProgress::clear).

mod receiving;
mod window;

use super::super::backend::Finished;
use super::super::digest::Digest;
use super::super::fold::finish;
use super::super::input::Input;
use super::super::schedule::{FlowRole, Schedule, Then};
use super::chunk_numbers::{ChunkAt, ChunkNumbers};
use super::chunk_state::ChunkState;
use super::coding::{encoded, round_trip, rounded};
use super::partial_sum::{PartialSum, Payload};
use crate::link::{DataHeader, Phase};
use crate::memory::{Block, PartWriter, Pool, ResultBuffer, Staging, listed};
use crate::os::{AtomicUsize, Mutex, MutexGuard, copy, lock};
use crate::protocol::{
    ENCLOSED_BYTES_MAX, Enclosed, EngineFault, GroupRanks, Mutant, Mutation, OpId, Rank, ranks,
};
pub use receiving::{ReceiveSlot, Untaken};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use window::Window;

/// The progress of one operation on one rank.
pub struct OpProgress {
    op: OpId,
    group: GroupRanks,
    /// This rank in the group.
    me: Rank,
    schedule: Schedule,
    roles: Vec<FlowRole>,
    numbers: ChunkNumbers,
    /// By the number of the chunk.
    chunks: Vec<Mutex<ChunkState>>,
    /// The result; `None` once it is handed out or the progress is cleared.
    result: Mutex<Option<Arc<ResultBuffer>>>,
    /// Kept chunks that have not landed, plus unsent frames of flows that are not kept.
    missing: AtomicUsize,
    /// By rank of the group: frames still to be received from it or sent to it.
    open: Vec<AtomicUsize>,
    /// By flow: how far this rank runs ahead.
    windows: Vec<Window<OutgoingFrame>>,
    /// Only for a result that is the same on all ranks.
    digest: Option<Mutex<Digest>>,
    pool: Pool,
    mutation: Mutation,
}

/// A frame to send.
pub struct OutgoingFrame {
    /// The receiver, as a rank of the View.
    pub to: Rank,
    /// The header.
    pub header: DataHeader,
    /// The payload.
    pub payload: Payload,
}

/// Whether a step has completed the operation on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The operation is not complete here, or its completion has been reported before.
    Going,
    /// This step brought the last chunk or sent the last frame: take the
    /// [`output`](OpProgress::output). Reported once.
    Complete,
}

impl OpProgress {
    /// Creates the progress of operation `op` on rank `me` of the View. The schedule is that of the
    /// operation's group. Working memory comes from `pool`. The result's memory is
    /// [like](Pool::like) `model` if that has the right length.
    ///
    /// # Errors
    /// [`EngineFault::Memory`]; [`EngineFault::Unfit`] if this rank is not in the group.
    pub fn new(
        op: OpId,
        (group, me): (GroupRanks, Rank),
        schedule: Schedule,
        pool: &Pool,
        model: Option<&Block>,
    ) -> Result<OpProgress, EngineFault> {
        let me = group.in_group(me).ok_or(EngineFault::Unfit)?;
        let roles: Vec<FlowRole> =
            (0..schedule.flows.len()).map(|flow| schedule.role(flow, me)).collect();
        let numbers = ChunkNumbers::new(&schedule, &roles);
        let missing =
            roles.iter().enumerate().map(|(flow, role)| role.steps() * schedule.chunks(flow)).sum();
        let digest = schedule
            .is_common()
            .then(|| Digest::new(schedule.count() * schedule.dtype.bytes()))
            .transpose()?;
        let flows = || roles.iter().enumerate();
        let frames = |peer| {
            flows().map(|(flow, role)| role.frames_with(peer, me) * schedule.chunks(flow)).sum()
        };
        let open = ranks(schedule.size).map(frames).map(AtomicUsize::new).collect();
        let result = result_buffer(&schedule, &roles, pool, model)?;
        let windows = flows().map(|(flow, role)| Window::of(&schedule, flow, role, me)).collect();
        Ok(OpProgress {
            op,
            group,
            me,
            chunks: listed(numbers.count(), std::iter::repeat_with(Mutex::default))?,
            numbers,
            result: Mutex::new(Some(result)),
            missing: AtomicUsize::new(missing),
            open,
            windows,
            digest: digest.map(Mutex::new),
            pool: pool.clone(),
            schedule,
            roles,
            mutation: Mutation::NONE,
        })
    }

    /// The same with one of its rules broken, as a test wants it.
    pub(crate) fn with(self, mutation: Mutation) -> OpProgress {
        OpProgress { mutation, ..self }
    }

    /// The operation's number.
    pub fn op(&self) -> OpId {
        self.op
    }

    /// Whether nothing is left to move: before the first step, that there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Whether frames are still expected from this rank of the View or still to be sent to it.
    pub fn needs(&self, peer: Rank) -> bool {
        self.open_with(peer).is_some_and(|open| open.load(Ordering::Acquire) > 0)
    }

    /// The count of open frames with a rank of the View.
    fn open_with(&self, peer: Rank) -> Option<&AtomicUsize> {
        self.open.get(self.group.in_group(peer)?.index())
    }

    /// Counts a frame as sent.
    pub fn sent(&self, outgoing: &OutgoingFrame) -> Progress {
        self.open_with(outgoing.to).iter().for_each(|open| _ = open.fetch_sub(1, Ordering::AcqRel));
        if self.roles[outgoing.header.flow as usize].keeps { Progress::Going } else { self.step() }
    }

    /// The chunks of this rank's own contribution as (flow, chunk), in the order in which the
    /// schedule needs them.
    pub fn feed_order(&self) -> impl Iterator<Item = (usize, usize)> {
        self.schedule.feed_order(self.me)
    }

    /// Whether `input` has the length of this rank's contribution. A rank that contributes nothing
    /// accepts any input.
    pub fn fits(&self, input: &Input<'_>) -> bool {
        let bytes = self.schedule.input_bytes(self.me);
        bytes == 0 || bytes == input.len()
    }

    /// Takes one chunk of this rank's contribution, each chunk once, from an `input` that
    /// [fits](OpProgress::fits). Adds the frames that can now be sent to `out`.
    ///
    /// There are three cases:
    ///
    /// - Case 1: the chunk is copied to its place in the result. This holds for a pure copy, and
    ///   for a borrowed contribution without codec that meets others on a path, at a rank that
    ///   keeps the flow.
    /// - Case 2: any other chunk on a path becomes a block. The codec rounds it, unless it is only
    ///   sent to a parent: then it is encoded when it is sent.
    /// - Case 3: in an exchange the chunk is sent to all other ranks, and folded here too.
    ///
    /// # Errors
    /// [`EngineFault::Unfit`] if the call, the plan and the input do not fit each other,
    /// [`EngineFault::Memory`].
    pub fn contribute(
        &self,
        (flow, chunk): (usize, usize),
        input: &Input<'_>,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, EngineFault> {
        let at = self.numbers.at(flow, chunk);
        let (role, bytes) = (&self.roles[flow], self.schedule.input_range(self.me, flow, chunk));
        let contributor = role.contributors.iter().position(|rank| *rank == self.me).unwrap_or(0);
        // Case 1. `Staged` if the sum goes on to a parent, `InPlace` if this rank owns the flow.
        let own_codec = self.schedule.codec_own(self.me);
        let meets_others =
            own_codec.is_none() && role.contributors.len() > 1 && role.then != Then::Keep;
        if role.keeps
            && (self.schedule.reduce.is_none() || input.is_copied() && meets_others)
            && let Some(mut writer) = self.claim(at)
        {
            if !input.copy_to(bytes.start, writer.bytes_mut()) {
                return Err(EngineFault::Unfit);
            }
            let own = if matches!(role.then, Then::Send(_)) {
                PartialSum::Staged(writer)
            } else {
                PartialSum::InPlace(writer)
            };
            return self.add(at, contributor, own, out);
        }
        let mut block = input.piece(&self.pool, bytes)?;
        if role.then != Then::Keep {
            // Case 2. A chunk that goes on alone is encoded in `pass_on`. A chunk that meets others
            // is rounded, so that it counts here as if another rank had decoded it.
            let is_alone = role.contributors.len() == 1 && matches!(role.then, Then::Send(_));
            let encoding = own_codec.filter(|_| !is_alone);
            let own = match encoding {
                Some(codec) => rounded(codec, block.bytes(), &self.pool)?,
                None => block,
            };
            return self.add(at, contributor, PartialSum::new(own), out);
        }
        let others: Vec<Rank> =
            role.contributors.iter().copied().filter(|rank| *rank != self.me).collect();
        // Case 3. The other ranks fold the decoded values, so this rank does so too.
        let encoded = match own_codec {
            Some(codec) => Some(round_trip(codec, block.writable(&self.pool)?, &self.pool)?),
            None => None,
        };
        let own = Arc::new(block);
        self.post(
            at,
            Phase::Reduce,
            &others,
            &Payload::Block(encoded.unwrap_or_else(|| Arc::clone(&own))),
            out,
        );
        self.add(at, contributor, PartialSum::Block(own), out)
    }

    /// The common payload of these frames, if it is small and they carry it to all other ranks.
    pub fn enclose(&self, outgoing_frames: &[OutgoingFrame]) -> Option<Enclosed> {
        let first = outgoing_frames.first()?;
        let DataHeader { flow, chunk, phase, .. } = first.header;
        let to_all = outgoing_frames.len() + 1 == self.schedule.size
            && outgoing_frames.iter().all(|outgoing| outgoing.header == first.header);
        let bytes = first.payload.bytes();
        (to_all && bytes.len() <= ENCLOSED_BYTES_MAX).then(|| Enclosed {
            flow,
            chunk,
            is_result: phase == Phase::Gather,
            bytes: bytes.into(),
        })
    }

    /// The result; available once, after a step returned [`Progress::Complete`]. Queued frames keep
    /// reading from its memory. `None` if the progress was cleared meanwhile.
    pub fn output(&self) -> Option<Finished> {
        let result_buffer = lock(&self.result).take()?;
        let block = Block::result(result_buffer)?;
        let taken = self.digest.as_ref().map(|digest| std::mem::take(&mut *lock(digest)));
        let blocks = if block.len() == 0 { Vec::new() } else { vec![block] };
        Some(Finished {
            digest: taken.map_or(0, |digest| digest.finish(&blocks)),
            output: Staging { blocks },
        })
    }

    /// Drops all memory of an operation that has failed or is decided. Memory into which a thread
    /// is receiving stays alive until the thread is done.
    pub fn clear(&self) {
        lock(&self.result).take();
        for chunk in &self.chunks {
            *lock(chunk) = ChunkState::ended();
        }
        self.windows.iter().for_each(Window::clear);
    }

    /// The right to write a kept chunk of the result.
    fn claim(&self, at: ChunkAt) -> Option<PartWriter> {
        lock(&self.result).as_ref()?.claim(self.numbers.part_of(at))
    }

    /// Adds a contribution to the sum of its chunk, and passes the sum on when it is complete.
    fn add(
        &self,
        at: ChunkAt,
        contributor: usize,
        contribution: PartialSum,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, EngineFault> {
        let mut chunk = self.lock(at);
        chunk.add(contributor, contribution, |sum, next| self.fold(sum, next))?;
        let sum = chunk.take_sum_of(self.roles[at.flow].contributors.len());
        drop(chunk);
        sum.map_or(Ok(Progress::Going), |sum| self.pass_on(at, sum, out))
    }

    /// The sum of two contributions. Where nothing is reduced there is one contribution only.
    fn fold(&self, sum: PartialSum, next: PartialSum) -> Result<PartialSum, EngineFault> {
        let is_left_out = self.mutation.has(Mutant::DropsContributions) && self.op.number % 16 == 5;
        match self.schedule.reduce {
            Some(_) if is_left_out => Ok(sum),
            Some(op) => sum.fold(next, op, self.schedule.dtype, &self.pool),
            None => Ok(next),
        }
    }

    fn lock(&self, at: ChunkAt) -> MutexGuard<'_, ChunkState> {
        lock(&self.chunks[at.number])
    }

    /// Sends or concludes the sum of all contributions, by this rank's role in the flow.
    fn pass_on(
        &self,
        at: ChunkAt,
        sum: PartialSum,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, EngineFault> {
        let role = &self.roles[at.flow];
        let (phase, to) = match role.then {
            Then::Send(parent) => (Phase::Reduce, &[parent][..]),
            Then::HandOn if !role.keeps => (Phase::Gather, &role.down_to[..]),
            Then::Keep | Then::HandOn => return self.conclude(at, sum, out),
        };
        if let PartialSum::Block(sum) = sum {
            let codec = self.schedule.codec_up(at.flow, self.me);
            let block = match codec {
                Some(codec) => encoded(codec, sum.bytes(), &self.pool)?,
                None => sum,
            };
            let (window, first) = (&self.windows[at.flow], out.len());
            self.post(at, phase, to, &Payload::Block(block), out);
            if window.is_bounded() {
                for frame in out.split_off(first) {
                    window.pass(at.chunk, frame, out)?;
                }
            }
        }
        Ok(Progress::Going)
    }

    /// Writes the complete sum to the result, at a rank that keeps it.
    fn conclude(
        &self,
        at: ChunkAt,
        sum: PartialSum,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, EngineFault> {
        let writer = match sum {
            PartialSum::InPlace(writer) | PartialSum::Staged(writer) => Some(writer),
            PartialSum::Block(sum) => self.claim(at).map(|mut writer| {
                copy(writer.bytes_mut(), sum.bytes());
                writer
            }),
        };
        // The operation is over here.
        let Some(mut writer) = writer else { return Ok(Progress::Going) };
        let Schedule { reduce, dtype, size, .. } = self.schedule;
        reduce.map_or(Ok(()), |op| finish(op, dtype, writer.bytes_mut(), size))?;
        self.lock(at).lands();
        let encoded = match (self.schedule.codec_down(), self.roles[at.flow].then) {
            (Some(codec), Then::HandOn) => {
                Some(Payload::Block(round_trip(codec, writer.bytes_mut(), &self.pool)?))
            }
            _ => None,
        };
        Ok(self.land(at, writer, encoded, out))
    }

    /// Marks a chunk of the result as written, and forwards it: from its place, or as `encoded`.
    fn land(
        &self,
        at: ChunkAt,
        writer: PartWriter,
        encoded: Option<Payload>,
        out: &mut Vec<OutgoingFrame>,
    ) -> Progress {
        self.windows[at.flow].land(out);
        let piece = writer.land();
        let (result_buffer, range) = (Arc::clone(piece.result_buffer()), piece.range());
        self.post(
            at,
            Phase::Gather,
            &self.roles[at.flow].down_to,
            &encoded.unwrap_or(Payload::WrittenPart(piece)),
            out,
        );
        if let Some(digest) = &self.digest {
            let whole = lock(digest).landed(range);
            for index in whole {
                let block = lock(digest).block(index);
                if let Some(bytes) = result_buffer.landed(block) {
                    let hash = Digest::hash(bytes);
                    lock(digest).note(index, hash);
                }
            }
        }
        self.step()
    }

    fn step(&self) -> Progress {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            Progress::Complete
        } else {
            Progress::Going
        }
    }

    fn post(
        &self,
        at: ChunkAt,
        phase: Phase,
        to: &[Rank],
        payload: &Payload,
        out: &mut Vec<OutgoingFrame>,
    ) {
        // The casts lose nothing: the numbers of flows and chunks are bounded, and a chunk is
        // smaller than 4 GiB.
        let len = payload.bytes().len() as u32;
        let header =
            DataHeader { op: self.op, flow: at.flow as u32, chunk: at.chunk as u32, phase, len };
        let in_view = to.iter().filter_map(|to| self.group.in_view(*to));
        out.extend(in_view.map(|to| OutgoingFrame { to, header, payload: payload.clone() }));
    }
}

/// Allocates the result of this rank: the chunks of the flows that it keeps, one after another.
fn result_buffer(
    schedule: &Schedule,
    roles: &[FlowRole],
    pool: &Pool,
    model: Option<&Block>,
) -> Result<Arc<ResultBuffer>, EngineFault> {
    let kept = || (0..roles.len()).filter(|flow| roles[*flow].keeps);
    let bytes = kept().map(|flow| schedule.flows[flow].elements.len()).sum::<usize>()
        * schedule.dtype.bytes();
    let model = model.filter(|model| model.len() == bytes);
    let memory = match model.map_or(Ok(None), |model| pool.like(model))? {
        Some(like) => like,
        None => pool.block(bytes)?,
    };
    let chunks = kept().flat_map(|flow| (0..schedule.chunks(flow)).map(move |chunk| (flow, chunk)));
    let lengths =
        chunks.map(|(flow, chunk)| schedule.elements(flow, chunk).len() * schedule.dtype.bytes());
    ResultBuffer::new(memory.into_memory(pool)?, lengths)?.ok_or(EngineFault::Unfit)
}
