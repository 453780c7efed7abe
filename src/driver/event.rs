//! Layer: Host.
//!
//! What the tasks around the driver report to it.

use super::datalinks::Laid;
use crate::election::Message;
use crate::identity::MemberId;
use crate::link::{Refusal, Session, Stream, Ticket};
use crate::topology::RateStep;
use crate::view::{Rank, ViewDigest};
use std::net::SocketAddr;

/// Most reports that wait: link readers stop reading when the driver is behind.
pub(super) const QUEUE: usize = 1024;

/// Most reports taken in one turn, so that ticks and sightings are not starved.
pub(super) const BATCH: usize = 256;

/// A data link of a View has ended. Such reports have a queue of their own that is never full: no
/// more are in it than there were links.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkEnd {
    pub(super) view: ViewDigest,
    pub(super) peer: Rank,
}

/// A report.
pub(super) enum Event {
    /// A connection this node accepted has passed the gate, and its handshake has ended.
    Answered {
        from: SocketAddr,
        ticket: Ticket,
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    },
    /// A dial has ended, handshake included.
    Dialled { to: SocketAddr, result: Result<(Box<dyn Stream>, Session), Refusal> },
    /// Dialling a lost member again has ended.
    Redialled {
        member: MemberId,
        to: SocketAddr,
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    },
    /// Somebody has opened a circuit to this node over these stations, and its handshake has ended.
    RelayAnswered { stations: Vec<MemberId>, result: Result<(Box<dyn Stream>, Session), Refusal> },
    /// The handshake over a circuit that this node has opened has ended.
    RelayDialled { stations: Vec<MemberId>, result: Result<(Box<dyn Stream>, Session), Refusal> },
    /// A message came over a control link.
    Message { from: MemberId, message: Message },
    /// A control link has ended.
    Closed { member: MemberId, generation: u64, misbehaved: Option<String> },
    /// A data link that this node dialled stands.
    DataLink { view: ViewDigest, peer: Rank, link: Laid },
    /// Nobody answers where this member is to be dialled for a data link.
    DataLinkBlocked { view: ViewDigest, peer: Rank },
    /// This member is to be asked to dial the data link itself.
    DialWanted { view: ViewDigest, peer: Rank },
    /// The dial of another path to this member, to this address, has ended; `None` where nobody
    /// answered.
    Path { view: ViewDigest, peer: Rank, to: SocketAddr, link: Option<Laid> },
    /// What this member sends comes over the path now that was offered last.
    Moved { view: ViewDigest, peer: Rank },
    /// A burst from this member has come over its data link, or enough of it.
    Burst { view: ViewDigest, peer: Rank, said: RateStep },
    /// A data link could not be made.
    DataLinkLost { view: ViewDigest, peer: Rank },
}
