//! Layer: Shells.
//!
//! Pairs of connected data links, for tests of whoever uses them.

use super::data::TcpData;
use super::handshake::Terms;
use super::handshake::testing::{control, session_pair_over};
use super::{DataLink, Wire};
use std::net::{TcpListener, TcpStream};

pub use super::twin::data_pair;

/// Over a connection on the loopback interface.
pub fn tcp_pair(wire: Wire) -> (Box<dyn DataLink>, Box<dyn DataLink>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (far, _) = listener.accept().expect("accepted");
    let (a, b) = session_pair_over(Terms { wire, ..control() });
    let link = |socket, session| Box::new(TcpData::new(socket, session).expect("a link"));
    (link(near, a), link(far, b))
}
