//! Layer: Shells.
//!
//! One operation's progress on one rank: blocks in, parcels and finally the result out. No thread, socket or clock in here;
//! any number of threads may push it along at once.
//!
//! A run is complete when all is here that this rank keeps, and all has gone that it only brings in or passes on. So who
//! gets nothing out of an operation is done when its part is on the way. What it sends of a result that it keeps too may
//! still be waiting then.
//!
//! Each chunk has its own small lock, held while that chunk is folded. Two threads meet at it only when they bring
//! contributions to the very same chunk, and those must be folded one after the other anyway.
//!
//! # Memory
//!
//! A chunk's contribution turns into a partial sum, and that into a parcel, in the memory that brought it in. On
//! a ring there is so at most one block per chunk, the size of the buffer in all, beside what is being received and, with
//! a codec, the encoded parcels. An exchange may have to keep the contributions of higher ranks until the lower ones are
//! here: at most the number of members times the buffer. Exchanges are for small buffers, and for two members. So it is
//! at the root of a reduction in one step. Round a ring, who passes on what is for others keeps it until it has gone: in an
//! `all_to_all`, the worst case, at most half the number of members times the buffer.

use crate::collective::schedule::{Itinerary, Station, Then};
use crate::collective::{Block, Digest, Finished, Pool, ReduceOp, Staging, elements_of, elements_of_mut, finish, fold};
use crate::compression::{Codec, codec};
use crate::link::{DataHeader, Phase};
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
    /// Chunks to be kept that are not here yet, and frames of other flows that have not gone.
    missing: AtomicUsize,
    /// By rank: frames still to be received from it or sent to it.
    open: Vec<AtomicUsize>,
    /// Of a result that all ranks have in common.
    digest: Option<Mutex<Digest>>,
    pool: Pool,
}

/// A frame to be sent. The payload is shared, never copied.
pub struct Parcel {
    /// To whom.
    pub to: Rank,
    /// What it is.
    pub header: DataHeader,
    /// The bytes.
    pub payload: Arc<Block>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Chunks are missing.
    Going,
    /// This step brought the last chunk, or took the last frame away: take the [`output`](Run::output). Said once.
    Complete,
}

/// A peer sent what the schedule does not foresee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// What is here of one chunk.
#[derive(Default)]
struct Cell {
    /// Bit per contributor that has been here.
    came: u16,
    /// How many contributors are in `sum`.
    folded: usize,
    sum: Option<Arc<Block>>,
    /// Contributions whose turn has not come, by their place among the contributors.
    waiting: Vec<(usize, Arc<Block>)>,
    landed: bool,
    result: Option<Arc<Block>>,
}

/// Where a chunk is.
#[derive(Clone, Copy)]
struct At {
    flow: usize,
    chunk: usize,
    cell: usize,
}

impl Run {
    /// The run of `me` in operation `op`. Working memory comes from `pool`.
    pub fn new(op: OpId, me: Rank, itinerary: Itinerary, pool: &Pool) -> Run {
        let stations: Vec<Station> = (0..itinerary.flows.len()).map(|flow| itinerary.station(flow, me)).collect();
        let mut firsts = vec![0];
        for flow in 0..stations.len() {
            firsts.push(firsts[flow] + itinerary.chunks(flow));
        }
        let chunks = firsts[stations.len()];
        let missing = stations.iter().enumerate().map(|(flow, station)| station.steps() * itinerary.chunks(flow)).sum();
        let digest = itinerary.is_common().then(|| Digest::new(itinerary.count() * itinerary.dtype.bytes()));
        let open = (0..itinerary.size).map(|rank| frames_with(rank, me, &itinerary, &stations)).map(AtomicUsize::new).collect();
        Run {
            op,
            me,
            stations,
            firsts,
            cells: std::iter::repeat_with(Mutex::default).take(chunks).collect(),
            missing: AtomicUsize::new(missing),
            open,
            digest: digest.map(Mutex::new),
            pool: pool.clone(),
            itinerary,
        }
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

    /// Lengths of the blocks of this rank's contribution, in the order of [`contribute`](Run::contribute).
    pub fn input_layout(&self) -> Vec<usize> {
        self.itinerary.input_layout(self.me)
    }

    /// Brings block `index` of this rank's own contribution, each once and of the length that the layout says.
    /// What it sets free to be sent is added to `out`.
    pub fn contribute(&self, index: usize, mut block: Block, out: &mut Vec<Parcel>) -> Progress {
        let own = self.itinerary.own_flows(self.me);
        let cell = self.firsts[own.start] + index;
        let flow = self.firsts.partition_point(|first| *first <= cell) - 1;
        let at = At { flow, chunk: cell - self.firsts[flow], cell };
        let station = &self.stations[flow];
        let place = station.contributors.iter().position(|rank| *rank == self.me).unwrap_or(0);
        if station.then != Then::Keep {
            return self.add(at, place, Arc::new(block), out);
        }
        let others: Vec<Rank> = station.contributors.iter().copied().filter(|rank| *rank != self.me).collect();
        // Everybody folds what the others could decode, so this rank does so too.
        let encoded = codec(self.itinerary.codec).map(|codec| self.round_trip(codec, &mut block));
        let own = Arc::new(block);
        self.post(at, Phase::Reduce, &others, &encoded.unwrap_or_else(|| Arc::clone(&own)), out);
        self.add(at, place, own, out)
    }

    /// Takes a frame from a peer. What it sets free to be sent is added to `out`.
    ///
    /// # Errors
    /// [`Violation`] when no such frame was to come from this peer; nothing has changed then.
    pub fn receive(&self, from: Rank, header: &DataHeader, block: Block, out: &mut Vec<Parcel>) -> Result<Progress, Violation> {
        let at = self.locate(header).ok_or(Violation)?;
        let elements = self.itinerary.elements(at.flow, at.chunk).len();
        if block.len() != self.itinerary.wire_bytes(elements) {
            return Err(Violation);
        }
        match header.phase {
            Phase::Reduce => self.receive_part(at, from, block, out),
            Phase::Gather => self.receive_result(at, from, block, out),
            // Those belong to another engine.
            Phase::Message | Phase::Posted => Err(Violation),
        }
    }

    /// The result, once, when a step has said [`Progress::Complete`]. Blocks that are still being sent are copied.
    pub fn output(&self) -> Finished {
        let take = |cell: &Mutex<Cell>| lock(cell).result.take();
        let blocks: Vec<Block> = self.cells.iter().filter_map(take).map(|block| self.alone(block)).collect();
        let taken = self.digest.as_ref().map(|digest| std::mem::replace(&mut *lock(digest), Digest::new(0)));
        Finished { digest: taken.map_or(0, |digest| digest.finish(&blocks)), output: Staging { blocks } }
    }

    /// Lets go of every block; for a run that has failed.
    pub fn clear(&self) {
        for cell in &self.cells {
            *lock(cell) = Cell { came: u16::MAX, landed: true, ..Cell::default() };
        }
    }

    fn locate(&self, header: &DataHeader) -> Option<At> {
        let (flow, chunk) = (header.flow as usize, header.chunk as usize);
        let (first, end) = (*self.firsts.get(flow)?, *self.firsts.get(flow + 1)?);
        (chunk < end - first).then_some(At { flow, chunk, cell: first + chunk })
    }

    fn receive_part(&self, at: At, from: Rank, block: Block, out: &mut Vec<Parcel>) -> Result<Progress, Violation> {
        let contributors = &self.stations[at.flow].contributors;
        let place = contributors.iter().position(|rank| *rank == from && from != self.me).ok_or(Violation)?;
        let bit = 1 << place;
        {
            let mut cell = lock(&self.cells[at.cell]);
            if cell.came & bit != 0 {
                return Err(Violation);
            }
            cell.came |= bit;
        }
        self.open[from.index()].fetch_sub(1, Ordering::AcqRel);
        let part = match codec(self.itinerary.codec) {
            None => block,
            Some(codec) => self.decoded(codec, &block).ok_or(Violation)?,
        };
        Ok(self.add(at, place, Arc::new(part), out))
    }

    fn receive_result(&self, at: At, from: Rank, block: Block, out: &mut Vec<Parcel>) -> Result<Progress, Violation> {
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
        let result = match codec(self.itinerary.codec).filter(|_| station.keeps) {
            None => None,
            Some(codec) => Some(Arc::new(self.decoded(codec, &block).ok_or(Violation)?)),
        };
        let received = Arc::new(block);
        self.post(at, Phase::Gather, &station.down_to, &received, out);
        Ok(self.land(at, result.unwrap_or(received)))
    }

    /// Folds a contribution, and those that waited for it, in the order of the contributors.
    fn add(&self, at: At, place: usize, part: Arc<Block>, out: &mut Vec<Parcel>) -> Progress {
        let mut cell = lock(&self.cells[at.cell]);
        cell.waiting.push((place, part));
        while let Some(next) = cell.waiting.iter().position(|(place, _)| *place == cell.folded) {
            let (_, part) = cell.waiting.swap_remove(next);
            cell.folded += 1;
            cell.sum = Some(match (cell.sum.take(), self.itinerary.reduce) {
                (Some(sum), Some(op)) => self.folded(op, sum, part),
                _ => part,
            });
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

    /// Folds into whichever of the two nobody else reads; into a copy when both are still being sent.
    fn folded(&self, op: ReduceOp, mut a: Arc<Block>, mut b: Arc<Block>) -> Arc<Block> {
        let dtype = self.itinerary.dtype;
        if let Some(sum) = Arc::get_mut(&mut a) {
            fold(op, dtype, sum.bytes_mut(), b.bytes());
            return a;
        }
        if let Some(sum) = Arc::get_mut(&mut b) {
            fold(op, dtype, sum.bytes_mut(), a.bytes());
            return b;
        }
        let mut sum = self.alone(a);
        fold(op, dtype, sum.bytes_mut(), b.bytes());
        Arc::new(sum)
    }

    /// All contributions of this station are in.
    fn settle(&self, at: At, sum: Arc<Block>, out: &mut Vec<Parcel>) -> Progress {
        let station = &self.stations[at.flow];
        if let Then::Send(parent) = station.then {
            let part = match codec(self.itinerary.codec) {
                None => sum,
                Some(codec) => Arc::new(self.encoded(codec, &sum)),
            };
            self.post(at, Phase::Reduce, &[parent], &part, out);
            return Progress::Going;
        }
        let mut result = self.alone(sum);
        if let Some(op) = self.itinerary.reduce {
            finish(op, self.itinerary.dtype, result.bytes_mut(), self.itinerary.size);
        }
        lock(&self.cells[at.cell]).landed = true;
        let encoded = match (codec(self.itinerary.codec), station.then) {
            (Some(codec), Then::HandOn) => Some(self.round_trip(codec, &mut result)),
            _ => None,
        };
        let result = Arc::new(result);
        self.post(at, Phase::Gather, &station.down_to, encoded.as_ref().unwrap_or(&result), out);
        self.land(at, result)
    }

    /// A chunk of the result is here. Who does not keep it has seen to it that it goes on.
    fn land(&self, at: At, result: Arc<Block>) -> Progress {
        if !self.stations[at.flow].keeps {
            return Progress::Going;
        }
        let start = self.itinerary.elements(at.flow, at.chunk).start * self.itinerary.dtype.bytes();
        if let Some(digest) = &self.digest {
            let whole = lock(digest).whole_blocks(start, result.len());
            for index in whole {
                let hash = Digest::hash_in(index, start, result.bytes());
                lock(digest).note(index, hash);
            }
        }
        lock(&self.cells[at.cell]).result = Some(result);
        self.step()
    }

    fn step(&self) -> Progress {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 { Progress::Complete } else { Progress::Going }
    }

    fn post(&self, at: At, phase: Phase, to: &[Rank], payload: &Arc<Block>, out: &mut Vec<Parcel>) {
        // The casts lose nothing: schedules have few flows and a bounded number of chunks, blocks are smaller than 4 GiB.
        let header = DataHeader { op: self.op, flow: at.flow as u32, chunk: at.chunk as u32, phase, len: payload.len() as u32 };
        out.extend(to.iter().map(|to| Parcel { to: *to, header, payload: Arc::clone(payload) }));
    }

    fn alone(&self, block: Arc<Block>) -> Block {
        Arc::try_unwrap(block).unwrap_or_else(|shared| {
            let mut copy = self.pool.block(shared.len());
            copy.bytes_mut().copy_from_slice(shared.bytes());
            copy
        })
    }

    fn encoded(&self, codec: &dyn Codec, block: &Block) -> Block {
        let elements = elements_of::<f32>(block.bytes()).unwrap_or_default();
        let mut encoded = self.pool.block(codec.encoded_len(elements.len()));
        codec.encode(elements, encoded.bytes_mut());
        encoded
    }

    fn decoded(&self, codec: &dyn Codec, encoded: &Block) -> Option<Block> {
        let mut block = self.pool.block(encoded.len() / codec.encoded_len(1).max(1) * size_of::<f32>());
        codec.decode(encoded.bytes(), elements_of_mut(block.bytes_mut())?).ok()?;
        Some(block)
    }

    /// Encodes `block` and overwrites it with what the others will decode.
    fn round_trip(&self, codec: &dyn Codec, block: &mut Block) -> Arc<Block> {
        let encoded = self.encoded(codec, block);
        let decoded = elements_of_mut(block.bytes_mut()).map(|elements| codec.decode(encoded.bytes(), elements));
        debug_assert_eq!(decoded, Some(Ok(())));
        Arc::new(encoded)
    }
}

/// Frames between this rank and `peer`, both ways.
fn frames_with(peer: usize, me: Rank, itinerary: &Itinerary, stations: &[Station]) -> usize {
    let frames = |(flow, station): (usize, &Station)| {
        let is_peer = |rank: &Rank| rank.index() == peer && *rank != me;
        let contributions = station.contributors.iter().filter(|rank| is_peer(rank)).count();
        let up = match station.then {
            Then::Send(parent) => usize::from(is_peer(&parent)),
            Then::Keep => contributions,
            Then::HandOn => 0,
        };
        let down = station.down_from.iter().chain(&station.down_to).filter(|rank| is_peer(rank)).count();
        (contributions + up + down) * itinerary.chunks(flow)
    };
    stations.iter().enumerate().map(frames).sum()
}

/// A lock whose data stays usable when a thread panicked while holding it: every section here leaves it whole.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
