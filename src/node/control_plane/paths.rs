//! The choice among several paths to a member: the best one, and another one when it breaks.
//!
//! The control link and the data link of two members use the same path, so the state of one tells
//! the state of the other.
//!
//! - **Better**: when the path to a member is measured, this node also tries the other paths to it,
//!   each by a second data link and a burst. If one carries at least 25 % more, the control link is
//!   redialled over it, and then the data link [moves](crate::node::data_link::Moves). The member
//!   with the smaller node id does this.
//! - **Proven**: paths lead to addresses that the member told of itself or that were proven before,
//!   and links move to proven paths only: what carries more may be a proxy. From an unproven path
//!   they move to any proven one at once, and nothing is measured before.
//! - **Broken**: a member that is silent, or was linked over an interface that is gone, is dialled
//!   over all other paths. If it answers, the member is alive and the old path is dead: the View is
//!   replaced, because the frames in flight on the data link are lost.

use super::super::event::{Event, LinkEnd};
use super::super::peers::Taken;
use super::Node;
use super::circuits::DirectDial;
use super::connecting::{connect_first, is_proof_of_absence};
use super::way::{Dialled, Way};
use super::ways::{Aim, By, Candidate, Moved, Round, Stage, Track};
use crate::discovery::{Trial, is_same_place, ways};
use crate::election::Input;
use crate::identity::MemberId;
use crate::link::{DataLink, Refusal, Session, Stream};
use crate::node::data_link::{Bursts, DataDial, Laid, Reports, data_line, laid};
use crate::protocol::{Rank, RateStep, ViewDigest};
use crate::topology::Port;
use crate::trace;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// Most paths tried in one round, because all members wait for it.
const ROUND_MAX: usize = 3;
/// Timeout of a trial: a dial, an answer, and a burst over a slow path.
const TRIAL_MS: u64 = 1500;
/// The rate of another path that justifies a move, in per cent of the present one.
const BETTER_PERCENT: u64 = 125;
const WISHES_APART_MS: u64 = 5_000;
/// How often a doubtful member is dialled over other paths. After that the failure detector
/// decides.
const DOUBTS_MAX: u32 = 4;
const DOUBTS_APART_MS: u64 = 300;
/// How long a lost direct link may take to be established again while relays carry the messages: a
/// lost packet of the handshake costs 200 ms.
const AWAITED_MS: u64 = 500;

impl Node {
    /// Prepares a data link of the View for its engine, with bursts and moves.
    pub(super) fn track(&mut self, view: ViewDigest, peer: Rank, laid: Laid) -> Box<dyn DataLink> {
        let Laid { link, ours, theirs, path, psk } = laid;
        let reports = Reports {
            link: LinkEnd { view, peer },
            traffic: self.planning.rates.traffic.clone(),
            events: self.events.clone(),
            ends: self.ends.clone(),
        };
        let (link, moves, bursts) = data_line(link, reports);
        self.planning.rates.measure_over(peer, bursts);
        let since = Instant::now();
        let track = Track { moves, ours, theirs, path, since, psk, offered: None };
        self.ways.tracks.insert(peer, track);
        link
    }

    /// The port through which the links with a member leave this machine.
    pub(super) fn port_toward(&self, member: MemberId) -> Option<Port> {
        let rank = self.envelope.as_ref().and_then(|e| e.view().rank_of(member));
        let by_data =
            rank.and_then(|rank| self.ways.tracks.get(&rank)).and_then(|track| track.ours);
        let by_control = || self.peers.get(member).and_then(|link| link.local);
        self.port_of(by_data.or_else(by_control)?)
    }

    /// The other paths to a member that this node should try now.
    fn ways_to_try(&mut self, peer: Rank) -> Vec<SocketAddr> {
        let Some(member) = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id)
        else {
            return Vec::new();
        };
        let Some(track) = self.ways.tracks.get(&peer).filter(|_| self.me.node < member.node) else {
            return Vec::new();
        };
        let mut others = self.ways_to(member);
        others.retain(|to| !is_same_place(*to, track.theirs));
        let now = self.now();
        let mut due = self.ways.paths.due(now, member.node, &others);
        due.truncate(ROUND_MAX);
        due
    }

    /// Asks rank 0 for a measurement of paths that have changed or that have untried alternatives.
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

    /// Handles the rate of a burst to this peer: judges the trial, or tries the other paths, or
    /// reports the rate to all members.
    pub(super) fn timed(&mut self, peer: Rank, kbps: u32) {
        let is_trial = |round: &Round| round.peer == peer && round.aim == Aim::Better;
        if self.ways.round.as_ref().is_some_and(is_trial) {
            return self.judge(kbps);
        }
        let is_single = kbps > 0 && !self.is_exchange(peer);
        if is_single { self.try_ways(peer, kbps) } else { self.path_rated(peer, kbps) }
    }

    /// Tries the other paths to a peer; the present one carries `kbps`, or 0 if it cannot be
    /// measured.
    pub(super) fn try_ways(&mut self, peer: Rank, kbps: u32) {
        let rest = if self.ways.round.is_none() { self.ways_to_try(peer) } else { Vec::new() };
        let member = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id);
        match member.filter(|_| !rest.is_empty()) {
            Some(member) => {
                self.begin_round(Round::of(Aim::Better, peer, member, kbps, rest.into()));
            }
            None => self.path_rated(peer, kbps),
        }
    }

    /// Moves the data link with one member from an unproven path to a proven one, if one is known.
    pub(super) fn leave_detours(&mut self) {
        if self.ways.is_busy() || self.envelope.as_ref().is_none_or(|e| e.is_frozen()) {
            return;
        }
        let unproven = self.ways.tracks.iter().filter(|(_, track)| !track.path.is_proven());
        for peer in unproven.map(|(peer, _)| *peer).collect::<Vec<Rank>>() {
            let rest = self.ways_to_try(peer);
            let member = self.envelope.as_ref().and_then(|e| e.view().member(peer)).map(|m| m.id);
            if let Some(member) = member.filter(|_| !rest.is_empty()) {
                return self.begin_round(Round::of(Aim::Proven, peer, member, 0, rest.into()));
            }
        }
    }

    pub(super) fn begin_round(&mut self, round: Round) {
        self.ways.round = Some(round);
        self.try_next();
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
            let (aim, peer, kbps) = (round.aim, round.peer, round.kbps);
            self.ways.round = None;
            if aim == Aim::Better {
                self.path_rated(peer, kbps);
            }
            return;
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

    /// Ends the present trial without a move, and starts the next one.
    fn drop_trial(&mut self, trial: Trial) {
        let now = self.now();
        let Some(round) = &mut self.ways.round else { return };
        if let Some((to, _)) = round.on_trial.take() {
            let aim = round.aim;
            trace::debug!(peer = %round.member, %to, ?trial, ?aim, "another path was tried");
            if aim != Aim::FreshKeys {
                self.ways.paths.tried(now, round.member.node, to, trial);
            }
        }
        // What the peer has offered is not this node's to withdraw: the peer may be moving there.
        if let Some(track) = self.ways.tracks.get_mut(&round.peer)
            && track.offered.take_if(|candidate| candidate.by == By::Me).is_some()
        {
            track.moves.withdraw();
        }
        self.try_next();
    }

    /// Whether other paths to this peer are being tried; the rate is reported after the last trial.
    pub(super) fn is_trying(&self, peer: Rank) -> bool {
        self.ways.round.as_ref().is_some_and(|round| round.peer == peer)
    }

    /// The bursts over the path to this peer that is being measured.
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
        let Some(laid) = link else { return self.drop_trial(Trial::Failed) };
        if !self.may_move_over(peer, &laid) {
            self.drop_trial(Trial::Unproven);
        } else if self.ways.is_offered_by(peer) || !self.offer(peer, laid, By::Me) {
            self.drop_trial(Trial::Failed);
        }
    }

    /// A peer has dialled another path to this node.
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
        if !self.may_move_over(src, &laid) {
            return;
        }
        if let Some(member) = self.ways.tried(src) {
            // Both ends try another link at once: the one with the smaller node id goes on.
            if self.me.node < member.node {
                return;
            }
            self.drop_trial(Trial::Failed);
        }
        if self.offer(src, laid, By::Peer) {
            self.tell_rate(src, RateStep::Ready);
        }
    }

    fn may_move_over(&self, peer: Rank, laid: &Laid) -> bool {
        self.ways.tracks.get(&peer).is_some_and(|track| track.may_move_over(laid))
    }

    fn offer(&mut self, peer: Rank, laid: Laid, by: By) -> bool {
        let Laid { link, ours, theirs: to, path, psk } = laid;
        let Some(track) = self.ways.tracks.get_mut(&peer) else { return false };
        let Some(bursts) = track.moves.offer(link) else { return false };
        track.offered = Some(Candidate { by, to, ours, path, psk, bursts });
        true
    }

    /// The peer confirms the link over the path on trial.
    pub(super) fn on_path_ready(&mut self, peer: Rank) {
        let Some(aim) = self.ways.round.as_ref().map(|round| round.aim) else { return };
        let Some(trial) = self.stage(peer).filter(|trial| trial.1 == Stage::Dialled) else {
            return;
        };
        trial.1 = Stage::Measured;
        match aim {
            Aim::Better => {}
            Aim::Proven => return self.prefer(0),
            // The control link is renewed by itself.
            Aim::FreshKeys => {
                trial.1 = Stage::Taken(0);
                return self.take_path();
            }
        }
        if let Some(offered) = self.ways.tracks.get(&peer).and_then(|track| track.offered.as_ref())
        {
            offered.bursts.begin(false);
        }
    }

    /// Judges the path on trial by its rate.
    fn judge(&mut self, kbps: u32) {
        let Some(round) = &self.ways.round else { return };
        let Some((_, Stage::Measured)) = &round.on_trial else { return };
        let is_better = u64::from(kbps) * 100 >= u64::from(round.kbps) * BETTER_PERCENT;
        if kbps == 0 || !is_better {
            return self.drop_trial(if kbps == 0 { Trial::Disturbed } else { Trial::Slower });
        }
        self.prefer(kbps);
    }

    /// The links take the path on trial, which carries `kbps`: first the control link is redialled.
    fn prefer(&mut self, kbps: u32) {
        let Some(round) = &mut self.ways.round else { return };
        let Some((to, stage @ Stage::Measured)) = &mut round.on_trial else { return };
        *stage = Stage::Taken(kbps);
        let (member, to) = (round.member, *to);
        if !self.redial(member, vec![to]) {
            self.drop_trial(Trial::Disturbed);
        }
    }

    /// The control link uses the path on trial: the data link follows.
    fn take_path(&mut self) {
        let now = self.now();
        let Some(round) = &mut self.ways.round else { return };
        let Some((to, Stage::Taken(kbps))) = round.on_trial.take() else { return };
        let (aim, peer, member) = (round.aim, round.peer, round.member);
        round.kbps = kbps;
        let is_own = |track: &Track| track.offered.as_ref().is_some_and(|of| of.by == By::Me);
        if !self.ways.tracks.get(&peer).is_some_and(is_own) {
            // The offered link has ended, or the peer has offered another one.
            return self.try_next();
        }
        let before = self.ways.tracks.get(&peer).map(|track| track.theirs);
        if let Some(before) = before.filter(|_| aim != Aim::FreshKeys) {
            let of_before = if aim == Aim::Better { Trial::Slower } else { Trial::Unproven };
            self.ways.paths.tried(now, member.node, before, of_before);
            self.ways.paths.tried(now, member.node, to, Trial::Taken);
        }
        if aim == Aim::Proven {
            // Any one is enough.
            round.rest.clear();
            self.ways.changed.insert(member);
        }
        self.move_track(peer);
        self.try_next();
    }

    /// The peer now sends over the path that it offered: this node's direction follows.
    pub(super) fn on_moved(&mut self, view: ViewDigest, peer: Rank) {
        let Some(envelope) = self.envelope.as_ref().filter(|e| e.digest() == view) else { return };
        // If this end made the present offer, it is on trial, and the peer has only completed the
        // previous move.
        let offered = self.ways.tracks.get(&peer).and_then(|track| track.offered.as_ref());
        let follows = offered.is_some_and(|candidate| candidate.by == By::Peer);
        if let Some(member) = envelope.view().member(peer).filter(|_| follows) {
            let id = member.id;
            if self.move_track(peer) == Some(Moved::Elsewhere) {
                // This node's direction was measured over the previous path.
                self.ways.changed.insert(id);
            }
        }
    }

    fn move_track(&mut self, peer: Rank) -> Option<Moved> {
        let track = self.ways.tracks.get_mut(&peer)?;
        let Candidate { to, ours, path, psk, bursts, .. } = track.offered.take()?;
        if !track.moves.go() {
            return None;
        }
        let ip = |at: Option<SocketAddr>| at.map(|at| at.ip());
        let stays = ip(ours) == ip(track.ours) && is_same_place(to, track.theirs);
        (track.ours, track.theirs, track.path) = (ours, to, path);
        (track.since, track.psk) = (Instant::now(), psk);
        self.planning.rates.measure_over(peer, bursts);
        if stays {
            return Some(Moved::InPlace);
        }
        self.tell_path(peer);
        Some(Moved::Elsewhere)
    }

    /// Reports the new path of the links with a member.
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
        trace::info!(peer = %member, interface, "the links with a member take another path");
        let peer = self.who(member.node);
        self.announce_event(crate::report::Event::PathChanged { peer, interface });
    }

    /// Dials doubtful members over other paths, and ends trials that time out.
    pub(super) fn watch_paths(&mut self) {
        let now = self.now();
        // A redial for a trial has its own timeout, and must not end after the trial.
        let is_waiting =
            |round: &Round| matches!(round.on_trial, Some((_, Stage::Dialled | Stage::Measured)));
        if self.ways.round.as_ref().is_some_and(|round| is_waiting(round) && now >= round.until) {
            self.drop_trial(Trial::Failed);
        }
        // What told of these moves was lost.
        if let Some(view) = self.envelope.as_ref().map(|e| e.digest()) {
            self.ways.unfollowed().into_iter().for_each(|peer| self.on_moved(view, peer));
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

    /// Relays now carry the messages of a member. Returns whether a redial may restore its direct
    /// link; then its data link is kept until that is known.
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

    /// Linked members that are silent, or whose interface is gone.
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

    /// Dials a known member at the first of these addresses that connects. Returns whether the dial
    /// was started: a member has at most one redial at a time, because the two ends might keep
    /// different ones of two links.
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

    /// A redial has ended.
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
            // The other end has already replaced its link by this one, so this end must take it as
            // well, wanted or not.
            Ok((stream, session)) => {
                match (self.on_linked(stream, session, Way::direct(to), Dialled::ByMe), on_trial) {
                    (Taken::Refused, true) => self.drop_trial(Trial::Failed),
                    // It is not admitted any more, and without a link.
                    (Taken::Refused, false) if self.peers.get(member).is_none() => {
                        self.roster.link_down(member, self.now());
                        self.give_up(member);
                    }
                    (Taken::Refused, false) => {}
                    (_, true) => self.take_path(),
                    (_, false) => self.path_broke(member),
                }
            }
            Err(_) if on_trial => self.drop_trial(Trial::Failed),
            Err(refusal) => {
                trace::debug!(peer = %member, %to, %refusal, "a member does not answer there");
                if self.peers.get(member).is_some() {
                    return self.direct_does_not_come(member);
                }
                self.roster.link_down(member, self.now());
                // The member's machine answers that no node, or another one, is there: no path
                // leads to the member.
                if is_proof_of_absence(refusal) {
                    self.give_up(member);
                } else {
                    self.seek_lost(member, DirectDial::Over);
                }
            }
        }
    }

    /// The paths to a member.
    fn ways_to(&self, member: MemberId) -> Vec<SocketAddr> {
        let theirs: Vec<SocketAddr> = self.roster.ways_to(member).into_iter().collect();
        ways(&self.wiring.chosen, &theirs)
    }

    /// The paths to a member except that of its control link.
    pub(super) fn ways_around(&self, member: MemberId) -> Vec<SocketAddr> {
        let mut others = self.ways_to(member);
        if let Some(link) = self.peers.get(member) {
            others.retain(|to| !is_same_place(*to, link.address));
        }
        others
    }

    /// A new control link with a member is established because its predecessor did not work. If the
    /// data link uses another path than the new one, it is lost as well.
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
        // The same place may have an IPv4 and an IPv6 address, so only addresses of one family are
        // compared.
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
