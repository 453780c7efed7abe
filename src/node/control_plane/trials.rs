//! The trials of other paths to a member, and the moves of its links.
//!
//! See [`DataPaths`](crate::node::data_paths).

use super::super::data_link::{Addresses, DataDial, EstablishedLink};
use super::super::data_path::{By, DataPath, Moved};
use super::super::data_paths::{Aim, Next};
use super::ControlPlane;
use crate::discovery::Trial;
use crate::identity::MemberId;
use crate::protocol::{Rank, RateStep, ViewDigest};
use std::net::SocketAddr;

impl ControlPlane {
    /// Whether links are being tried, moved or redialled.
    pub(super) fn moves_links(&self) -> bool {
        self.paths.is_any_tried() || self.redials.is_any_under_way()
    }

    /// The other paths to a peer that this node should try now, and its member.
    fn addresses_to_try(&mut self, peer: Rank) -> Option<(MemberId, Vec<SocketAddr>)> {
        let member = self.installed.member(peer).filter(|id| self.me.node < id.node)?;
        let addresses = self.addresses_of(member);
        let due = self.paths.due(self.clock.now(), peer, member.node, addresses);
        (!due.is_empty()).then_some((member, due))
    }

    /// Asks rank 0 for a measurement of paths that have changed or that have untried alternatives.
    pub(super) fn wish_for_trials(&mut self) {
        if self.installed.running().is_none() {
            return;
        }
        let now = self.now();
        for peer in self.paths.peers() {
            let member = self.installed.member(peer);
            let has_changed = member.is_some_and(|member| self.paths.has_changed(member));
            if self.paths.may_wish(now, peer)
                && (has_changed || self.addresses_to_try(peer).is_some())
            {
                self.paths.wish(now, peer);
                self.tell_rate(Rank(0), RateStep::Wish { to: peer });
            }
        }
    }

    /// Handles the rate of a burst to this peer: judges the trial, or tries the other paths, or
    /// reports the rate to all members.
    pub(super) fn timed(&mut self, peer: Rank, kbps: u32) {
        if self.paths.rates_trial(peer) {
            return match self.paths.judge(kbps) {
                Some(Ok(())) => self.prefer(kbps),
                Some(Err(why)) => self.drop_trial(why),
                None => {}
            };
        }
        let is_single = kbps > 0 && !self.rates.is_together(peer);
        if is_single { self.try_paths(peer, kbps) } else { self.path_rated(peer, kbps) }
    }

    /// Tries the other paths to a peer; the present one carries `kbps`, or 0 if it cannot be
    /// measured.
    pub(super) fn try_paths(&mut self, peer: Rank, kbps: u32) {
        let is_free = !self.paths.is_any_tried();
        match is_free.then(|| self.addresses_to_try(peer)).flatten() {
            Some((member, rest)) => self.begin_round(Aim::Better, (peer, member), kbps, rest),
            None => self.path_rated(peer, kbps),
        }
    }

    /// Moves the data link with one member from an unproven path to a proven one, if one is known.
    pub(super) fn leave_detours(&mut self) {
        if self.moves_links() || self.installed.running().is_none() {
            return;
        }
        for peer in self.paths.unproven() {
            if let Some((member, rest)) = self.addresses_to_try(peer) {
                return self.begin_round(Aim::Proven, (peer, member), 0, rest);
            }
        }
    }

    pub(super) fn begin_round(
        &mut self,
        aim: Aim,
        to: (Rank, MemberId),
        kbps: u32,
        rest: Vec<SocketAddr>,
    ) {
        self.paths.begin_round(aim, to, kbps, rest);
        self.try_next();
    }

    fn path_rated(&mut self, peer: Rank, kbps: u32) {
        if let Some(member) = self.installed.member(peer) {
            self.paths.is_measured(member);
        }
        self.rated(peer, kbps);
    }

    fn try_next(&mut self) {
        let Some((view, me)) = self.installed.session().map(|e| (e.digest(), e.me())) else {
            return;
        };
        match self.paths.next(self.clock.now()) {
            Next::Dial { peer, expect, to } => {
                let dial = DataDial { view, me, peer, expect, first: None, to };
                self.data.try_path(&dial, self.handshakes.dialler());
            }
            Next::Rated(peer, kbps) => self.path_rated(peer, kbps),
            Next::Nothing => {}
        }
    }

    /// Ends the present trial without a move, and starts the next one.
    pub(super) fn drop_trial(&mut self, trial: Trial) {
        self.paths.drop_trial(self.clock.now(), trial);
        self.try_next();
    }

    /// The dial of another path has ended.
    pub(super) fn on_path(
        &mut self,
        view: ViewDigest,
        peer: Rank,
        to: SocketAddr,
        link: Option<EstablishedLink>,
    ) {
        if self.installed.of(view).is_none() || !self.paths.is_dialled(peer, to) {
            return;
        }
        let Some(established) = link else { return self.drop_trial(Trial::Failed) };
        if !self.may_move_over(peer, &established.at) {
            self.drop_trial(Trial::Unproven);
        } else if self.paths.data_path(peer).is_some_and(DataPath::may_be_moving)
            || !self.offer(peer, established, By::Me)
        {
            self.drop_trial(Trial::Failed);
        }
    }

    /// A peer has dialled another path to this node.
    pub(super) fn on_path_offered(
        &mut self,
        view: ViewDigest,
        src: Rank,
        established: EstablishedLink,
    ) {
        let is_current = self.installed.of(view).is_some_and(|e| !e.is_frozen());
        if !is_current || !self.may_move_over(src, &established.at) {
            return;
        }
        if let Some(member) = self.paths.tried(src) {
            // Both ends try another link at once: the one with the smaller node id goes on.
            if self.me.node < member.node {
                return;
            }
            self.drop_trial(Trial::Failed);
        }
        if self.offer(src, established, By::Peer) {
            self.tell_rate(src, RateStep::Ready);
        }
    }

    fn offer(&mut self, peer: Rank, established: EstablishedLink, by: By) -> bool {
        let data_path = self.paths.data_path_mut(peer);
        data_path.is_some_and(|data_path| data_path.offer(by, established))
    }

    fn may_move_over(&self, peer: Rank, at: &Addresses) -> bool {
        self.paths.data_path(peer).is_some_and(|data_path| data_path.may_move_over(at))
    }

    /// The peer confirms the link over the path on trial.
    pub(super) fn on_path_ready(&mut self, peer: Rank) {
        match self.paths.on_ready(peer) {
            Some(Aim::Proven) => self.prefer(0),
            Some(Aim::FreshKeys) => self.take_path(),
            Some(Aim::Better) | None => {}
        }
    }

    /// The links take the path on trial, which carries `kbps`: first the control link is redialled.
    fn prefer(&mut self, kbps: u32) {
        if let Some((member, to)) = self.paths.prefer(kbps)
            && !self.redial(member, vec![to])
        {
            self.drop_trial(Trial::Disturbed);
        }
    }

    /// The control link uses the path on trial: the data link follows.
    pub(super) fn take_path(&mut self) {
        if let Some(peer) = self.paths.take(self.clock.now()) {
            self.follow(peer);
        }
        self.try_next();
    }

    /// The peer now sends over the path that it offered: this node's direction follows.
    pub(super) fn on_moved(&mut self, view: ViewDigest, peer: Rank) {
        let member = self.installed.of(view).and_then(|e| e.view().member(peer)).map(|m| m.id);
        let follows =
            self.paths.data_path(peer).is_some_and(|data_path| data_path.is_offered(By::Peer));
        // If this end made the present offer, it is on trial, and the peer has only completed the
        // previous move.
        if let Some(member) = member.filter(|_| follows)
            && self.follow(peer) == Some(Moved::Elsewhere)
        {
            // This node's direction was measured over the previous path.
            self.paths.change(member);
        }
    }

    /// Moves this node's direction of a data link to the path that was offered, and reports it.
    fn follow(&mut self, peer: Rank) -> Option<Moved> {
        let data_path = self.paths.data_path_mut(peer)?;
        let (bursts, moved) = data_path.follow()?;
        let ours = data_path.at().ours;
        self.rates.measure_over(peer, bursts);
        if let Some(member) = self.installed.member(peer).filter(|_| moved == Moved::Elsewhere) {
            let interface = self.network.name_of(ours);
            self.reporter.tell_path(member, interface.unwrap_or_default());
        }
        Some(moved)
    }
}
