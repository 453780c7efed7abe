//! Received frames: where their payload belongs, and its consequences.

use super::super::super::schedule::Then;
use super::super::chunk_numbers::ChunkAt;
use super::super::coding::decoded;
use super::super::partial_sum::{PartialSum, Payload};
use super::{OpProgress, OutgoingFrame, Progress};
use crate::compression::Codec;
use crate::link::{DataHeader, Phase};
use crate::memory::{Block, OutOfMemory, PartWriter, elements_of_mut};
use crate::os::copy;
use crate::protocol::{EngineFault, Rank};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Why a frame was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// A peer sent it outside the schedule.
    Violation,
    /// The operation has failed here.
    Fault(EngineFault),
}

impl From<EngineFault> for Untaken {
    fn from(fault: EngineFault) -> Untaken {
        Untaken::Fault(fault)
    }
}

impl From<OutOfMemory> for Untaken {
    fn from(lack: OutOfMemory) -> Untaken {
        Untaken::Fault(lack.into())
    }
}

/// The receive slot of a frame: its place in the result, while the payload is still to be read.
pub struct ReceiveSlot {
    at: ChunkAt,
    from: Rank,
    phase: Phase,
    writer: PartWriter,
}

impl ReceiveSlot {
    /// The destination of the payload.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.writer.bytes_mut()
    }
}

impl OpProgress {
    /// The receive slot for a frame from a rank of the View, if its payload belongs straight into
    /// the result. The caller must either [land](OpProgress::land_frame) the frame or end the link
    /// to that peer. `None` does not mean that the frame is invalid:
    /// [`receive`](OpProgress::receive) decides that.
    pub fn receive_slot(&self, from: Rank, header: &DataHeader) -> Option<ReceiveSlot> {
        let (from, at) = (self.group.in_group(from)?, self.numbers.find(header)?);
        let (role, elements) =
            (&self.roles[at.flow], self.schedule.elements(at.flow, at.chunk).len());
        let len = header.len as usize;
        let is_plain = self.codec_of(&at, from, header.phase)?.is_none();
        if !role.keeps || !is_plain || len != self.schedule.wire_bytes(None, elements) {
            return None;
        }
        let writer = match header.phase {
            Phase::Reduce if !matches!(role.then, Then::Send(_)) => {
                let contributor = self.contributor(at, from)?;
                let mut chunk = self.lock(at);
                let writer = if chunk.has_come(contributor) { None } else { self.claim(at) }?;
                chunk.comes(contributor);
                writer
            }
            Phase::Gather if role.down_from == Some(from) => {
                let mut chunk = self.lock(at);
                let writer = if chunk.has_landed() { None } else { self.claim(at) }?;
                chunk.lands();
                writer
            }
            _ => return None,
        };
        Some(ReceiveSlot { at, from, phase: header.phase, writer })
    }

    /// Completes a frame whose payload is in its receive slot. Adds the frames that can now be sent
    /// to `out`.
    ///
    /// # Errors
    /// As for [`contribute`](OpProgress::contribute).
    pub fn land_frame(
        &self,
        slot: ReceiveSlot,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, EngineFault> {
        let ReceiveSlot { at, from, phase, writer } = slot;
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        match phase {
            Phase::Reduce => {
                let contributor = self.contributor(at, from).unwrap_or(0);
                self.add(at, contributor, PartialSum::InPlace(writer), out)
            }
            _ => Ok(self.land(at, writer, None, out)),
        }
    }

    /// Takes a frame from a rank of the View that has no receive slot. Adds the frames that can now
    /// be sent to `out`.
    ///
    /// # Errors
    /// [`Untaken::Violation`] if the schedule expects no such frame from this peer now; nothing has
    /// changed then. Also if the payload cannot be decoded; the frame still counts as received.
    /// [`Untaken::Fault`] as for [`contribute`](OpProgress::contribute).
    pub fn receive(
        &self,
        from: Rank,
        header: &DataHeader,
        block: Block,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, Untaken> {
        let from = self.group.in_group(from).ok_or(Untaken::Violation)?;
        let at = self.numbers.find(header).ok_or(Untaken::Violation)?;
        let elements = self.schedule.elements(at.flow, at.chunk).len();
        let codec = self.codec_of(&at, from, header.phase).ok_or(Untaken::Violation)?;
        if block.len() != self.schedule.wire_bytes(codec, elements) {
            return Err(Untaken::Violation);
        }
        match header.phase {
            Phase::Reduce => self.receive_contribution(at, from, codec, block, out),
            _ => self.receive_result(at, from, codec, block, out),
        }
    }

    /// The codec of the frames that `from` sends in this phase; the outer `None` for phases of
    /// another engine.
    fn codec_of(
        &self,
        at: &ChunkAt,
        from: Rank,
        phase: Phase,
    ) -> Option<Option<&'static dyn Codec>> {
        match phase {
            Phase::Reduce => Some(self.schedule.codec_up(at.flow, from)),
            Phase::Gather => Some(self.schedule.codec_down()),
            Phase::Message | Phase::Posted => None,
        }
    }

    /// The index of a peer among the contributors to a chunk; `None` for this rank itself.
    fn contributor(&self, at: ChunkAt, from: Rank) -> Option<usize> {
        self.roles[at.flow].contributors.iter().position(|rank| *rank == from && from != self.me)
    }

    fn receive_contribution(
        &self,
        at: ChunkAt,
        from: Rank,
        codec: Option<&dyn Codec>,
        block: Block,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, Untaken> {
        let contributor = self.contributor(at, from).ok_or(Untaken::Violation)?;
        if !self.lock(at).comes(contributor) {
            return Err(Untaken::Violation);
        }
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        let contribution = match codec {
            None => block,
            Some(codec) => {
                let elements = self.schedule.elements(at.flow, at.chunk).len();
                decoded(codec, block.bytes(), elements, &self.pool)?.ok_or(Untaken::Violation)?
            }
        };
        Ok(self.add(at, contributor, PartialSum::new(contribution), out)?)
    }

    fn receive_result(
        &self,
        at: ChunkAt,
        from: Rank,
        codec: Option<&dyn Codec>,
        block: Block,
        out: &mut Vec<OutgoingFrame>,
    ) -> Result<Progress, Untaken> {
        let role = &self.roles[at.flow];
        if role.down_from != Some(from) {
            return Err(Untaken::Violation);
        }
        if !self.lock(at).lands() {
            return Err(Untaken::Violation);
        }
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        let received = Payload::Block(Arc::new(block));
        if !role.keeps {
            self.post(at, Phase::Gather, &role.down_to, &received, out);
            return Ok(Progress::Going);
        }
        // Fails if the operation is over here, or if this rank's own contribution still occupies
        // the place.
        let mut writer = self.claim(at).ok_or(Untaken::Violation)?;
        match codec {
            None => copy(writer.bytes_mut(), received.bytes()),
            Some(codec) => {
                let elements = elements_of_mut(writer.bytes_mut()).ok_or(Untaken::Violation)?;
                codec.decode(received.bytes(), elements).map_err(|_| Untaken::Violation)?;
            }
        }
        Ok(self.land(at, writer, Some(received), out))
    }
}
