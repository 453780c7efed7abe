//! The path of each data link of the View, and the trials of other paths.
//!
//! The control link and the data link of two members use the same path, so the state of one tells
//! the state of the other.
//!
//! - **Better**: when the path to a member is measured, this node also tries the other paths to it,
//!   each by a second data link and a burst. If one carries at least 25 % more, the control link is
//!   redialled over it, and then the data link [moves](super::data_link::Moves). The member with
//!   the smaller node id does this.
//! - **Proven**: paths lead to addresses that the member told of itself or that were proven before,
//!   and links move to proven paths only: a faster path that is not proven may lead through a
//!   proxy. From an unproven path they move to any proven one at once, and nothing is measured
//!   before.
//! - **Fresh keys**: the links are old, and move to new ones over the same path.

use super::data_link::Bursts;
use super::data_path::{By, DataPath};
use crate::discovery::{Paths, Trial, is_same_interface};
use crate::identity::{MemberId, NodeId};
use crate::protocol::{Rank, View};
use crate::trace;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Most paths tried in one round, because all members wait for it.
const ROUND_MAX: usize = 3;
/// Timeout of a trial: a dial, an answer, and a burst over a slow path.
const TRIAL_MS: u64 = 1500;
/// The rate of another path that justifies a move, in per cent of the present one.
const BETTER_PERCENT: u64 = 125;
const WISHES_APART_MS: u64 = 5_000;
/// Number of remembered members that cannot be dialled. A forgotten one is found out again.
const BLOCKED_MAX: usize = 64;

/// The paths of the data links of the View, and the trials in progress. Times are in milliseconds.
#[derive(Default)]
pub(super) struct DataPaths {
    /// The results of earlier trials.
    known: Paths,
    data_paths: BTreeMap<Rank, DataPath>,
    round: Option<Round>,
    /// Members whose path has changed since it was measured.
    changed: BTreeSet<MemberId>,
    /// When rank 0 was last asked to have a path measured.
    wished: BTreeMap<Rank, u64>,
    /// Members that do not answer this node's data dials although they have a control link.
    blocked: BTreeSet<MemberId>,
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
struct Round {
    /// Why the links shall move.
    aim: Aim,
    peer: Rank,
    member: MemberId,
    /// The rate of the path in use; 0 while unknown.
    kbps: u32,
    on_trial: Option<(SocketAddr, Stage)>,
    rest: VecDeque<SocketAddr>,
    /// When the present trial times out.
    until: u64,
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
enum Stage {
    /// The data link is being dialled, and the other end has not confirmed it.
    Dialled,
    /// Both ends have it; a burst is under way.
    Measured,
    /// The path carries this many kbit/s; the control link is being redialled over it.
    Taken(u32),
}

/// The next step of a round.
pub(super) enum Next {
    /// Another path is to be dialled.
    Dial {
        peer: Rank,
        expect: MemberId,
        to: SocketAddr,
    },
    /// The round is over, and this is the rate of the path in use.
    Rated(Rank, u32),
    Nothing,
}

impl DataPaths {
    /// Tracks and trials belong to one View; trial results of its members are kept.
    pub(super) fn view_changed(&mut self, view: &View) {
        self.known.keep(|node| view.members.iter().any(|m| m.id.node == node));
        self.changed.retain(|member| view.contains(*member));
        self.data_paths.clear();
        self.round = None;
        self.wished.clear();
    }

    /// A data link of the View is established.
    pub(super) fn stands(&mut self, peer: Rank, data_path: DataPath) {
        self.data_paths.insert(peer, data_path);
    }

    /// The peers with a data link.
    pub(super) fn peers(&self) -> Vec<Rank> {
        self.data_paths.keys().copied().collect()
    }

    /// The path of the data link with a peer.
    pub(super) fn data_path(&self, peer: Rank) -> Option<&DataPath> {
        self.data_paths.get(&peer)
    }

    /// The same, to offer another one or to move there.
    pub(super) fn data_path_mut(&mut self, peer: Rank) -> Option<&mut DataPath> {
        self.data_paths.get_mut(&peer)
    }

    /// Peers whose data link runs over an unproven path.
    pub(super) fn unproven(&self) -> Vec<Rank> {
        self.peers_if(|data_path| !data_path.at().path.is_proven())
    }

    /// Peers that send over a path that they offered, and that this node does not follow.
    pub(super) fn unfollowed(&self) -> Vec<Rank> {
        self.peers_if(DataPath::is_left)
    }

    fn peers_if(&self, is_one: impl Fn(&DataPath) -> bool) -> Vec<Rank> {
        self.data_paths
            .iter()
            .filter(|(_, data_path)| is_one(data_path))
            .map(|(peer, _)| *peer)
            .collect()
    }

    // Members that cannot be dialled.

    pub(super) fn is_blocked(&self, member: MemberId) -> bool {
        self.blocked.contains(&member)
    }

    /// The member does not answer this node's data dials.
    pub(super) fn block(&mut self, member: MemberId) {
        if self.blocked.len() >= BLOCKED_MAX {
            self.blocked.pop_first();
        }
        self.blocked.insert(member);
    }

    /// The member is to be dialled again. Returns whether it had not answered.
    pub(super) fn unblock(&mut self, member: MemberId) -> bool {
        self.blocked.remove(&member)
    }

    // Which paths to try.

    /// Those of the paths to a member that should be tried now.
    pub(super) fn due(
        &mut self,
        now: u64,
        peer: Rank,
        node: NodeId,
        mut addresses: Vec<SocketAddr>,
    ) -> Vec<SocketAddr> {
        let Some(data_path) = self.data_paths.get(&peer) else { return Vec::new() };
        addresses.retain(|to| !is_same_interface(*to, data_path.at().theirs));
        let mut due = self.known.due(now, node, &addresses);
        due.truncate(ROUND_MAX);
        due
    }

    /// Whether rank 0 may be asked now for a measurement of the path to a peer.
    pub(super) fn may_wish(&self, now: u64, peer: Rank) -> bool {
        let lately = self.wished.get(&peer).is_some_and(|at| now < at + WISHES_APART_MS);
        !lately && self.round.is_none()
    }

    /// Rank 0 is asked for it.
    pub(super) fn wish(&mut self, now: u64, peer: Rank) {
        self.wished.insert(peer, now);
    }

    /// Whether the path to a member has changed since it was measured.
    pub(super) fn has_changed(&self, member: MemberId) -> bool {
        self.changed.contains(&member)
    }

    /// The path to a member is another one since it was measured.
    pub(super) fn change(&mut self, member: MemberId) {
        self.changed.insert(member);
    }

    /// The path to a member is measured.
    pub(super) fn is_measured(&mut self, member: MemberId) {
        self.changed.remove(&member);
    }

    /// Makes all paths due for a trial.
    pub(super) fn network_changed(&mut self) {
        self.known.forget_all();
    }

    /// A control link with this member stands over this path.
    pub(super) fn answers(&mut self, member: MemberId, address: SocketAddr) {
        self.known.answers(member.node, address);
    }

    /// This path to a member is broken.
    pub(super) fn is_broken(&mut self, now: u64, member: MemberId, address: SocketAddr) {
        self.known.tried(now, member.node, address, Trial::Failed);
    }

    // The round of trials.

    /// Whether links are being tried or moved.
    pub(super) fn is_any_tried(&self) -> bool {
        self.round.is_some()
    }

    /// Begins trials of the paths `rest`; the present one carries `kbps`.
    pub(super) fn begin_round(
        &mut self,
        aim: Aim,
        (peer, member): (Rank, MemberId),
        kbps: u32,
        rest: Vec<SocketAddr>,
    ) {
        let rest = rest.into();
        self.round = Some(Round { aim, peer, member, kbps, on_trial: None, rest, until: 0 });
    }

    /// Begins the next trial, or ends the round.
    pub(super) fn next(&mut self, now: u64) -> Next {
        let Some(round) = &mut self.round else { return Next::Nothing };
        if let Some(to) = round.rest.pop_front() {
            round.on_trial = Some((to, Stage::Dialled));
            round.until = now + TRIAL_MS;
            return Next::Dial { peer: round.peer, expect: round.member, to };
        }
        let (aim, peer, kbps) = (round.aim, round.peer, round.kbps);
        self.round = None;
        if aim == Aim::Better { Next::Rated(peer, kbps) } else { Next::Nothing }
    }

    /// Ends the present trial without a move.
    pub(super) fn drop_trial(&mut self, now: u64, trial: Trial) {
        let Some(round) = &mut self.round else { return };
        if let Some((to, _)) = round.on_trial.take() {
            let aim = round.aim;
            trace::debug!(peer = %round.member, %to, ?trial, ?aim, "another path was tried");
            if aim != Aim::FreshKeys {
                self.known.tried(now, round.member.node, to, trial);
            }
        }
        if let Some(data_path) = self.data_paths.get_mut(&round.peer) {
            data_path.withdraw();
        }
    }

    /// Whether the present trial has timed out. A redial for a trial has its own timeout, and must
    /// not end after the trial.
    pub(super) fn is_late(&self, now: u64) -> bool {
        self.round.as_ref().is_some_and(|round| {
            matches!(round.on_trial, Some((_, Stage::Dialled | Stage::Measured)))
                && now >= round.until
        })
    }

    /// The member of this rank, if this node tries paths to it.
    pub(super) fn tried(&self, peer: Rank) -> Option<MemberId> {
        self.round.as_ref().filter(|round| round.peer == peer).map(|round| round.member)
    }

    /// Whether a better path to this peer is sought, so that its rates belong to the trial.
    pub(super) fn rates_trial(&self, peer: Rank) -> bool {
        self.round.as_ref().is_some_and(|round| round.peer == peer && round.aim == Aim::Better)
    }

    /// The bursts over the path to this peer that is being measured.
    pub(super) fn bursts_on_trial(&self, peer: Rank) -> Option<&Bursts> {
        let round = self.round.as_ref().filter(|round| round.peer == peer)?;
        let is_measured = matches!(round.on_trial, Some((_, Stage::Measured)));
        self.data_paths.get(&peer).filter(|_| is_measured)?.offered_bursts()
    }

    fn on_trial(&mut self, of: Rank) -> Option<&mut (SocketAddr, Stage)> {
        self.round.as_mut().filter(|round| round.peer == of)?.on_trial.as_mut()
    }

    /// Whether this path to the peer is being dialled for a trial.
    pub(super) fn is_dialled(&mut self, peer: Rank, to: SocketAddr) -> bool {
        self.on_trial(peer).is_some_and(|trial| *trial == (to, Stage::Dialled))
    }

    /// Whether the control link with this member is being redialled for a trial of this path.
    pub(super) fn is_taken(&self, member: MemberId, to: SocketAddr) -> bool {
        let round = self.round.as_ref().filter(|round| round.member == member);
        round.is_some_and(|r| matches!(r.on_trial, Some((at, Stage::Taken(_))) if at == to))
    }

    /// The peer confirms the link over the path on trial. A better path is measured now. Returns
    /// the aim of the trial.
    pub(super) fn on_ready(&mut self, peer: Rank) -> Option<Aim> {
        let aim = self.round.as_ref()?.aim;
        let trial = self.on_trial(peer).filter(|trial| trial.1 == Stage::Dialled)?;
        // With fresh keys the control link is renewed by itself.
        trial.1 = if aim == Aim::FreshKeys { Stage::Taken(0) } else { Stage::Measured };
        if aim == Aim::Better
            && let Some(bursts) = self.data_paths.get(&peer).and_then(DataPath::offered_bursts)
        {
            bursts.begin(false);
        }
        Some(aim)
    }

    /// Judges the path on trial by its rate: whether it is better, or why it is not. `None` if it
    /// is not measured now.
    pub(super) fn judge(&self, kbps: u32) -> Option<Result<(), Trial>> {
        let round = self.round.as_ref()?;
        let Some((_, Stage::Measured)) = &round.on_trial else { return None };
        let is_better = u64::from(kbps) * 100 >= u64::from(round.kbps) * BETTER_PERCENT;
        Some(match kbps {
            0 => Err(Trial::Disturbed),
            _ if is_better => Ok(()),
            _ => Err(Trial::Slower),
        })
    }

    /// The links take the path on trial, which carries `kbps`. Returns the member and the address
    /// at which its control link is to be redialled first.
    pub(super) fn prefer(&mut self, kbps: u32) -> Option<(MemberId, SocketAddr)> {
        let round = self.round.as_mut()?;
        let Some((to, stage @ Stage::Measured)) = &mut round.on_trial else { return None };
        *stage = Stage::Taken(kbps);
        Some((round.member, *to))
    }

    /// The control link uses the path on trial. Returns the peer whose data link is to follow;
    /// `None` if its offered link has ended, or the peer has offered another one.
    pub(super) fn take(&mut self, now: u64) -> Option<Rank> {
        let round = self.round.as_mut()?;
        let Some((to, Stage::Taken(kbps))) = round.on_trial.take() else { return None };
        let (aim, peer, member) = (round.aim, round.peer, round.member);
        round.kbps = kbps;
        let data_path =
            self.data_paths.get(&peer).filter(|data_path| data_path.is_offered(By::Me))?;
        if aim != Aim::FreshKeys {
            let of_before = if aim == Aim::Better { Trial::Slower } else { Trial::Unproven };
            self.known.tried(now, member.node, data_path.at().theirs, of_before);
            self.known.tried(now, member.node, to, Trial::Taken);
        }
        // Another link must not be offered before both directions have moved. Other paths stay due.
        round.rest.clear();
        if aim == Aim::Proven {
            self.changed.insert(member);
        }
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::data_link::{Addresses, EstablishedLink, Reports, data_link};
    use super::*;
    use crate::identity::Boot;
    use crate::link::{PathProof, PskNumber, data_pair};

    fn at(number: u8) -> Addresses {
        let theirs = SocketAddr::from(([10, 0, number, 2], 47474));
        Addresses { ours: None, theirs, path: PathProof::Proven, psk: PskNumber::default() }
    }

    /// The direction of the peer may not have moved yet: another offer would end the link.
    #[test]
    fn no_other_path_is_dialled_right_after_a_move() {
        let (member, peer) = (MemberId { node: NodeId([7; 32]), boot: Boot(7) }, Rank(1));
        let (link, _far) = data_pair();
        let (_link, moves, _) = data_link(link, Reports::to_test().0);
        let mut paths = DataPaths::default();
        paths.stands(peer, DataPath::new(moves, at(1)));
        let [second, third] = [at(2), at(3)].map(|at| at.theirs);
        paths.begin_round(Aim::Better, (peer, member), 100_000, vec![second, third]);
        assert!(matches!(paths.next(0), Next::Dial { to, .. } if to == second));
        let (link, _far) = data_pair();
        let offered = EstablishedLink { link, at: at(2) };
        assert!(paths.data_path_mut(peer).expect("a link").offer(By::Me, offered));
        paths.on_ready(peer);
        assert_eq!(paths.judge(1_000_000), Some(Ok(())));
        assert!(paths.prefer(1_000_000).is_some() && paths.take(0) == Some(peer));
        assert!(matches!(paths.next(0), Next::Rated(_, 1_000_000)));
    }
}
