//! The messages of a control link and their wire format.

use super::ballot::Ballot;
use super::committed_op::CommittedOp;
use super::engine::Engines;
use super::failed_op::FailedOp;
#[cfg(test)]
use super::failed_op::Failure;
use super::history::History;
use super::post::Post;
use super::rank::{MEMBERS_MAX, Rank};
use super::rank_set::RankSet;
use super::rate::RateMessage;
use super::relay_frame::RelayFrame;
use super::revision::PlanMessage;
use super::sizes::Sizes;
use super::view::{OPS_DECIDED_MAX, View};
use super::view_id::{ViewDigest, ViewId};
use super::vote::{Closing, OpMessage};
use crate::identity::{Boot, MemberId, Name};
use crate::wire::layout::{List, layout};
use crate::wire::{Encode, Malformed, Reader, put_blob};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Largest encoded message that a control link accepts.
#[cfg(test)]
const MESSAGE_BYTES_MAX: usize = 112 * 1024;

/// Most peers in one reachability report. More than `MEMBERS_MAX`, because peers outside the View
/// count too.
pub const REACH_MAX: usize = 2 * MEMBERS_MAX;

/// One message of the control link.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// Sign of life, with the sender's view of the group.
    Heartbeat(Heartbeat),
    /// Would you leave your View for a View of these members? A poll that binds no member.
    Ask(Vec<MemberId>),
    /// Yes to an `Ask`.
    Willing,
    /// No to an `Ask`: the sender of this answer sees no reason to replace its View, its own
    /// attempt goes first, or it may not agree to a View of these members.
    Unwilling,
    /// Phase 1: freeze your View, promise to ignore lower ballots, report your state. With the
    /// members of the proposed View.
    Prepare(Ballot, Vec<MemberId>),
    /// Answer to `Prepare`: durable.
    Promise(Ballot, Box<Promise>),
    /// The first ballot is refused; the second is the one promised. If both are equal, the member
    /// was cut off after that promise and will not accept its View.
    Nack(Ballot, Ballot),
    /// Phase 2: all members have promised, and this is the View.
    Accept(Arc<View>),
    /// Answer to `Accept`: durable.
    Accepted(ViewId),
    /// All members have accepted this View: install it.
    Install(ViewId),
    /// The sender leaves for good.
    Leave,
    /// About operations of a View.
    Op(OpMessage),
    /// Addresses at which the sender has reached other members.
    Peers(Vec<PeerAddress>),
    /// An entry for the key-value board of a View.
    Post(Box<Post>),
    /// Return this number at once; measures the round trip.
    Ping(u64),
    /// Answer to `Ping`, with its number.
    Pong(u64),
    /// Another process with the receiver's identity has a link here and has just answered a probe.
    Duplicate(Duplicate),
    /// About a plan change in a View.
    Plan(Box<PlanMessage>),
    /// About the measured rates of a View's paths.
    Rate(RateMessage),
    /// A frame of a relayed circuit. Valid on direct links only.
    Relay(Box<RelayFrame>),
    /// The sender cannot dial the receiver. The receiver shall dial the data link between the two
    /// in this View.
    Dial(ViewDigest),
}

layout! {
    enum Message {
        1 => Heartbeat(heartbeat),
        2 => Ask(members: List(MEMBERS_MAX)),
        3 => Willing,
        4 => Unwilling,
        5 => Prepare(ballot, members: List(MEMBERS_MAX)),
        6 => Promise(ballot, promise),
        7 => Nack(ballot, promised),
        8 => Accept(view),
        9 => Accepted(id),
        10 => Install(id),
        11 => Leave,
        12 => Op(message),
        13 => Peers(peers: List(REACH_MAX)),
        14 => Ping(number),
        15 => Pong(number),
        16 => Post(post),
        17 => Duplicate(duplicate),
        18 => Plan(message),
        19 => Rate(message),
        24 => Relay(frame),
        25 => Dial(view),
    }
}

/// Tells a node that another living process uses its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Duplicate {
    /// The boot of the process that has the link.
    pub boot: Boot,
    /// That process is in the sender's View.
    pub settled: bool,
}

layout!(Duplicate { boot, settled });

/// A sign of life, with the sender's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// The sender's installed View.
    pub view: Option<ViewId>,
    /// Members to which the sender has a control link, or had one that may still be dialled again.
    pub reach: Vec<Reached>,
    /// The sender waits for its disk and will answer late.
    pub persisting: bool,
    /// The sender has lost a data link of its View, or that must end for another reason.
    pub broken: bool,
    /// The sender's end of this direct link is a radio, on which longer silence is normal. False on
    /// a relayed link.
    pub radio: bool,
    /// The sender keeps the receiver out of new Views for this many milliseconds; 0 if it does not.
    pub keeps_out_ms: u32,
    /// The sender has promised another View, so it votes on nothing in `view` any more.
    pub promised: bool,
    /// The members of `view` that the sender has excluded from it; at most [`MEMBERS_MAX`].
    pub accused: Vec<Accused>,
    /// The group of `view` has begun, see [`View::begun`].
    pub begun: bool,
    /// The sizes of the group that the sender asks for.
    pub sizes: Sizes,
}

layout! {
    Heartbeat {
        view,
        reach: List(REACH_MAX),
        [persisting, broken, radio, promised, begun],
        keeps_out_ms,
        accused: List(MEMBERS_MAX),
        sizes,
    }
}

/// A member that another one has excluded from their View.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Accused {
    /// The excluded member.
    pub id: MemberId,
    /// It broke the protocol again and again. If false, it withheld a vote.
    pub breach: bool,
}

layout!(Accused { id, breach });

/// A member to which the sender has a control link, or had one; see [`Heartbeat::reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reached {
    /// The member.
    pub id: MemberId,
    /// Measured round trip in microseconds; 0 while unknown.
    pub rtt_us: u32,
    /// The link is relayed by other members.
    pub relayed: bool,
    /// The sender's end of the link is a radio. False if the link is relayed.
    pub radio: bool,
}

layout!(Reached { id, rtt_us, [relayed, radio] } if |link| !(link.relayed && link.radio));

/// A member's report when it freezes its View for a ballot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Promise {
    /// Its installed View.
    pub prev: Option<ViewId>,
    /// Its rank in `prev`.
    pub rank: Option<Rank>,
    /// Its history when it installed `prev`.
    pub base: Option<History>,
    /// The history of `prev`. Every member that has seen an operation commit in `prev` is on it,
    /// because the first operation to commit in a View out of sync is a `sync`.
    pub common: Option<History>,
    /// Its operations in `prev`.
    pub closing: Closing,
    /// The open operations of `prev` have ended here as indeterminate, because no View could be
    /// made.
    pub cut_off: bool,
    /// The newest View it has accepted, from its durable state; an earlier boot may have accepted
    /// it.
    pub accepted: Option<Accepted>,
    /// Its rank in `accepted`, if this boot accepted it.
    pub accepted_here: Option<Rank>,
    /// It may still install `accepted`, and has not. If `accepted` is the parent of the next View,
    /// it installs `accepted` first.
    pub is_late: bool,
    /// If `is_late`: its history after installing `accepted`.
    pub if_installed: Option<History>,
    /// Its display name.
    pub name: Name,
    /// It came into `prev`, or into an earlier View, without the common history, and lacked a state
    /// when it installed `prev`. The lanes that it has synced since are in `closing`.
    pub is_behind: bool,
    /// It has no state to keep in sync.
    pub stateless: bool,
    /// The engines it offers for the next View.
    pub engines: Engines,
    /// The group of `prev` has begun, see [`View::begun`].
    pub begun: bool,
    /// The sizes of the group that it asks for.
    pub sizes: Sizes,
}

layout! {
    Promise {
        prev,
        rank,
        base,
        common,
        closing,
        accepted,
        accepted_here,
        if_installed,
        [stateless, cut_off, is_late, is_behind, begun],
        name,
        engines,
        sizes,
    }
}

/// The durable record of an accepted View.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accepted {
    /// The View.
    pub id: ViewId,
    /// The View whose operations it decides.
    pub parent: Option<ViewId>,
    /// The operations it commits.
    pub committed: Vec<CommittedOp>,
    /// The operations that fail in it although members hold results of them.
    pub failed: Vec<FailedOp>,
    /// The ranks of the parent by whose reports it decides, see [`View::decided_by`].
    ///
    /// [`View::decided_by`]: super::View::decided_by
    pub decided_by: RankSet,
}

layout! {
    Accepted {
        id,
        parent,
        committed: List(OPS_DECIDED_MAX),
        failed: List(OPS_DECIDED_MAX.saturating_sub(committed.len())),
        decided_by,
    }
}

/// An address at which a member was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The member that answered there.
    pub id: MemberId,
    /// Its address and port.
    pub address: SocketAddr,
}

layout!(PeerAddress { id, address: Place });

/// The bytes of an IPv4 or IPv6 address as a blob, then the port.
struct Place;

impl Place {
    fn put(&self, at: &SocketAddr, out: &mut Vec<u8>) {
        match at.ip() {
            IpAddr::V4(ip) => put_blob(out, &ip.octets()),
            IpAddr::V6(ip) => put_blob(out, &ip.octets()),
        }
        at.port().encode(out);
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<SocketAddr, Malformed> {
        let bytes = r.blob(16)?;
        let ip = match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
            (Ok(v4), _) => IpAddr::from(v4),
            (_, Ok(v6)) => IpAddr::from(v6),
            _ => return Err(Malformed::Inconsistent),
        };
        Ok(SocketAddr::new(ip, r.u16()?))
    }
}

#[cfg(test)]
mod tests;
