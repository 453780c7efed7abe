//! Layer: Shells.
//!
//! One operation's progress on one rank: contributions in, parcels and finally the result out. No
//! thread, socket or clock in here; any number of threads may push it along at once.
//!
//! A run is complete when all is here that this rank keeps, and all has gone that it only brings in
//! or passes on. So who gets nothing out of an operation is done when its part is on the way. What
//! it sends of a result that it keeps too may still be waiting then.
//!
//! Each chunk has its own small lock, held while that chunk is folded. Two threads meet at it only
//! when they bring contributions to the very same chunk, and those must be folded one after the
//! other anyway.
//!
//! # Memory
//!
//! The result is one [`Canvas`], made when the run is: what is received of it goes straight to its
//! place, and so does the contribution with which a rank that finishes a chunk begins; both are
//! sent on from there. What a rank only adds to and passes on turns from a contribution into a sum
//! and a parcel in the block that brought it in. A caller's own elements are read where they are; a
//! borrowed contribution waits in the place of the result until it is added, and where it is sent
//! first is a block until it has gone. So on a ring there is the result, and what is on its way,
//! and, with a codec, blocks of the contribution and the encoded parcels.
//!
//! An exchange may have to keep the contributions of higher ranks until the lower ones are here: at
//! most the number of members times the buffer. Exchanges are for small buffers. So it is at the
//! root of a reduction in one step. Round a ring, who passes on what is for others keeps it until
//! it has gone: in an `all_to_all`, the worst case, at most half the number of members times the
//! buffer.

use super::coding::{decoded, encoded, round_trip, rounded};
use super::part::{Part, Payload};
use crate::collective::canvas::{Canvas, Claim};
use crate::collective::schedule::{Itinerary, Station, Then};
use crate::collective::{
    Block, Digest, ENCLOSED_BYTES_MAX, Enclosed, Finished, Input, Pool, Staging, elements_of_mut,
    finish,
};
use crate::compression::Codec;
use crate::copying::copy;
use crate::link::{DataHeader, Phase};
use crate::topology::ranks;
use crate::view::{OpId, Rank};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One operation's progress on one rank.
pub struct Run {
    op: OpId,
    me: Rank,
    itinerary: Itinerary,
    stations: Vec<Station>,
    /// Index of each flow's first chunk in `cells`, and of the end.
    firsts: Vec<usize>,
    cells: Vec<Mutex<Cell>>,
    /// Index of each flow's first chunk in the result.
    places: Vec<usize>,
    /// The result; gone when it is handed out, or the run has failed.
    result: Mutex<Option<Arc<Canvas>>>,
    /// Chunks to be kept that are not here yet, and frames of other flows that have not gone.
    missing: AtomicUsize,
    /// By rank: frames still to be received from it or sent to it.
    open: Vec<AtomicUsize>,
    /// Of a result that all ranks have in common.
    digest: Option<Mutex<Digest>>,
    pool: Pool,
}

/// A frame to be sent.
pub struct Parcel {
    /// To whom.
    pub to: Rank,
    /// What it is.
    pub header: DataHeader,
    /// The bytes.
    pub payload: Payload,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Chunks are missing.
    Going,
    /// This step brought the last chunk, or took the last frame away: take the
    /// [`output`](Run::output). Said once.
    Complete,
    /// The call, the plan and the input do not fit each other.
    Unfit,
}

/// A peer sent what the schedule does not foresee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// The place of a frame whose payload is still to be read.
pub struct Landing {
    at: At,
    from: Rank,
    phase: Phase,
    claim: Claim,
}

/// What is here of one chunk.
#[derive(Default)]
struct Cell {
    /// Bit per contributor that has been here, or is being received.
    came: u16,
    /// How many contributors are in `sum`.
    folded: usize,
    sum: Option<Part>,
    /// Contributions whose turn has not come, by their place among the contributors.
    waiting: Vec<(usize, Part)>,
    /// The result is here or being received.
    landed: bool,
}

/// Where a chunk is.
#[derive(Clone, Copy)]
struct At {
    flow: usize,
    chunk: usize,
    cell: usize,
}

impl Landing {
    /// Where to.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.claim.bytes_mut()
    }
}

impl Run {
    /// The run of `me` in operation `op`. Working memory comes from `pool`; that of the result is
    /// [like](Pool::like) `model`, if that fits. `None` when there is no memory for it.
    pub fn new(
        op: OpId,
        me: Rank,
        itinerary: Itinerary,
        pool: &Pool,
        model: Option<&Block>,
    ) -> Option<Run> {
        let stations: Vec<Station> =
            (0..itinerary.flows.len()).map(|flow| itinerary.station(flow, me)).collect();
        let (mut firsts, mut places) = (vec![0], vec![0]);
        for (flow, station) in stations.iter().enumerate() {
            let chunks = itinerary.chunks(flow);
            firsts.push(firsts[flow] + chunks);
            places.push(places[flow] + if station.keeps { chunks } else { 0 });
        }
        let chunks = firsts[stations.len()];
        let missing = stations
            .iter()
            .enumerate()
            .map(|(flow, station)| station.steps() * itinerary.chunks(flow))
            .sum();
        let digest =
            itinerary.is_common().then(|| Digest::new(itinerary.count() * itinerary.dtype.bytes()));
        let flows = || stations.iter().enumerate();
        let frames = |peer| {
            flows()
                .map(|(flow, station)| station.frames_with(peer, me) * itinerary.chunks(flow))
                .sum()
        };
        let open = ranks(itinerary.size).map(frames).map(AtomicUsize::new).collect();
        let result = canvas(&itinerary, &stations, pool, model)?;
        Some(Run {
            op,
            me,
            stations,
            firsts,
            cells: std::iter::repeat_with(Mutex::default).take(chunks).collect(),
            places,
            result: Mutex::new(Some(result)),
            missing: AtomicUsize::new(missing),
            open,
            digest: digest.map(Mutex::new),
            pool: pool.clone(),
            itinerary,
        })
    }

    /// Which operation.
    pub fn op(&self) -> OpId {
        self.op
    }

    /// Whether nothing has to be moved at all; asked before anything is.
    pub fn is_empty(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Whether frames are still to come from `peer` or to go there.
    pub fn needs(&self, peer: Rank) -> bool {
        self.open.get(peer.index()).is_some_and(|open| open.load(Ordering::Acquire) > 0)
    }

    /// A parcel has gone.
    pub fn sent(&self, parcel: &Parcel) -> Progress {
        self.open[parcel.to.index()].fetch_sub(1, Ordering::AcqRel);
        if self.stations[parcel.header.flow as usize].keeps { Progress::Going } else { self.step() }
    }

    /// The chunks of this rank's own contribution, as flow and chunk, in the order in which they
    /// are needed.
    pub fn feed_order(&self) -> Vec<(usize, usize)> {
        self.itinerary.feed_order(self.me)
    }

    /// Whether `input` is as long as this rank's contribution. Of a rank that contributes nothing
    /// none is asked for.
    pub fn fits(&self, input: &Input<'_>) -> bool {
        let bytes = self.itinerary.input_bytes(self.me);
        bytes == 0 || bytes == input.len()
    }

    /// Takes a chunk of this rank's own contribution, each once, from `input`, which
    /// [fits](Run::fits). What it sets free to be sent is added to `out`.
    pub fn contribute(
        &self,
        (flow, chunk): (usize, usize),
        input: &Input<'_>,
        out: &mut Vec<Parcel>,
    ) -> Progress {
        let at = At { flow, chunk, cell: self.firsts[flow] + chunk };
        let (station, bytes) =
            (&self.stations[flow], self.itinerary.input_range(self.me, flow, chunk));
        let place = station.contributors.iter().position(|rank| *rank == self.me).unwrap_or(0);
        // What is the result, and what is copied anyway and has others' added to it or is added to
        // theirs, is copied to where the result will be.
        let own_codec = self.itinerary.codec_own(self.me);
        let meets_others =
            own_codec.is_none() && station.contributors.len() > 1 && station.then != Then::Keep;
        if station.keeps
            && (self.itinerary.reduce.is_none() || input.is_copied() && meets_others)
            && let Some(mut claim) = self.claim(at)
        {
            if !input.copy_to(bytes.start, claim.bytes_mut()) {
                return Progress::Unfit;
            }
            let part = if matches!(station.then, Then::Send(_)) {
                Part::Staged(claim)
            } else {
                Part::InPlace(claim)
            };
            return self.add(at, place, part, out);
        }
        let Some(mut block) = input.piece(&self.pool, bytes) else { return Progress::Unfit };
        if station.then != Then::Keep {
            // What goes on alone is encoded then. What meets others here counts as they would have
            // got it.
            let is_alone = station.contributors.len() == 1 && matches!(station.then, Then::Send(_));
            let encoding = own_codec.filter(|_| !is_alone);
            let own = encoding.and_then(|codec| rounded(codec, block.bytes(), &self.pool));
            return self.add(at, place, Part::new(own.unwrap_or(block)), out);
        }
        let others: Vec<Rank> =
            station.contributors.iter().copied().filter(|rank| *rank != self.me).collect();
        // Everybody folds what the others could decode, so this rank does so too.
        let encoded = own_codec.map(|codec| round_trip(codec, block.bytes_mut(), &self.pool));
        let own = Arc::new(block);
        self.post(
            at,
            Phase::Reduce,
            &others,
            &Payload::Block(encoded.unwrap_or_else(|| Arc::clone(&own))),
            out,
        );
        self.add(at, place, Part::Block(own), out)
    }

    /// What these parcels carry, if it is small and they take the same to all other ranks.
    pub fn enclose(&self, parcels: &[Parcel]) -> Option<Enclosed> {
        let first = parcels.first()?;
        let DataHeader { flow, chunk, phase, .. } = first.header;
        let to_all = parcels.len() + 1 == self.itinerary.size
            && parcels.iter().all(|parcel| parcel.header == first.header);
        let bytes = first.payload.bytes();
        (to_all && bytes.len() <= ENCLOSED_BYTES_MAX).then(|| Enclosed {
            flow,
            chunk,
            is_result: phase == Phase::Gather,
            bytes: bytes.into(),
        })
    }

    /// Where the payload of a frame from a peer is to be received, when that is straight in the
    /// result. Whoever gets a place must have the frame [land](Run::land_frame), or end the link to
    /// that peer. `None` says nothing about the frame.
    pub fn place(&self, from: Rank, header: &DataHeader) -> Option<Landing> {
        let at = self.locate(header)?;
        let (station, elements) =
            (&self.stations[at.flow], self.itinerary.elements(at.flow, at.chunk).len());
        let len = header.len as usize;
        let is_plain = self.codec_of(&at, from, header.phase)?.is_none();
        if !station.keeps || !is_plain || len != self.itinerary.wire_bytes(None, elements) {
            return None;
        }
        let claim = match header.phase {
            Phase::Reduce if !matches!(station.then, Then::Send(_)) => {
                let bit = 1 << self.contributor(at, from)?;
                let mut cell = lock(&self.cells[at.cell]);
                let claim = if cell.came & bit == 0 { self.claim(at) } else { None }?;
                cell.came |= bit;
                claim
            }
            Phase::Gather if station.down_from == Some(from) => {
                let mut cell = lock(&self.cells[at.cell]);
                let claim = if cell.landed { None } else { self.claim(at) }?;
                cell.landed = true;
                claim
            }
            _ => return None,
        };
        Some(Landing { at, from, phase: header.phase, claim })
    }

    /// A frame is in its place. What it sets free to be sent is added to `out`.
    pub fn land_frame(&self, landing: Landing, out: &mut Vec<Parcel>) -> Progress {
        let Landing { at, from, phase, claim } = landing;
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        match phase {
            Phase::Reduce => {
                self.add(at, self.contributor(at, from).unwrap_or(0), Part::InPlace(claim), out)
            }
            _ => self.land(at, claim, None, out),
        }
    }

    /// Takes a frame from a peer that has no place in the result. What it sets free to be sent is
    /// added to `out`.
    ///
    /// # Errors
    /// [`Violation`] when no such frame was to come from this peer; nothing has changed then.
    pub fn receive(
        &self,
        from: Rank,
        header: &DataHeader,
        block: Block,
        out: &mut Vec<Parcel>,
    ) -> Result<Progress, Violation> {
        let at = self.locate(header).ok_or(Violation)?;
        let elements = self.itinerary.elements(at.flow, at.chunk).len();
        let codec = self.codec_of(&at, from, header.phase).ok_or(Violation)?;
        if block.len() != self.itinerary.wire_bytes(codec, elements) {
            return Err(Violation);
        }
        match header.phase {
            Phase::Reduce => self.receive_part(at, from, codec, block, out),
            _ => self.receive_result(at, from, codec, block, out),
        }
    }

    /// The result, once, when a step has said [`Progress::Complete`]. Frames that are still to be
    /// sent keep reading from it. `None` when the run was cleared meanwhile.
    pub fn output(&self) -> Option<Finished> {
        let canvas = lock(&self.result).take()?;
        let block = Block::result(canvas)?;
        let taken = self
            .digest
            .as_ref()
            .map(|digest| std::mem::replace(&mut *lock(digest), Digest::new(0)));
        let blocks = if block.len() == 0 { Vec::new() } else { vec![block] };
        Some(Finished {
            digest: taken.map_or(0, |digest| digest.finish(&blocks)),
            output: Staging { blocks },
        })
    }

    /// Lets go of all memory; for a run that has failed or is decided. Who receives into it at that
    /// moment keeps it alive.
    pub fn clear(&self) {
        lock(&self.result).take();
        for cell in &self.cells {
            *lock(cell) = Cell { came: u16::MAX, landed: true, ..Cell::default() };
        }
    }

    /// How what a peer sends in this phase is encoded; `None` of one that belongs to another
    /// engine.
    fn codec_of(&self, at: &At, from: Rank, phase: Phase) -> Option<Option<&'static dyn Codec>> {
        match phase {
            Phase::Reduce => Some(self.itinerary.codec_up(at.flow, from)),
            Phase::Gather => Some(self.itinerary.codec_down()),
            Phase::Message | Phase::Posted => None,
        }
    }

    fn locate(&self, header: &DataHeader) -> Option<At> {
        let (flow, chunk) = (header.flow as usize, header.chunk as usize);
        let (first, end) = (*self.firsts.get(flow)?, *self.firsts.get(flow + 1)?);
        (chunk < end - first).then_some(At { flow, chunk, cell: first + chunk })
    }

    /// The place of a peer among the contributors to a chunk.
    fn contributor(&self, at: At, from: Rank) -> Option<usize> {
        self.stations[at.flow].contributors.iter().position(|rank| *rank == from && from != self.me)
    }

    /// The right to write a chunk of the result, which is kept here.
    fn claim(&self, at: At) -> Option<Claim> {
        lock(&self.result).as_ref()?.claim(self.places[at.flow] + at.chunk)
    }

    fn receive_part(
        &self,
        at: At,
        from: Rank,
        codec: Option<&dyn Codec>,
        block: Block,
        out: &mut Vec<Parcel>,
    ) -> Result<Progress, Violation> {
        let place = self.contributor(at, from).ok_or(Violation)?;
        let bit = 1 << place;
        {
            let mut cell = lock(&self.cells[at.cell]);
            if cell.came & bit != 0 {
                return Err(Violation);
            }
            cell.came |= bit;
        }
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        let part = match codec {
            None => block,
            Some(codec) => {
                let elements = self.itinerary.elements(at.flow, at.chunk).len();
                decoded(codec, block.bytes(), elements, &self.pool).ok_or(Violation)?
            }
        };
        Ok(self.add(at, place, Part::new(part), out))
    }

    fn receive_result(
        &self,
        at: At,
        from: Rank,
        codec: Option<&dyn Codec>,
        block: Block,
        out: &mut Vec<Parcel>,
    ) -> Result<Progress, Violation> {
        let station = &self.stations[at.flow];
        if station.down_from != Some(from) {
            return Err(Violation);
        }
        {
            let mut cell = lock(&self.cells[at.cell]);
            if std::mem::replace(&mut cell.landed, true) {
                return Err(Violation);
            }
        }
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        let received = Payload::Block(Arc::new(block));
        if !station.keeps {
            self.post(at, Phase::Gather, &station.down_to, &received, out);
            return Ok(Progress::Going);
        }
        // Not to be had when the run is over, or this rank's own contribution is still there.
        let mut claim = self.claim(at).ok_or(Violation)?;
        match codec {
            None => copy(claim.bytes_mut(), received.bytes()),
            Some(codec) => {
                let elements = elements_of_mut(claim.bytes_mut()).ok_or(Violation)?;
                codec.decode(received.bytes(), elements).map_err(|_| Violation)?;
            }
        }
        Ok(self.land(at, claim, Some(received), out))
    }

    /// Folds a contribution, and those that waited for it, in the order of the contributors.
    fn add(&self, at: At, place: usize, part: Part, out: &mut Vec<Parcel>) -> Progress {
        let mut cell = lock(&self.cells[at.cell]);
        cell.waiting.push((place, part));
        while let Some(next) = cell.waiting.iter().position(|(place, _)| *place == cell.folded) {
            let (_, part) = cell.waiting.swap_remove(next);
            cell.folded += 1;
            let sum = match (cell.sum.take(), self.itinerary.reduce) {
                (Some(sum), Some(op)) => sum.fold(part, op, self.itinerary.dtype, &self.pool),
                _ => Ok(part),
            };
            let Ok(sum) = sum else { return Progress::Unfit };
            cell.sum = Some(sum);
        }
        if cell.folded < self.stations[at.flow].contributors.len() {
            return Progress::Going;
        }
        match cell.sum.take() {
            Some(sum) => {
                drop(cell);
                self.settle(at, sum, out)
            }
            None => Progress::Going,
        }
    }

    /// All contributions of this station are in.
    fn settle(&self, at: At, sum: Part, out: &mut Vec<Parcel>) -> Progress {
        let station = &self.stations[at.flow];
        let (phase, to) = match station.then {
            Then::Send(parent) => (Phase::Reduce, &[parent][..]),
            Then::HandOn if !station.keeps => (Phase::Gather, &station.down_to[..]),
            Then::Keep | Then::HandOn => return self.conclude(at, sum, out),
        };
        if let Part::Block(sum) = sum {
            let codec = self.itinerary.codec_up(at.flow, self.me);
            let part = codec.map(|codec| encoded(codec, sum.bytes(), &self.pool));
            self.post(at, phase, to, &Payload::Block(part.unwrap_or(sum)), out);
        }
        Progress::Going
    }

    /// The contributions of all are in, at a rank that keeps the result.
    fn conclude(&self, at: At, sum: Part, out: &mut Vec<Parcel>) -> Progress {
        let claim = match sum {
            Part::InPlace(claim) | Part::Staged(claim) => Some(claim),
            Part::Block(sum) => self.claim(at).map(|mut claim| {
                copy(claim.bytes_mut(), sum.bytes());
                claim
            }),
        };
        // Gone when the run is over.
        let Some(mut claim) = claim else { return Progress::Going };
        let Itinerary { reduce, dtype, size, .. } = self.itinerary;
        let finished = reduce.map_or(Ok(()), |op| finish(op, dtype, claim.bytes_mut(), size));
        if finished.is_err() {
            return Progress::Unfit;
        }
        lock(&self.cells[at.cell]).landed = true;
        let encoded = match (self.itinerary.codec_down(), self.stations[at.flow].then) {
            (Some(codec), Then::HandOn) => {
                Some(Payload::Block(round_trip(codec, claim.bytes_mut(), &self.pool)))
            }
            _ => None,
        };
        self.land(at, claim, encoded, out)
    }

    /// A chunk of the result is here. It goes on from where it is, or as it is `encoded`.
    fn land(
        &self,
        at: At,
        claim: Claim,
        encoded: Option<Payload>,
        out: &mut Vec<Parcel>,
    ) -> Progress {
        let piece = claim.land();
        let (canvas, range) = (Arc::clone(piece.canvas()), piece.range());
        self.post(
            at,
            Phase::Gather,
            &self.stations[at.flow].down_to,
            &encoded.unwrap_or(Payload::Piece(piece)),
            out,
        );
        if let Some(digest) = &self.digest {
            let whole = lock(digest).landed(range);
            for index in whole {
                let block = lock(digest).block(index);
                if let Some(bytes) = canvas.landed(block) {
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

    fn post(&self, at: At, phase: Phase, to: &[Rank], payload: &Payload, out: &mut Vec<Parcel>) {
        // The casts lose nothing: schedules have few flows and a bounded number of chunks, chunks
        // are smaller than 4 GiB.
        let len = payload.bytes().len() as u32;
        let header =
            DataHeader { op: self.op, flow: at.flow as u32, chunk: at.chunk as u32, phase, len };
        out.extend(to.iter().map(|to| Parcel { to: *to, header, payload: payload.clone() }));
    }
}

/// The memory of the result of a rank: the chunks of the flows that it keeps, one behind the other.
fn canvas(
    itinerary: &Itinerary,
    stations: &[Station],
    pool: &Pool,
    model: Option<&Block>,
) -> Option<Arc<Canvas>> {
    let kept = || (0..stations.len()).filter(|flow| stations[*flow].keeps);
    let bytes = kept().map(|flow| itinerary.flows[flow].elements.len()).sum::<usize>()
        * itinerary.dtype.bytes();
    let like = model.filter(|model| model.len() == bytes).and_then(|model| pool.like(model));
    let memory = like.or_else(|| pool.try_block(bytes))?;
    let chunks =
        kept().flat_map(|flow| (0..itinerary.chunks(flow)).map(move |chunk| (flow, chunk)));
    Canvas::new(
        memory,
        chunks.map(|(flow, chunk)| itinerary.elements(flow, chunk).len() * itinerary.dtype.bytes()),
    )
}

/// A lock whose data stays usable when a thread panicked while holding it: every section here
/// leaves it whole.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
