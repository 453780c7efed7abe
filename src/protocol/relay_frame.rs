//! The frames of circuits, sent as messages on the control links below them.

use super::rank::MEMBERS_MAX;
use crate::identity::MemberId;
use crate::wire::layout::{Blob, List, layout};

/// One frame of one circuit, on one link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelayFrame {
    /// The circuit.
    pub circuit: Circuit,
    /// The content.
    pub body: RelayBody,
}

layout!(RelayFrame { circuit, body });

/// The identifier of a circuit on one link. On its next link it has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Circuit {
    /// Whether the sender of this frame opened the circuit on this link.
    pub by_sender: bool,
    /// The opener's number; one process never uses a number twice.
    pub number: u32,
}

layout!(Circuit { by_sender, number });

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RelayBody {
    /// Opens the circuit. The nodes in order: the opener, the relays, the destination; 3 to 32,
    /// all different.
    Open(Vec<MemberId>),
    /// 1 to 16384 bytes of the stream between the two ends.
    Bytes(Vec<u8>),
    /// A credit: the end that sends it has consumed whole frames of this total cost, at least 1;
    /// see [`cost`].
    Took(u32),
    /// The circuit has ended, or could not be opened.
    Close,
}

layout! {
    enum RelayBody {
        1 => Open(nodes: List(CIRCUIT_NODES_MAX)),
        2 => Bytes(bytes: Blob(RelayBody::BYTES_MAX)),
        3 => Took(cost),
        4 => Close,
    }
    if RelayBody::is_honest
}

/// Most nodes of a circuit, including both ends: no path within a View needs more.
pub const CIRCUIT_NODES_MAX: usize = MEMBERS_MAX;

/// The window of a circuit per direction: the largest total [`cost`] of frames sent and not yet
/// credited with [`RelayBody::Took`]. A whole control message fits, with room to spare.
pub const WINDOW: u32 = 128 * 1024;

/// The cost of a frame besides its bytes, so that many small frames use up the window as few large
/// ones do.
pub const FRAME_COST: u32 = 256;

/// The share of the window that one frame with this many bytes uses.
pub fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(FRAME_COST)
}

impl RelayBody {
    /// Most bytes of one frame.
    pub const BYTES_MAX: usize = 16 * 1024;

    fn is_honest(&self) -> bool {
        match self {
            RelayBody::Open(nodes) => {
                let mut places = nodes.iter().enumerate();
                nodes.len() > 2 && places.all(|(i, id)| !nodes[..i].contains(id))
            }
            RelayBody::Bytes(bytes) => !bytes.is_empty(),
            RelayBody::Took(cost) => *cost > 0,
            RelayBody::Close => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::member_id;
    use super::*;
    use crate::wire::{Decode, Encode, Malformed, assert_codec};

    fn frame(body: RelayBody) -> RelayFrame {
        RelayFrame { circuit: Circuit { by_sender: true, number: 7 }, body }
    }

    #[test]
    fn every_frame_survives_the_wire() {
        for body in [
            RelayBody::Open((1..=3).map(member_id).collect()),
            RelayBody::Open((1..=32).map(member_id).collect()),
            RelayBody::Bytes(vec![5]),
            RelayBody::Bytes(vec![9; 300]),
            RelayBody::Took(1),
            RelayBody::Close,
        ] {
            assert_codec(&frame(body));
        }
        assert_codec(&RelayFrame {
            circuit: Circuit { by_sender: false, number: u32::MAX },
            body: RelayBody::Close,
        });
    }

    #[test]
    fn what_no_honest_node_sends_is_refused() {
        let of = |ids: &[u8]| RelayBody::Open(ids.iter().copied().map(member_id).collect());
        for (body, why) in [
            (of(&[]), Malformed::Inconsistent),
            (of(&[1, 2]), Malformed::Inconsistent),
            (of(&[1, 2, 1]), Malformed::Inconsistent),
            (RelayBody::Open((1..=33).map(member_id).collect()), Malformed::TooLong),
            (RelayBody::Bytes(Vec::new()), Malformed::Inconsistent),
            (RelayBody::Bytes(vec![0; RelayBody::BYTES_MAX + 1]), Malformed::TooLong),
            (RelayBody::Took(0), Malformed::Inconsistent),
        ] {
            assert_eq!(
                RelayFrame::from_bytes(&frame(body.clone()).to_bytes()),
                Err(why),
                "{body:?}"
            );
        }
        assert_eq!(RelayFrame::from_bytes(&[1, 0, 0, 0, 0, 5]), Err(Malformed::UnknownTag));
    }
}
