//! The events that the control loop's tasks and threads send to it.

use super::data_link::EstablishedLink;
use super::look_back::Known;
use super::told::Told;
use crate::identity::MemberId;
use crate::link::{Refusal, SecureChannel, Stream, Ticket};
use crate::protocol::{Message, OpMessage, Rank, RateStep, ViewDigest};
use std::net::SocketAddr;
use tokio::sync::oneshot;

/// Capacity of the event queue. When it is full, the readers of control links stop reading.
pub(super) const QUEUE: usize = if cfg!(potluck_tight) { 8 } else { 1024 };

/// Most events taken in one turn, so that ticks and sightings are not starved.
pub(super) const BATCH: usize = 256;

/// A data link of a View has ended. These reports have their own unbounded queue, so they are never
/// refused; it holds at most one for each link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkEnd {
    pub(super) view: ViewDigest,
    pub(super) peer: Rank,
}

/// A connection after its handshake.
pub(super) type Linked = Result<(Box<dyn Stream>, SecureChannel), Refusal>;

/// An event from a task or a thread.
pub(super) enum Event {
    /// The handshake of an accepted connection has ended. `ticket` is its admission by the gate.
    Answered { from: SocketAddr, ticket: Ticket, result: Linked },
    /// A dial has ended, handshake included.
    Dialled { to: SocketAddr, result: Linked },
    /// Redialling a known member has ended: its link was lost or in doubt, or changes its path.
    Redialled { member: MemberId, to: SocketAddr, result: Linked },
    /// The handshake over a circuit that another node opened to this one has ended. `nodes` are
    /// the members along the circuit, both ends included.
    RelayAnswered { nodes: Vec<MemberId>, result: Linked },
    /// The handshake over a circuit that this node opened has ended.
    RelayDialled { nodes: Vec<MemberId>, result: Linked },
    /// A message came over a control link.
    Message { from: MemberId, message: Message },
    /// A message came about an operation of a View that is not installed. The reader waits until
    /// `handled` is dropped.
    Op { from: MemberId, message: OpMessage, handled: oneshot::Sender<()> },
    /// The session has heard this member over a control link.
    Heard(MemberId),
    /// This member has broken the protocol in a message to the session. Its link is not read any
    /// more.
    Breach(MemberId),
    /// A control link has ended. `misbehaved` holds the decoding error if the peer sent an invalid
    /// message.
    Closed { member: MemberId, generation: u64, misbehaved: Option<String> },
    /// A data link that this node dialled is established.
    DataLink { view: ViewDigest, peer: Rank, link: EstablishedLink },
    /// A data link cannot be dialled: nothing answers at the peer's address, or the peer was asked
    /// to dial and did not in time.
    DataLinkBlocked { view: ViewDigest, peer: Rank },
    /// Ask this peer to dial the data link itself.
    DialWanted { view: ViewDigest, peer: Rank },
    /// The dial of another path to a peer, to this address, has ended; `None` if it failed.
    Path { view: ViewDigest, peer: Rank, to: SocketAddr, link: Option<EstablishedLink> },
    /// The peer now sends over the path that was offered last.
    Moved { view: ViewDigest, peer: Rank },
    /// The result of a burst from this peer: enough frames have arrived, or its END frame has.
    Burst { view: ViewDigest, peer: Rank, said: RateStep },
    /// A node has told this over its link for the status of this number.
    StatusLink { node: MemberId, number: u64, told: Told },
    /// A node asks this one to look back: does it hear that node, and which of these addresses of
    /// it may it dial?
    LookBack { node: MemberId, dial: Vec<SocketAddr>, reply: oneshot::Sender<Known> },
    /// The lookup of a name that the user has given has ended; without addresses if it has none.
    LookedUp { number: usize, found: Vec<SocketAddr> },
    /// A data link could not be established in time.
    DataLinkLost { view: ViewDigest, peer: Rank },
}
