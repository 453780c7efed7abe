//! A data link that is established.

use crate::link::{DataLink, PathProof, PskNumber, Session, Stream, into_data_link};
use crate::trace;
use std::net::SocketAddr;

/// An established data link and its addresses.
pub(super) struct Laid {
    pub(super) link: Box<dyn DataLink>,
    /// This node's address, if the system reports it.
    pub(super) ours: Option<SocketAddr>,
    /// The peer's address. Its port is the listening port if this node dialled, else an arbitrary
    /// one.
    pub(super) theirs: SocketAddr,
    /// Whether both ends see the same addresses.
    pub(super) path: PathProof,
    /// The pre-shared key that admitted the peer.
    pub(super) psk: PskNumber,
}

/// An accepted data link from this address; `None` if it cannot be set up.
pub(super) fn laid(stream: Box<dyn Stream>, session: Session, theirs: SocketAddr) -> Option<Laid> {
    let (ours, path, psk) = (stream.local_addr().ok(), session.path, session.psk);
    let link = into_data_link(stream, session)
        .inspect_err(|error| trace::warn!(%error, "a data link could not be set up"));
    Some(Laid { link: link.ok()?, ours, theirs, path, psk })
}
