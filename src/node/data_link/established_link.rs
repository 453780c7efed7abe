//! A data link that is established.

use crate::link::{DataLink, PathProof, PskNumber, SecureChannel, Stream, into_data_link};
use crate::trace;
use std::net::SocketAddr;

/// An established data link and its addresses.
pub struct EstablishedLink {
    pub link: Box<dyn DataLink>,
    pub at: Addresses,
}

/// The addresses of a data link, and the proof of its handshake.
#[derive(Clone, Copy)]
pub struct Addresses {
    /// This node's address, if the system reports it.
    pub ours: Option<SocketAddr>,
    /// The peer's address. Its port is the listening port if this node dialled, else an arbitrary
    /// one.
    pub theirs: SocketAddr,
    /// Whether both ends see the same addresses.
    pub path: PathProof,
    /// The pre-shared key that admitted the peer.
    pub psk: PskNumber,
}

/// The data link over a stream to this address; `None` if it cannot be set up.
pub fn established(
    stream: Box<dyn Stream>,
    session: SecureChannel,
    theirs: SocketAddr,
) -> Option<EstablishedLink> {
    let (ours, path, psk) = (stream.local_addr().ok(), session.path, session.psk);
    let at = Addresses { ours, theirs, path, psk };
    let link = into_data_link(stream, session)
        .inspect_err(|error| trace::warn!(%error, "a data link could not be set up"));
    Some(EstablishedLink { link: link.ok()?, at })
}
