//! The known paths to other members, and the state of trials and redials.

use crate::discovery::{Paths, Trial, is_same_place};
use crate::identity::MemberId;
use crate::link::{PathProof, PskNumber};
use crate::node::data_link::{Bursts, Laid, Moves};
use crate::protocol::{Rank, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The known paths to other members, and the trials and redials in progress.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) paths: Paths,
    /// The data links of the View.
    pub(super) tracks: BTreeMap<Rank, Track>,
    pub(super) round: Option<Round>,
    pub(super) doubts: BTreeMap<MemberId, Doubt>,
    /// Members whose path has changed since it was measured.
    pub(super) changed: BTreeSet<MemberId>,
    /// Members with a redial in progress; they are linked, or were a moment ago.
    pub(super) redials: BTreeSet<MemberId>,
    /// Members with a redial in progress that are relayed meanwhile, and until when their data
    /// links are kept, in milliseconds.
    pub(super) awaited: BTreeMap<MemberId, u64>,
    /// When rank 0 was last asked to have a path measured, in milliseconds.
    pub(super) wished: BTreeMap<Rank, u64>,
}

/// The path of a data link.
pub(super) struct Track {
    pub(super) moves: Moves,
    pub(super) ours: Option<SocketAddr>,
    pub(super) theirs: SocketAddr,
    pub(super) path: PathProof,
    pub(super) since: Instant,
    pub(super) psk: PskNumber,
    /// The path to which it may be moved.
    pub(super) offered: Option<Candidate>,
}

/// Another path with an established data link.
pub(super) struct Candidate {
    /// The end that offered it, which moves first.
    pub(super) by: By,
    pub(super) to: SocketAddr,
    pub(super) ours: Option<SocketAddr>,
    pub(super) path: PathProof,
    pub(super) psk: PskNumber,
    pub(super) bursts: Bursts,
}

/// What a move of a data link has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// The connection, and with it the keys.
    InPlace,
    /// The path.
    Elsewhere,
}

/// An end of a data link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Me,
    Peer,
}

/// The trials of the other paths to one member, one at a time.
///
/// ```text
/// Dialled -- peer is Ready --> Measured -- 25 % more --> Taken -- control link stands --> move,
///    |                            |                        |                             next path
///    `----------------------------+------------------------+-- else: drop, next path
/// ```
///
/// Only the aim [`Better`](Aim::Better) measures.
pub(super) struct Round {
    /// Why the links shall move.
    pub(super) aim: Aim,
    pub(super) peer: Rank,
    pub(super) member: MemberId,
    /// The rate of the path in use; 0 while unknown.
    pub(super) kbps: u32,
    pub(super) on_trial: Option<(SocketAddr, Stage)>,
    pub(super) rest: VecDeque<SocketAddr>,
    /// When the present trial times out, in milliseconds.
    pub(super) until: u64,
}

/// The reason for trying paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// A path may carry more than the present one.
    Better,
    /// The present path is unproven: the links move to any other one that is proven.
    Proven,
    /// The links are old: they move to new ones over the same path.
    FreshKeys,
}

/// The stage of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The data link is being dialled, and the other end has not confirmed it.
    Dialled,
    /// Both ends have it; a burst is under way.
    Measured,
    /// The path carries this many kbit/s; the control link is being redialled over it.
    Taken(u32),
}

/// A member that may be alive although its link is dead.
#[derive(Default)]
pub(super) struct Doubt {
    pub(super) dialled: u32,
    /// Time of the next dial, in milliseconds.
    pub(super) next_at: u64,
}

impl Ways {
    /// Tracks and trials belong to one View; trial results of its members are kept.
    pub(super) fn view_changed(&mut self, view: &View) {
        self.paths.keep(|node| view.members.iter().any(|m| m.id.node == node));
        self.changed.retain(|member| view.contains(*member));
        self.tracks.clear();
        self.round = None;
        self.wished.clear();
        self.awaited.clear();
    }

    /// Whether links are being moved or redialled.
    pub(super) fn is_busy(&self) -> bool {
        self.round.is_some() || !self.redials.is_empty()
    }

    /// Whether this peer has offered a path, to which it may be moving.
    pub(super) fn is_offered_by(&self, peer: Rank) -> bool {
        let by_peer = |candidate: &Candidate| candidate.by == By::Peer;
        self.tracks.get(&peer).is_some_and(|track| {
            track.offered.as_ref().is_some_and(by_peer) && track.moves.is_offered()
        })
    }

    /// The member of this rank, if this node tries paths to it.
    pub(super) fn tried(&self, peer: Rank) -> Option<MemberId> {
        self.round.as_ref().filter(|round| round.peer == peer).map(|round| round.member)
    }

    /// The peer's address on the data link with it.
    pub(super) fn place_of(&self, peer: Rank) -> Option<SocketAddr> {
        self.tracks.get(&peer).map(|track| track.theirs)
    }

    /// Peers that send over a path that they offered, and that this node does not follow.
    pub(super) fn unfollowed(&self) -> Vec<Rank> {
        let is_left = |track: &Track| {
            let by_peer = track.offered.as_ref().is_some_and(|offered| offered.by == By::Peer);
            by_peer && track.moves.has_arrived()
        };
        self.tracks.iter().filter(|(_, track)| is_left(track)).map(|(peer, _)| *peer).collect()
    }

    /// How long the data link with a peer has stood.
    pub(super) fn age_of(&self, peer: Rank) -> Option<Duration> {
        self.tracks.get(&peer).map(|track| track.since.elapsed())
    }

    /// The pre-shared key that admitted a peer to its data link.
    pub(super) fn psk_of(&self, peer: Rank) -> Option<PskNumber> {
        self.tracks.get(&peer).map(|track| track.psk)
    }

    /// Makes all paths due for a trial.
    pub(super) fn network_changed(&mut self) {
        self.paths.forget_all();
    }

    /// Records that the peer has redialled because this path is broken.
    pub(super) fn is_broken(&mut self, now: u64, member: MemberId, way: SocketAddr) {
        self.paths.tried(now, member.node, way, Trial::Failed);
    }
}

impl Round {
    /// Trials of the paths `rest`; the present one carries `kbps`.
    pub(super) fn of(
        aim: Aim,
        peer: Rank,
        member: MemberId,
        kbps: u32,
        rest: VecDeque<SocketAddr>,
    ) -> Round {
        Round { aim, peer, member, kbps, on_trial: None, rest, until: 0 }
    }
}

impl Track {
    /// Whether a link over this path may take over. One over an unproven path only replaces another
    /// one there.
    pub(super) fn may_move_over(&self, laid: &Laid) -> bool {
        let is_same = !self.path.is_proven() && is_same_place(self.theirs, laid.theirs);
        laid.path.is_proven() || is_same
    }
}
