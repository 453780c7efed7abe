//! Layer: Host.
//!
//! By which of several paths a node is linked with a member: the best one, and another one when
//! that breaks.
//!
//! Control link and data link of two members go by the same path, so that whoever hears the one
//! need not ask about the other.
//!
//! - **Better**: when the path to a member is measured, the other ways to it are, too: a second
//!   data link over each, and a burst. One that carries a fourth more is taken: the control link is
//!   dialled anew there, then the data link [moves](crate::driver::moving). Of two members the one
//!   with the smaller node id does this.
//! - **Broken**: a member that is silent, or was linked over an interface that is gone, is dialled
//!   over all other ways. If it answers there it lives, and what it was linked by does not: the
//!   View is replaced, since what was under way on the data link is lost.

use super::Node;
use super::links::{Dialled, Way, connect_first, is_proof_of_absence};
use super::relays::DirectDial;
use super::views::laid;
use crate::discovery::{Paths, Trial, is_same_place, ways};
use crate::driver::bursts::Bursts;
use crate::driver::datalinks::{DataDial, Laid};
use crate::driver::event::Event;
use crate::driver::moving::{Moves, movable};
use crate::driver::peers::Taken;
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::{DataLink, Refusal, Session, Stream};
use crate::topology::{Port, RateStep};
use crate::view::{Rank, View, ViewDigest};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// What is known of the ways to others, and done about them.
#[derive(Default)]
pub(super) struct Ways {
    paths: Paths,
    /// The data links of the View.
    tracks: BTreeMap<Rank, Track>,
    round: Option<Round>,
    doubts: BTreeMap<MemberId, Doubt>,
    /// The path to these is not what it was when it was measured.
    changed: BTreeSet<MemberId>,
    /// Members that are linked, or were a moment ago, and are being dialled.
    redials: BTreeSet<MemberId>,
    /// Those of them whose words others pass on meanwhile, and until when their data links are not
    /// given up for that, in milliseconds.
    awaited: BTreeMap<MemberId, u64>,
    /// When rank 0 was last asked to have a path measured, in milliseconds.
    wished: BTreeMap<Rank, u64>,
}

/// Where a data link lies.
struct Track {
    moves: Moves,
    ours: Option<SocketAddr>,
    theirs: SocketAddr,
    /// Where it may be moved to.
    offered: Option<Candidate>,
}

/// Another path, over which a data link stands.
struct Candidate {
    /// Who offered it, and so moves first.
    by: By,
    to: SocketAddr,
    ours: Option<SocketAddr>,
    bursts: Bursts,
}

/// An end of a data link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Me,
    Peer,
}

/// One by one the other ways to a member are tried.
struct Round {
    peer: Rank,
    member: MemberId,
    /// What the path in use carries.
    kbps: u32,
    on_trial: Option<(SocketAddr, Stage)>,
    rest: VecDeque<SocketAddr>,
    /// The present trial is given up then, in milliseconds.
    until: u64,
}

/// How far a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The data link is being made.
    Dialled,
    /// The other end has it as well: it is measured.
    Measured,
    /// It carries so much, and the control link is being made there.
    Taken(u32),
}

/// A member that may be there though its link is not.
#[derive(Default)]
struct Doubt {
    dialled: u32,
    /// Not dialled again before, in milliseconds.
    next_at: u64,
}

/// Ways to a member that are tried one after the other, while all wait.
const ROUND_MAX: usize = 3;
/// What a trial may take: a dial, an answer, a burst over a slow path.
const TRIAL_MS: u64 = 1500;
/// How much more another path must carry to be worth a move, in per cent.
const BETTER_PERCENT: u64 = 125;
const WISHES_APART_MS: u64 = 5_000;
/// How often a doubtful member is dialled over other ways. Then silence decides.
const DOUBTS_MAX: u32 = 4;
const DOUBTS_APART_MS: u64 = 300;
/// A direct link that has ended may be made anew for so long, once others pass words on: a lost
/// packet of its handshake costs 200 ms.
const AWAITED_MS: u64 = 500;

impl Ways {
    /// Tracks and trials belong to a View.
    pub(super) fn view_changed(&mut self, view: &View) {
        self.paths.keep(|node| view.members.iter().any(|m| m.id.node == node));
        self.changed.retain(|member| view.contains(*member));
        self.tracks.clear();
        self.round = None;
        self.wished.clear();
        self.awaited.clear();
    }

    /// All ways are worth a trial.
    pub(super) fn network_changed(&mut self) {
        self.paths.forget_all();
    }

    /// The other end has found that this way does not lead there any more.
    pub(super) fn is_broken(&mut self, now: u64, member: MemberId, way: SocketAddr) {
        self.paths.tried(now, member.node, way, Trial::Failed);
    }
}

impl Node {
    /// A data link of the View, as its engine gets it.
    pub(super) fn track(&mut self, view: ViewDigest, peer: Rank, laid: Laid) -> Box<dyn DataLink> {
        let (link, bursts) = self.with_bursts(view, peer, laid.link);
        let events = self.events.clone();
        // With a full queue the other direction stays where it is, which works as well.
        let (link, moves) =
            movable(link, Box::new(move || _ = events.try_send(Event::Moved { view, peer })));
        self.planning.rates.measure_over(peer, bursts);
        self.ways
            .tracks
            .insert(peer, Track { moves, ours: laid.ours, theirs: laid.theirs, offered: None });
        link
    }

    /// Where the links with a member leave this machine.
    pub(super) fn port_toward(&self, member: MemberId) -> Option<Port> {
        let rank = self.envelope.as_ref().and_then(|e| e.view().rank_of(member));
        let by_data =
            rank.and_then(|rank| self.ways.tracks.get(&rank)).and_then(|track| track.ours);
        let by_control = || self.peers.get(member).and_then(|link| link.local);
        self.port_of(by_data.or_else(by_control)?)
    }

    /// The ways to a member, the one in use left out, that are worth a trial by this node.
    fn ways_to_try(&mut self, peer: Rank) -> Vec<SocketAddr> {
        let Some(member) = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id)
        else {
            return Vec::new();
        };
        let Some(track) = self.ways.tracks.get(&peer).filter(|_| self.me.node < member.node) else {
            return Vec::new();
        };
        let theirs: Vec<SocketAddr> = self.roster.addresses_of(member).collect();
        let mut others = ways(&self.wiring.chosen, &theirs);
        others.retain(|to| !is_same_place(*to, track.theirs));
        let now = self.now();
        let mut due = self.ways.paths.due(now, member.node, &others);
        due.truncate(ROUND_MAX);
        due
    }

    /// Asks rank 0 for a measurement where there is something new to see.
    pub(super) fn wish_for_trials(&mut self) {
        let Some(view) =
            self.envelope.as_ref().filter(|e| !e.is_frozen()).map(|e| Arc::clone(e.view()))
        else {
            return;
        };
        let now = self.now();
        for peer in self.ways.tracks.keys().copied().collect::<Vec<Rank>>() {
            let lately = self.ways.wished.get(&peer).is_some_and(|at| now < at + WISHES_APART_MS);
            let has_changed = view.member(peer).is_some_and(|m| self.ways.changed.contains(&m.id));
            if !lately
                && self.ways.round.is_none()
                && (has_changed || !self.ways_to_try(peer).is_empty())
            {
                self.ways.wished.insert(peer, now);
                self.tell_rate(Rank(0), RateStep::Wish { to: peer });
            }
        }
    }

    /// A burst to this member has been timed: now the other ways to it are tried, or everybody is
    /// told.
    pub(super) fn timed(&mut self, peer: Rank, kbps: u32) {
        if self.ways.round.as_ref().is_some_and(|round| round.peer == peer) {
            return self.judge(kbps);
        }
        let is_single = kbps > 0 && !self.is_exchange(peer);
        if is_single { self.try_ways(peer, kbps) } else { self.path_rated(peer, kbps) }
    }

    /// Tries the other ways to a member than one that carries so much; one that cannot be measured
    /// counts as carrying nothing.
    pub(super) fn try_ways(&mut self, peer: Rank, kbps: u32) {
        let rest = if self.ways.round.is_none() { self.ways_to_try(peer) } else { Vec::new() };
        let member = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id);
        match member.filter(|_| !rest.is_empty()) {
            Some(member) => {
                self.ways.round =
                    Some(Round { peer, member, kbps, on_trial: None, rest: rest.into(), until: 0 });
                self.try_next();
            }
            None => self.path_rated(peer, kbps),
        }
    }

    fn path_rated(&mut self, peer: Rank, kbps: u32) {
        let member = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id);
        if let Some(member) = member {
            self.ways.changed.remove(&member);
        }
        self.rated(peer, kbps);
    }

    fn try_next(&mut self) {
        let now = self.now();
        let Some(view) = self.envelope.as_ref().map(|e| (e.digest(), e.me())) else { return };
        let Some(round) = &mut self.ways.round else { return };
        let Some(to) = round.rest.pop_front() else {
            let (peer, kbps) = (round.peer, round.kbps);
            self.ways.round = None;
            return self.path_rated(peer, kbps);
        };
        round.on_trial = Some((to, Stage::Dialled));
        round.until = now + TRIAL_MS;
        let dial = DataDial {
            view: view.0,
            me: view.1,
            peer: round.peer,
            expect: round.member,
            first: None,
            to,
        };
        self.data.try_path(
            &dial,
            Arc::clone(&self.net),
            Arc::clone(&self.config.local),
            self.events.clone(),
        );
    }

    /// The way on trial is not taken.
    fn drop_trial(&mut self, trial: Trial) {
        let now = self.now();
        let Some(round) = &mut self.ways.round else { return };
        if let Some((to, _)) = round.on_trial.take() {
            tracing::debug!(peer = %round.member, %to, ?trial, "another path was tried");
            self.ways.paths.tried(now, round.member.node, to, trial);
        }
        if let Some(track) = self.ways.tracks.get_mut(&round.peer) {
            track.moves.withdraw();
            track.offered = None;
        }
        self.try_next();
    }

    /// Whether other ways to this member are being tried: what that finds is told when it is over.
    pub(super) fn is_trying(&self, peer: Rank) -> bool {
        self.ways.round.as_ref().is_some_and(|round| round.peer == peer)
    }

    /// What measures the way to this member that is on trial.
    pub(super) fn bursts_on_trial(&self, peer: Rank) -> Option<&Bursts> {
        let round = self.ways.round.as_ref().filter(|round| round.peer == peer)?;
        let is_measured = matches!(round.on_trial, Some((_, Stage::Measured)));
        let offered = self.ways.tracks.get(&peer)?.offered.as_ref();
        offered.filter(|_| is_measured).map(|candidate| &candidate.bursts)
    }

    fn stage(&mut self, of: Rank) -> Option<&mut (SocketAddr, Stage)> {
        self.ways.round.as_mut().filter(|round| round.peer == of)?.on_trial.as_mut()
    }

    /// The dial of another path has ended.
    pub(super) fn on_path(
        &mut self,
        view: ViewDigest,
        peer: Rank,
        to: SocketAddr,
        link: Option<Laid>,
    ) {
        let is_current = self.envelope.as_ref().is_some_and(|e| e.digest() == view);
        if !is_current || self.stage(peer).is_none_or(|trial| *trial != (to, Stage::Dialled)) {
            return;
        }
        if link.is_none_or(|laid| !self.offer(view, peer, laid, By::Me)) {
            self.drop_trial(Trial::Failed);
        }
    }

    /// The same link at its other end.
    pub(super) fn on_path_offered(
        &mut self,
        stream: Box<dyn Stream>,
        session: Session,
        view: ViewDigest,
        src: Rank,
        from: SocketAddr,
    ) {
        let is_current =
            self.envelope.as_ref().is_some_and(|e| e.digest() == view && !e.is_frozen());
        let Some(laid) = laid(stream, session, from).filter(|_| is_current) else { return };
        if self.offer(view, src, laid, By::Peer) {
            self.tell_rate(src, RateStep::Ready);
        }
    }

    fn offer(&mut self, view: ViewDigest, peer: Rank, laid: Laid, by: By) -> bool {
        let (link, bursts) = self.with_bursts(view, peer, laid.link);
        let Some(track) = self.ways.tracks.get_mut(&peer).filter(|track| track.moves.offer(link))
        else {
            return false;
        };
        track.offered = Some(Candidate { by, to: laid.theirs, ours: laid.ours, bursts });
        true
    }

    /// The other end has the link over the way on trial.
    pub(super) fn on_path_ready(&mut self, peer: Rank) {
        let Some(trial) = self.stage(peer).filter(|trial| trial.1 == Stage::Dialled) else {
            return;
        };
        trial.1 = Stage::Measured;
        if let Some(offered) = self.ways.tracks.get(&peer).and_then(|track| track.offered.as_ref())
        {
            offered.bursts.begin();
        }
    }

    /// What the way on trial carries.
    fn judge(&mut self, kbps: u32) {
        let Some(round) = &mut self.ways.round else { return };
        let Some((to, stage @ Stage::Measured)) = &mut round.on_trial else { return };
        let is_better = u64::from(kbps) * 100 >= u64::from(round.kbps) * BETTER_PERCENT;
        if kbps == 0 || !is_better {
            return self.drop_trial(if kbps == 0 { Trial::Disturbed } else { Trial::Slower });
        }
        *stage = Stage::Taken(kbps);
        let (member, to) = (round.member, *to);
        if !self.redial(member, vec![to]) {
            self.drop_trial(Trial::Disturbed);
        }
    }

    /// The control link stands where the way on trial leads: the data link follows.
    fn take_path(&mut self) {
        let now = self.now();
        let Some(round) = &mut self.ways.round else { return };
        let Some((to, Stage::Taken(kbps))) = round.on_trial.take() else { return };
        let (peer, member) = (round.peer, round.member);
        round.kbps = kbps;
        if let Some(before) = self.ways.tracks.get(&peer).map(|track| track.theirs) {
            self.ways.paths.tried(now, member.node, before, Trial::Slower);
        }
        self.ways.paths.tried(now, member.node, to, Trial::Taken);
        self.move_track(peer);
        self.try_next();
    }

    /// What another member sends comes by the path that it offered: what this node sends follows.
    pub(super) fn on_moved(&mut self, view: ViewDigest, peer: Rank) {
        let Some(envelope) = self.envelope.as_ref().filter(|e| e.digest() == view) else { return };
        // What this end has offered is on trial: the other one has followed to the one before.
        let offered = self.ways.tracks.get(&peer).and_then(|track| track.offered.as_ref());
        let follows = offered.is_some_and(|candidate| candidate.by == By::Peer);
        if let Some(member) = envelope.view().member(peer).filter(|_| follows) {
            // What this one sends was measured by the path before.
            self.ways.changed.insert(member.id);
            self.move_track(peer);
        }
    }

    fn move_track(&mut self, peer: Rank) {
        let Some(track) = self.ways.tracks.get_mut(&peer) else { return };
        let Some(candidate) = track.offered.take() else { return };
        track.moves.go();
        (track.ours, track.theirs) = (candidate.ours, candidate.to);
        self.planning.rates.measure_over(peer, candidate.bursts);
        self.tell_path(peer);
    }

    /// Tells that the links with a member take another path.
    fn tell_path(&mut self, peer: Rank) {
        let Some(member) = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id)
        else {
            return;
        };
        let ours = self.ways.tracks.get(&peer).and_then(|track| track.ours);
        let interface =
            ours.and_then(|ours| self.wiring.of(ours)).map_or_else(String::new, |i| i.name.clone());
        self.path_event(member, interface);
    }

    fn path_event(&mut self, member: MemberId, interface: String) {
        tracing::info!(peer = %member, interface, "the links with a member take another path");
        let peer = self.who(member.node);
        self.announce_event(crate::events::Event::PathChanged { peer, interface });
    }

    /// Dials doubtful members over other ways, and gives trials up that take too long.
    pub(super) fn watch_paths(&mut self) {
        let now = self.now();
        // The dial of a control link ends by itself, and must not come to a trial that is over.
        let is_waiting =
            |round: &Round| matches!(round.on_trial, Some((_, Stage::Dialled | Stage::Measured)));
        if self.ways.round.as_ref().is_some_and(|round| is_waiting(round) && now >= round.until) {
            self.drop_trial(Trial::Failed);
        }
        let late: Vec<MemberId> = self
            .ways
            .awaited
            .iter()
            .filter(|(_, until)| now >= **until)
            .map(|(id, _)| *id)
            .collect();
        late.into_iter().for_each(|member| self.direct_does_not_come(member));
        let doubtful = self.doubtful();
        self.ways.doubts.retain(|member, _| doubtful.contains(member));
        for member in doubtful {
            let doubt = self.ways.doubts.entry(member).or_default();
            if now < doubt.next_at || doubt.dialled >= DOUBTS_MAX {
                continue;
            }
            doubt.dialled += 1;
            doubt.next_at = now + DOUBTS_APART_MS;
            let around = self.ways_around(member);
            self.redial(member, around);
        }
    }

    /// Others pass the words of a member on now. Says whether its direct link, which has ended, may
    /// yet be made anew: then its data link is not given up before that is known.
    pub(super) fn awaits_direct(&mut self, member: MemberId) -> bool {
        let is_dialled = self.ways.redials.contains(&member);
        if is_dialled {
            let until = self.now() + AWAITED_MS;
            self.ways.awaited.entry(member).or_insert(until);
        }
        is_dialled
    }

    pub(super) fn direct_is_back(&mut self, member: MemberId) {
        self.ways.awaited.remove(&member);
    }

    fn direct_does_not_come(&mut self, member: MemberId) {
        if self.ways.awaited.remove(&member).is_some() {
            self.lose_direct(member);
        }
    }

    /// Linked members that are silent, or that were linked over an interface that is gone.
    fn doubtful(&self) -> BTreeSet<MemberId> {
        let is_cut_off = |ours: Option<SocketAddr>| ours.is_some_and(|ours| !self.wiring.has(ours));
        let cut_off = self
            .peers
            .iter()
            .filter(|(_, link)| !self.wiring.all.is_empty() && is_cut_off(link.local));
        let silent = self.election.suspects(self.now());
        cut_off
            .map(|(id, _)| *id)
            .chain(silent.filter(|id| self.peers.get(*id).is_some()))
            .collect()
    }

    /// Dials a known member, at whichever of these addresses connects first. At most one dial to a
    /// member is under way: of two links that both stand the ends might keep different ones. Says
    /// whether this one is.
    pub(super) fn redial(&mut self, member: MemberId, to: Vec<SocketAddr>) -> bool {
        let is_free = !to.is_empty() && self.ways.redials.insert(member);
        if is_free {
            let (net, local, events) =
                (Arc::clone(&self.net), Arc::clone(&self.config.local), self.events.clone());
            tokio::spawn(async move {
                let (to, result) = connect_first(net, &local, to, member).await;
                let _ = events.send(Event::Redialled { member, to, result }).await;
            });
        }
        is_free
    }

    /// A known member has been dialled.
    pub(super) fn on_redialled(
        &mut self,
        member: MemberId,
        to: SocketAddr,
        result: Result<(Box<dyn Stream>, Session), Refusal>,
    ) {
        self.ways.redials.remove(&member);
        let round = self.ways.round.as_ref().filter(|round| round.member == member);
        let on_trial =
            round.is_some_and(|r| matches!(r.on_trial, Some((at, Stage::Taken(_))) if at == to));
        match result {
            // The other end has it by now, in place of the one before, so this end takes it too,
            // whether or not it is still wanted.
            Ok((stream, session)) => {
                match (self.on_linked(stream, session, Way::direct(to), Dialled::ByMe), on_trial) {
                    (Taken::Refused, true) => self.drop_trial(Trial::Failed),
                    (Taken::Refused, false) => {}
                    (_, true) => self.take_path(),
                    (_, false) => self.path_broke(member),
                }
            }
            Err(_) if on_trial => self.drop_trial(Trial::Failed),
            Err(refusal) => {
                tracing::debug!(peer = %member, %to, %refusal, "a member does not answer there");
                if self.peers.get(member).is_some() {
                    return self.direct_does_not_come(member);
                }
                self.roster.link_down(member, self.now());
                // Its machine says that nobody is there, or somebody else is: no other way leads to
                // it.
                if is_proof_of_absence(refusal) {
                    self.give_up(member)
                } else {
                    self.seek_lost(member, DirectDial::Over)
                }
            }
        }
    }

    /// The ways to a member but the one that its control link takes.
    pub(super) fn ways_around(&self, member: MemberId) -> Vec<SocketAddr> {
        let theirs: Vec<SocketAddr> = self.roster.addresses_of(member).collect();
        let mut others = ways(&self.wiring.chosen, &theirs);
        if let Some(link) = self.peers.get(member) {
            others.retain(|to| !is_same_place(*to, link.address));
        }
        others
    }

    /// The control link with a member stands anew, since the one before did not work. If the data
    /// link lies elsewhere it does not either.
    pub(super) fn path_broke(&mut self, member: MemberId) {
        let now = self.now();
        self.ways.doubts.remove(&member);
        let Some((view, rank)) =
            self.envelope.as_ref().and_then(|e| Some((e.digest(), e.view().rank_of(member)?)))
        else {
            return;
        };
        let (Some(track), Some(link)) = (self.ways.tracks.get(&rank), self.peers.get(member))
        else {
            return;
        };
        let number = |at: Option<SocketAddr>| Some(self.port_of(at?)?.number);
        // By IPv4 and by IPv6 one may get to the same place.
        let other_place = || {
            track.theirs.is_ipv4() == link.address.is_ipv4()
                && !is_same_place(track.theirs, link.address)
        };
        if number(track.ours) == number(link.local) && !other_place() {
            return;
        }
        let (before, interface) = (
            track.theirs,
            link.local.and_then(|ours| self.wiring.of(ours)).map(|i| i.name.clone()),
        );
        self.ways.paths.tried(now, member.node, before, Trial::Failed);
        self.ways.changed.insert(member);
        self.path_event(member, interface.unwrap_or_default());
        self.step(Input::DataLinkLost(view));
    }
}
