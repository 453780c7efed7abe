//! Links between two nodes. All of them use one TCP port and one handshake: control links for
//! messages, data links for bulk data.
//!
//! [`Net`] is the interface to the operating system's sockets; [`DataLink`] is the one that engines
//! use. Both have in-memory implementations, so everything above them also runs without a network.

mod control;
mod data;
mod endpoints;
mod establish;
mod frame;
mod handshake;
mod handshake_limiter;
mod hello;
mod keys;
mod local;
mod low_water;
mod memory;
mod memory_data_link;
mod pipelined_writer;
mod preamble;
mod refusal;
mod rings;
mod secure_channel;
mod shared_ring;
mod suite;
mod tcp;
mod terms;
#[cfg(test)]
mod testing;
mod token_bucket;
mod transport;
mod unacknowledged;

pub use control::{CONTROL_BYTES_MAX, ControlReceiver, ControlSender, into_control};
pub use data::into_data_link;
pub use endpoints::PathProof;
pub use establish::{DataTerms, initiate, reach, respond};
#[cfg(any(fuzzing, test))]
pub use frame::FrameReader;
#[cfg(any(fuzzing, test))]
pub use handshake::MESSAGE1_BYTES;
#[cfg(any(fuzzing, test))]
pub use handshake::Responder;
#[cfg(any(fuzzing, test))]
pub(crate) use handshake::{channel_pair_of, control, local};
pub use handshake_limiter::{HandshakeLimiter, Replays, Ticket};
#[cfg(any(fuzzing, test))]
pub use hello::{Binding, PROVEN_BYTES, Role};
pub use hello::{DataEncryption, Hello};
#[cfg(any(fuzzing, test))]
pub use keys::TAG_BYTES;
pub use local::{Local, PskNumber};
pub use memory::MemoryWorld;
#[cfg(test)]
pub use memory_data_link::data_pair;
pub use preamble::{DataAsk, Preamble, Purpose};
pub use refusal::Refusal;
#[cfg(any(fuzzing, test))]
pub use secure_channel::Sealer;
pub use secure_channel::SecureChannel;
pub use suite::Suite;
pub use tcp::{Bind, TcpNet};
#[cfg(all(test, potluck_threads))]
pub use testing::control_link_of;
#[cfg(test)]
pub use testing::{Ends, control_link, held, memory, narrow, sealed_tcp, streams, tcp};
pub use token_bucket::{Rate, TokenBucket};
pub use transport::{
    DataHeader, DataLink, DataReceiver, DataSender, Listener, Net, Phase, Shutdown, Stream,
};
