//! Links for the tests of other folders.

use super::control::{ControlReceiver, ControlSender, into_control};
use super::data::TcpData;
use super::handshake::{channel_pair, channel_pair_over, control};
use super::hello::DataEncryption;
use super::memory::pipe;
#[cfg(potluck_threads)]
use super::memory::pipe_of;
use super::memory_data_link::{Cable, Passage, data_pair};
use super::terms::Terms;
use super::transport::{DataHeader, DataLink, Phase, Stream};
use crate::protocol::{Lane, OpId};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// The header of a frame with a payload of `len` bytes.
pub(super) fn header(len: usize) -> DataHeader {
    let op = OpId { lane: Lane::MAIN, number: 9 };
    DataHeader { op, flow: 1, chunk: 2, phase: Phase::Reduce, len: len as u32 }
}

/// The two ends of a connection over loopback.
pub(super) fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    (near, listener.accept().expect("accepted").0)
}

/// The two ends of a link.
pub type Ends = (Box<dyn DataLink>, Box<dyn DataLink>);

/// The two halves of one end of a control link.
pub type Halves = (ControlSender, ControlReceiver);

/// A control link in memory, with room for 64 KiB in flight per direction.
pub fn control_link() -> (Halves, Halves) {
    let ((near, far), (a, b)) = (pipe(), channel_pair());
    (into_control(near, a), into_control(far, b))
}

/// A control link in memory, with so many bytes in flight per direction.
#[cfg(potluck_threads)]
pub fn control_link_of(bytes: usize) -> (Halves, Halves) {
    let ((near, far), (a, b)) = (pipe_of(bytes), channel_pair());
    (into_control(near, a), into_control(far, b))
}

/// The two ends of a connection in memory.
pub fn streams() -> (Box<dyn Stream>, Box<dyn Stream>) {
    pipe()
}

/// A data link in memory.
pub fn memory() -> Ends {
    data_pair()
}

/// A data link in memory with at most four frames in flight per direction.
pub fn narrow() -> Ends {
    Cable::pair(&Arc::new(Cable::of(4)))
}

/// A data link in memory whose cable is cut: frames do not arrive.
pub fn held() -> Ends {
    let cable = Arc::new(Cable::new());
    cable.set(Passage::Held);
    Cable::pair(&cable)
}

/// A data link over TCP, in the clear.
pub fn tcp() -> Ends {
    tcp_over(DataEncryption::Waived)
}

/// A data link over TCP, encrypted.
pub fn sealed_tcp() -> Ends {
    tcp_over(DataEncryption::Required)
}

fn tcp_over(encryption: DataEncryption) -> Ends {
    let (near, far) = sockets();
    let (a, b) = channel_pair_over(Terms { encryption, ..control() });
    let link = |socket, channel| TcpData::new(socket, channel).expect("a link");
    // One end as on any machine, the other one with a writer thread.
    (Box::new(link(near, a)), Box::new(link(far, b).pressed()))
}
