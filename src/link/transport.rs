//! The interfaces of a transport: listeners, streams, and the data links of two members.

#[cfg(any(test, fuzzing))]
use crate::memory::{Block, Pool};
use crate::protocol::OpId;
use crate::wire::layout::layout;
use crate::wire::{Decode, Malformed, Reader};
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens listening ports and connections.
#[async_trait]
pub trait Net: Send + Sync {
    /// Listens on the first free port of `ports`; if none is free, on a port that the system picks.
    async fn listen(&self, ports: &[u16]) -> io::Result<Box<dyn Listener>>;

    /// Connects, or fails after two seconds.
    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>>;
}

/// A listening port.
#[async_trait]
pub trait Listener: Send {
    /// The port's number.
    fn port(&self) -> u16;

    /// Waits for the next connection. Cancel-safe.
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)>;
}

/// A connected byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The address of this end.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The address of the other end, as this end sees it.
    fn peer_addr(&self) -> io::Result<SocketAddr>;

    /// Turns the stream into the blocking socket below it, for data links; `None` if there is none.
    fn into_tcp(self: Box<Self>) -> Option<std::net::TcpStream>;

    /// Takes this end of the in-memory data link that belongs to this stream. `None` after the
    /// first call, and always on a real network.
    fn take_memory_link(&mut self) -> Option<Box<dyn DataLink>> {
        None
    }
}

/// An authenticated connection for bulk data between two members of one View. Blocking threads use
/// it.
pub trait DataLink: Send {
    /// Splits the link into its two directions, one per thread, and a handle that ends both.
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);
}

/// The sending half.
pub trait DataSender: Send {
    /// Sends one frame; blocks while the peer's window is full. An error is final.
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()>;

    /// Sent bytes that the peer's machine does not have yet, where the system tells.
    fn unacknowledged_bytes(&self) -> usize {
        0
    }
}

/// The receiving half.
pub trait DataReceiver: Send {
    /// Waits for the next frame and returns its header; blocks. An error is final.
    fn header(&mut self) -> io::Result<DataHeader>;

    /// Reads the payload of that frame; call it once per header, with a buffer of exactly the
    /// payload's length. Blocks until the whole payload is here. An error is final; the contents of
    /// the buffer are then unspecified.
    fn payload(&mut self, into: &mut [u8]) -> io::Result<()>;

    /// Reads the payload of that frame, of `len` bytes, and drops it; instead of
    /// [`payload`](DataReceiver::payload), and without memory for it.
    fn skip(&mut self, len: usize) -> io::Result<()>;

    /// Receives the next frame into a block of `pool`.
    #[cfg(any(test, fuzzing))]
    fn recv(&mut self, pool: &Pool) -> io::Result<(DataHeader, Block)> {
        let header = self.header()?;
        let mut block = pool.block(header.len as usize).expect("there is memory");
        self.payload(block.bytes_mut())?;
        Ok((header, block))
    }
}

/// Ends a link from any thread; both halves then fail at once. Idempotent.
pub trait Shutdown: Send + Sync {
    /// Ends the link.
    fn shutdown(&self);
}

/// The header of a frame of bulk data. It does not name the View, because a data link belongs to
/// one View.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The operation.
    pub op: OpId,
    /// The flow of the operation's schedule.
    pub flow: u32,
    /// The chunk of the flow; for [`Phase::Message`], the number of frames of the message that
    /// follow.
    pub chunk: u32,
    /// The purpose of the frame.
    pub phase: Phase,
    /// Length of the payload in bytes, at most [`PAYLOAD_BYTES_MAX`].
    pub len: u32,
}

/// The purpose of a frame: the direction of a chunk in a schedule, or a part of a message between
/// two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A contribution or a partial sum, to be folded by the receiver.
    Reduce,
    /// A part of the result, to be stored and forwarded.
    Gather,
    /// A piece of a message between two ranks; `chunk` states how many pieces follow.
    Message,
    /// A credit: the sender of this frame posted a receive for one more message of the flow. No
    /// payload.
    Posted,
}

layout!(tags Phase { 1 => Reduce, 2 => Gather, 3 => Message, 4 => Posted });

/// Largest payload of one frame in bytes: the largest chunk of a schedule of the native engine.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

impl DataHeader {
    /// Length of an encoded header in bytes.
    pub const BYTES: usize = 32;

    /// Encodes the header in its fixed layout.
    /// ```text
    /// lane(8) ranks(4) number(8) flow(4) chunk(4) len(3) phase(1)     little-endian
    /// ```
    pub fn to_bytes(self) -> [u8; DataHeader::BYTES] {
        let mut out = [0; DataHeader::BYTES];
        let (lane, group) = self.op.lane.to_bits();
        out[0..8].copy_from_slice(&lane.to_le_bytes());
        out[8..12].copy_from_slice(&group.to_le_bytes());
        out[12..20].copy_from_slice(&self.op.number.to_le_bytes());
        out[20..24].copy_from_slice(&self.flow.to_le_bytes());
        out[24..28].copy_from_slice(&self.chunk.to_le_bytes());
        // The length has at most 21 bits, so the phase takes the place of its highest byte.
        out[28..32].copy_from_slice(&(self.len | u32::from(self.phase.tag()) << 24).to_le_bytes());
        out
    }

    /// Decodes the fixed layout. A length above [`PAYLOAD_BYTES_MAX`] is an error here, before
    /// anything is allocated.
    pub fn from_bytes(bytes: &[u8; DataHeader::BYTES]) -> Result<DataHeader, Malformed> {
        let mut r = Reader::new(bytes);
        let op = OpId::decode(&mut r)?;
        let (flow, chunk) = (r.u32()?, r.u32()?);
        let [low, middle, high] = r.array()?;
        let (len, phase) = (u32::from_le_bytes([low, middle, high, 0]), Phase::decode(&mut r)?);
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        Ok(DataHeader { op, flow, chunk, phase, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    #[test]
    fn a_header_has_one_form() {
        let op = OpId { lane: Lane::of_view(3), number: 1 << 40 };
        let header = DataHeader {
            op,
            flow: 5,
            chunk: 6,
            phase: Phase::Gather,
            len: PAYLOAD_BYTES_MAX as u32,
        };
        let bytes = header.to_bytes();
        assert_eq!(DataHeader::from_bytes(&bytes), Ok(header));
        for phase in [Phase::Reduce, Phase::Gather, Phase::Message, Phase::Posted] {
            let header = DataHeader { phase, ..header };
            assert_eq!(DataHeader::from_bytes(&header.to_bytes()), Ok(header));
        }
        for (at, byte, why) in [
            (31, 0, Malformed::UnknownTag),
            (31, 5, Malformed::UnknownTag),
            (28, 1, Malformed::TooLong),
            (30, 0xff, Malformed::TooLong),
        ] {
            let mut bent = bytes;
            bent[at] = byte;
            assert_eq!(DataHeader::from_bytes(&bent), Err(why), "byte {at}");
        }
    }
}
