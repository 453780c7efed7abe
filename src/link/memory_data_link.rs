//! In-memory data links: two bounded queues of encoded frames.

#![cfg_attr(
    not(test),
    expect(dead_code, reason = "cables are cut, and ends paired by hand, in tests alone")
)]

use super::transport::{
    DataHeader, DataLink, DataReceiver, DataSender, PAYLOAD_BYTES_MAX, Shutdown,
};
use crate::os::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};

/// The two ends of an in-memory data link.
pub fn data_pair() -> (Box<dyn DataLink>, Box<dyn DataLink>) {
    Cable::pair(&Arc::new(Cable::new()))
}

/// Payload bytes in flight in one direction before its sender blocks: about as many as a socket on
/// a LAN holds. A single frame is always accepted by an empty queue.
pub const WINDOW_BYTES: usize = 2 * PAYLOAD_BYTES_MAX;

/// Frames in flight in one direction before its sender blocks, however small they are.
pub const WINDOW_FRAMES: usize = 4096;

/// The two directions of a link.
pub(super) struct Cable {
    lanes: [Lane; 2],
}

/// Whether frames are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    Held,
}

/// One end: it sends on the lane of index `own`, and receives on the other one.
struct End {
    cable: Arc<Cable>,
    own: usize,
}

/// Both halves of an end.
struct MemoryDataLink {
    sender: MemoryDataSender,
    receiver: MemoryDataReceiver,
}

struct MemoryDataSender(End);

/// The second field is the payload of the frame whose header was read last.
struct MemoryDataReceiver(End, Vec<u8>);

/// One direction.
struct Lane {
    state: Mutex<LaneState>,
    changed: Condvar,
}

struct LaneState {
    frames: VecDeque<([u8; DataHeader::BYTES], Vec<u8>)>,
    frames_max: usize,
    bytes: usize,
    passage: Passage,
    /// The sender was dropped: queued frames still arrive.
    finished: bool,
    /// The link has ended: queued frames do not arrive.
    closed: bool,
}

impl Cable {
    pub(super) fn new() -> Cable {
        Cable::of(WINDOW_FRAMES)
    }

    /// A link with so many frames in flight in each direction.
    pub(super) fn of(frames_max: usize) -> Cable {
        Cable { lanes: [Lane::new(frames_max), Lane::new(frames_max)] }
    }

    /// The two ends. Call it once.
    pub(super) fn pair(cable: &Arc<Cable>) -> (Box<dyn DataLink>, Box<dyn DataLink>) {
        let data_link = |own| {
            let end = || End { cable: Arc::clone(cable), own };
            Box::new(MemoryDataLink {
                sender: MemoryDataSender(end()),
                receiver: MemoryDataReceiver(end(), Vec::new()),
            })
        };
        (data_link(0), data_link(1))
    }

    /// Holds or releases the frames of both directions.
    pub(super) fn set(&self, passage: Passage) {
        self.lanes.iter().for_each(|lane| lane.change(|state| state.passage = passage));
    }
}

impl DataLink for MemoryDataLink {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let MemoryDataLink { sender, receiver } = *self;
        let cable = Arc::clone(&sender.0.cable);
        (Box::new(sender), Box::new(receiver), cable)
    }
}

impl DataSender for MemoryDataSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        if header.len as usize != payload.len() || payload.len() > PAYLOAD_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the header's length is not the payload's, or too large",
            ));
        }
        let frame = (header.to_bytes(), payload.to_vec());
        let lane = &self.0.cable.lanes[self.0.own];
        let mut state = lane.wait_until(|state| state.closed || state.has_room(payload.len()));
        if state.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        state.bytes += payload.len();
        state.frames.push_back(frame);
        lane.changed.notify_all();
        Ok(())
    }
}

impl DataReceiver for MemoryDataReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        let lane = &self.0.cable.lanes[1 - self.0.own];
        let (header, payload) = {
            let mut state = lane.wait_until(|state| state.closed || state.has_news());
            if state.closed {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let frame = state.frames.pop_front().ok_or(io::ErrorKind::UnexpectedEof)?;
            state.bytes -= frame.1.len();
            frame
        };
        lane.changed.notify_all();
        self.1 = payload;
        DataHeader::from_bytes(&header)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let payload = std::mem::take(&mut self.1);
        if payload.len() != into.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        into.copy_from_slice(&payload);
        Ok(())
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        let payload = std::mem::take(&mut self.1);
        if payload.len() == len { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

impl Drop for MemoryDataSender {
    fn drop(&mut self) {
        self.0.cable.lanes[self.0.own].change(|state| state.finished = true);
    }
}

impl Drop for MemoryDataReceiver {
    fn drop(&mut self) {
        self.0.cable.shutdown();
    }
}

impl Shutdown for Cable {
    fn shutdown(&self) {
        self.lanes.iter().for_each(|lane| lane.change(|state| state.closed = true));
    }
}

impl LaneState {
    fn has_room(&self, bytes: usize) -> bool {
        self.frames.is_empty()
            || (self.bytes + bytes <= WINDOW_BYTES && self.frames.len() < self.frames_max)
    }

    fn has_news(&self) -> bool {
        self.passage == Passage::Open && (self.finished || !self.frames.is_empty())
    }
}

impl Lane {
    fn new(frames_max: usize) -> Lane {
        let state = LaneState {
            frames: VecDeque::new(),
            frames_max,
            bytes: 0,
            passage: Passage::Open,
            finished: false,
            closed: false,
        };
        Lane { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn change(&self, change: impl FnOnce(&mut LaneState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn wait_until(&self, ready: impl Fn(&LaneState) -> bool) -> MutexGuard<'_, LaneState> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed
            .wait_while(state, |state| !ready(state))
            .unwrap_or_else(PoisonError::into_inner)
    }
}
