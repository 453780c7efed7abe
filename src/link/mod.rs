//! Layer: Doors.
//!
//! Links between two nodes: one TCP port, one handshake, control links for messages and data links
//! for bulk.
//!
//! [`Net`] is the door to the operating system's sockets, [`DataLink`] the one that engines use.
//! Both have in-memory twins, so that everything above them runs without a network too.

mod control;
mod data;
mod establish;
#[cfg(feature = "gloo")]
mod fork;
mod frame;
mod gate;
mod handshake;
mod hello;
mod keys;
mod local;
mod low_water;
mod memory;
mod outlet;
mod preamble;
mod processor;
mod refusal;
mod session;
mod suite;
mod tcp;
#[cfg(test)]
pub(crate) mod testing;
mod twin;

pub use control::{ControlReceiver, ControlSender, into_control};
pub use data::into_data_link;
pub use establish::{DataTerms, initiate, respond};
#[cfg(feature = "gloo")]
pub use fork::fork;
pub use gate::{Gate, Replays, Ticket};
pub use hello::{Hello, Wire};
pub use local::Local;
pub use memory::MemoryWorld;
pub use preamble::{DataAsk, Purpose};
pub use processor::quick_suite;
pub use refusal::Refusal;
pub use session::Session;
#[cfg(test)]
pub use suite::Suite;
pub use tcp::{Bind, TcpNet};
#[cfg(test)]
pub use twin::data_pair;

#[cfg(fuzzing)]
pub use {
    frame::FrameReader,
    handshake::{Initiator, MESSAGE1_BYTES, Responder, Terms},
    hello::{Binding, PROVEN_BYTES, Role},
    preamble::Preamble,
    session::{Sealer, TAG_BYTES},
    suite::Suite,
};

#[cfg(any(test, fuzzing))]
use crate::collective::staging::{Block, Pool};
use crate::view::{Lane, OpId};
use crate::wire::{Decode, Malformed, Reader};
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Where connections come from.
#[async_trait]
pub trait Net: Send + Sync {
    /// Listens on the first free port of `ports`, then on any.
    async fn listen(&self, ports: &[u16]) -> io::Result<Box<dyn Listener>>;

    /// Connects, or fails within two seconds.
    async fn dial(&self, to: SocketAddr) -> io::Result<Box<dyn Stream>>;
}

/// A listening port.
#[async_trait]
pub trait Listener: Send {
    /// Its number.
    fn port(&self) -> u16;

    /// The next connection. Cancel-safe.
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)>;
}

/// A connected byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// The address of this end.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// The blocking socket under it, for data links; `None` when there is none.
    fn into_tcp(self: Box<Self>) -> Option<std::net::TcpStream>;

    /// The end of an in-memory data link that goes with this stream, once; `None` on a real
    /// network.
    fn take_twin(&mut self) -> Option<Box<dyn DataLink>> {
        None
    }
}

/// An authenticated connection for bulk data between two members of one View. Used by blocking
/// threads.
pub trait DataLink: Send {
    /// The two directions, for a thread each, and a handle that ends both.
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);
}

/// The sending half.
pub trait DataSender: Send {
    /// Sends one frame; blocks while the peer's window is full. An error is final.
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()>;
}

/// The receiving half.
pub trait DataReceiver: Send {
    /// The header of the next frame; blocks until there is one. An error is final.
    fn header(&mut self) -> io::Result<DataHeader>;

    /// Takes the payload of that frame, once and before the next header, into memory of exactly its
    /// length; blocks until it is all here. An error is final, and what is in the memory then means
    /// nothing.
    fn payload(&mut self, into: &mut [u8]) -> io::Result<()>;

    /// The next frame, its payload in a block of `pool`.
    #[cfg(any(test, fuzzing))]
    fn recv(&mut self, pool: &Pool) -> io::Result<(DataHeader, Block)> {
        let header = self.header()?;
        let mut block = pool.block(header.len as usize);
        self.payload(block.bytes_mut())?;
        Ok((header, block))
    }
}

/// Ends a link from any thread; both halves then fail at once. Idempotent.
pub trait Shutdown: Send + Sync {
    /// Ends it.
    fn shutdown(&self);
}

/// What a frame of bulk data is. The View is not named: the link belongs to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Which operation.
    pub op: OpId,
    /// Which flow of the operation's schedule.
    pub flow: u32,
    /// Which chunk of the flow.
    pub chunk: u32,
    /// What it is for.
    pub phase: Phase,
    /// Bytes that follow, at most [`PAYLOAD_BYTES_MAX`].
    pub len: u32,
}

/// What a frame is for: the direction of a chunk in a schedule, or part of a message between two
/// ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A contribution on its way to be added.
    Reduce,
    /// A result on its way to everybody.
    Gather,
    /// A piece of a message; `chunk` says how many follow.
    Message,
    /// Whoever sends this has memory for one more message of the flow. Without a payload.
    Posted,
}

/// Largest payload of one frame: the largest chunk a plan may name.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

impl DataHeader {
    /// Bytes of an encoded header.
    pub const BYTES: usize = 32;

    /// The fixed layout.
    pub fn to_bytes(self) -> [u8; DataHeader::BYTES] {
        let mut out = [0; DataHeader::BYTES];
        out[0..8].copy_from_slice(&self.op.lane.0.to_le_bytes());
        out[8..16].copy_from_slice(&self.op.number.to_le_bytes());
        out[16..20].copy_from_slice(&self.flow.to_le_bytes());
        out[20..24].copy_from_slice(&self.chunk.to_le_bytes());
        out[24] = match self.phase {
            Phase::Reduce => 1,
            Phase::Gather => 2,
            Phase::Message => 3,
            Phase::Posted => 4,
        };
        out[28..32].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// Reads the fixed layout; a length beyond [`PAYLOAD_BYTES_MAX`] is refused here, before
    /// anything is allocated.
    pub fn from_bytes(bytes: &[u8; DataHeader::BYTES]) -> Result<DataHeader, Malformed> {
        let mut r = Reader::new(bytes);
        let op = OpId { lane: Lane(r.u64()?), number: r.u64()? };
        let (flow, chunk, phase) = (r.u32()?, r.u32()?, Phase::decode(&mut r)?);
        if r.array()? != [0; 3] {
            return Err(Malformed::Inconsistent);
        }
        let len = r.u32()?;
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        Ok(DataHeader { op, flow, chunk, phase, len })
    }
}

impl Decode for Phase {
    fn decode(r: &mut Reader<'_>) -> Result<Phase, Malformed> {
        match r.u8()? {
            1 => Ok(Phase::Reduce),
            2 => Ok(Phase::Gather),
            3 => Ok(Phase::Message),
            4 => Ok(Phase::Posted),
            _ => Err(Malformed::UnknownTag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_one_form() {
        let op = OpId { lane: Lane(3), number: 1 << 40 };
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
            (24, 0, Malformed::UnknownTag),
            (24, 5, Malformed::UnknownTag),
            (25, 1, Malformed::Inconsistent),
            (28, 1, Malformed::TooLong),
            (31, 0xff, Malformed::TooLong),
        ] {
            let mut bent = bytes;
            bent[at] = byte;
            assert_eq!(DataHeader::from_bytes(&bent), Err(why), "byte {at}");
        }
    }
}
