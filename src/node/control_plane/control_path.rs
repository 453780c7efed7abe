//! The path of a control link, and the end that dialled it.

use crate::identity::MemberId;
use std::net::SocketAddr;

/// The path of a control link.
pub(super) struct ControlPath {
    /// Listen address of the peer, or of the first relay.
    pub(super) address: SocketAddr,
    /// Relays to the peer, in order from here; empty for a direct link.
    pub(super) over: Vec<MemberId>,
}

impl ControlPath {
    pub(super) fn direct(address: SocketAddr) -> ControlPath {
        ControlPath { address, over: Vec::new() }
    }

    pub(super) fn new(address: SocketAddr, over: Vec<MemberId>) -> ControlPath {
        ControlPath { address, over }
    }
}

/// The end that dialled a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialled {
    ByMe,
    ByPeer,
}
