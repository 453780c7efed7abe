//! The messages by which members measure the View's paths and tell each other the rates.

use super::super::rates::{News, Rated, is_measured, members};
use super::ControlPlane;
use crate::identity::{MemberId, NodeId};
use crate::protocol::{
    CodingSpeed, Manner, Message, Rank, RankSet, RateMessage, RateStep, Turn, View, ViewDigest,
};
use crate::session::ViewSession;
use crate::topology::{Pair, Port, Segment};
use crate::trace;
use std::collections::BTreeSet;
use std::num::NonZeroU32;

/// The rate of a path through memory, in kbit/s. It depends on processors more than on anything
/// that could be measured in advance: 2 to 6 GB/s.
const MEMORY_KBPS: u32 = 24_000_000;

impl ControlPlane {
    /// Whether all data links are established and at least one path can be measured. The first
    /// time, starts the survey with the rates known from earlier Views.
    pub(super) fn can_measure(&mut self, session: &ViewSession) -> bool {
        let view = session.view();
        let can = self.rates.has_links_with(view.linked_with(session.me()).count())
            && self.measures_any(view);
        if can {
            self.rates.begin_survey(view, self.election.links());
        }
        can
    }

    /// A message about the rate of a path.
    pub(super) fn on_rate(&mut self, from: MemberId, message: RateMessage) {
        let Some(session) = self.session_of(message.view) else { return };
        if let Some(rank) = session.view().rank_of(from) {
            self.hear_rate(rank, message.body);
        }
    }

    /// The result of a burst that has arrived here, for the peer that sent it.
    pub(super) fn on_burst(&mut self, view: ViewDigest, peer: Rank, said: RateStep) {
        if self.installed.of(view).is_some() {
            self.tell_rate(peer, said);
        }
    }

    fn hear_rate(&mut self, from: Rank, step: RateStep) {
        let Some(session) = self.installed.session().cloned() else { return };
        match step {
            RateStep::Measure { to, turn, manner } => {
                if from != Rank(0) || manner == Manner::Before {
                    return self.expel(from);
                }
                self.measure(&session, to, turn, manner);
            }
            RateStep::Enough => {
                if let Some(bursts) =
                    self.paths.bursts_on_trial(from).or(self.rates.bursts_to(from))
                {
                    bursts.end();
                }
            }
            RateStep::Timed(kbps) => self.timed(from, kbps),
            RateStep::Ready => self.on_path_ready(from),
            RateStep::Wish { to } => self.on_wish(&session, (from, to)),
            RateStep::Rated { to, kbps, manner: Manner::Together, .. } => {
                if self.rates.on_rate_together(self.clock.now(), (from, to), kbps) {
                    self.go_on_planning();
                }
            }
            // Rank 0 does not accept rates of earlier Views from others; it has unknown paths
            // measured.
            RateStep::Rated { manner: Manner::Before, .. } if session.me() == Rank(0) => {}
            RateStep::Rated { to, kind, number, kbps, turn, coding, manner } => {
                self.note_coding(&session, from, coding);
                let (pair, port) = ((from, to), Port::unmeasured(kind, number));
                if manner == Manner::Before {
                    self.learn_rate(session.view(), pair, port, kbps);
                } else {
                    self.note_rate(&session, Rated { pair, port, kbps, turn, manner });
                }
            }
            RateStep::Shared { .. } | RateStep::Searched | RateStep::Segment { .. }
                if from != Rank(0) =>
            {
                self.expel(from);
            }
            RateStep::Searched => {
                let members = members(session.view());
                self.election.links_mut().segments_follow(&members);
                self.paths_changed();
            }
            RateStep::Shared { rank, number, cell } => {
                let Some(member) = session.view().member(rank) else { return };
                trace::debug!(%rank, number, cell, "a port shares a medium");
                self.election.links_mut().share(member.id, number, cell);
                self.paths_changed();
            }
            RateStep::Segment { near, far, there_kbps, back_kbps, is_half } => {
                let kbps = [there_kbps, back_kbps];
                self.note_segment(session.view(), [near, far], kbps, is_half);
            }
        }
    }

    /// Measures this node's path to a peer, as rank 0 asks.
    fn measure(&mut self, session: &ViewSession, to: Rank, turn: Turn, manner: Manner) {
        // The port is unknown while the control link is redialled. Rank 0 asks again.
        let Some(port) = self.port_to(session.view(), to) else { return };
        self.rates.ask(to, turn, manner);
        if session.view().member(to).is_some_and(|member| self.shares_host_with(member.id)) {
            return self.rated(to, MEMORY_KBPS);
        }
        // While other paths to the peer are tried, the rate is reported after the last trial.
        if self.paths.tried(to).is_some() {
            return;
        }
        if !is_measured(port) {
            return self.try_paths(to, 0);
        }
        match self.rates.bursts_to(to).filter(|_| session.moving() == 0) {
            Some(bursts) => bursts.begin(manner == Manner::Together),
            None => self.rated(to, 0),
        }
    }

    fn note_coding(&mut self, session: &ViewSession, rank: Rank, coding: CodingSpeed) {
        // A member that has sent no burst yet does not know its speed; an earlier run may have.
        if let Some(member) = session.view().member(rank)
            && coding != CodingSpeed::default()
        {
            self.election.links_mut().set_coding(member.id, coding);
        }
    }

    /// Takes over a path's rate from an earlier View, if no rate is known.
    fn learn_rate(&mut self, view: &View, pair: Pair, port: Port, kbps: u32) {
        let ends = view.member(pair.0).zip(view.member(pair.1));
        let (Some((from, to)), Some(kbps)) = (ends, NonZeroU32::new(kbps)) else { return };
        let links = self.election.links_mut();
        if links.path(from.id, to.id).and_then(|path| path.rate_kbps).is_none() {
            links.rate(from.id, to.id, port, kbps);
            self.paths_changed();
        }
    }

    fn note_rate(&mut self, session: &ViewSession, rated: Rated) {
        let (now, leads) = (self.clock.now(), session.me() == Rank(0));
        let links = self.election.links_mut();
        let news = self.rates.on_rate(now, leads, session.view(), links, rated);
        let Some(News { has_risen, was_awaited }) = news else { return };
        if has_risen {
            self.planner.look_again();
        }
        if was_awaited {
            self.go_on_planning();
        }
        self.paths_changed();
    }

    /// Updates the forecasts after a change of the link map, and has the rates stored.
    fn paths_changed(&mut self) {
        self.kept_paths.note(self.clock.now());
        self.renew_forecasts();
    }

    /// Notes a segment between the members of two sides. One without a member on each side, or
    /// without a rate, does not count.
    fn note_segment(&mut self, view: &View, sides: [RankSet; 2], kbps: [u32; 2], is_half: bool) {
        let side = |ranks: RankSet| -> BTreeSet<NodeId> {
            ranks.iter().filter_map(|rank| view.member(rank)).map(|member| member.id.node).collect()
        };
        let (sides, [Some(there), Some(back)]) = (sides.map(side), kbps.map(NonZeroU32::new))
        else {
            return;
        };
        if sides.iter().all(|side| !side.is_empty()) {
            trace::info!(?sides, ?kbps, is_half, "paths share a segment");
            self.election.links_mut().cross(Segment { sides, kbps: [there, back], is_half });
            self.paths_changed();
        }
    }

    /// A member reports that its path to another one has changed, or that there are untried
    /// alternatives.
    fn on_wish(&mut self, session: &ViewSession, pair: Pair) {
        let is_pair = pair.0 != pair.1 && pair.1.index() < session.view().size();
        if session.me() == Rank(0) && is_pair && self.rates.wish(self.clock.now(), pair) {
            self.planner.look_again();
        }
    }

    /// Reports the rate of a path of this node to all members, or to rank 0 only if it was measured
    /// together with others.
    pub(super) fn rated(&mut self, to: Rank, kbps: u32) {
        let Some(session) = self.installed.session() else { return };
        let Some(port) = self.port_to(session.view(), to) else { return };
        let rated = self.rates.report(to, port, kbps);
        trace::debug!(%to, kbps, ?rated, "a path was measured");
        if self.rates.is_together(to) {
            return self.tell_rate(Rank(0), rated);
        }
        self.tell_rate_to_all(rated);
    }

    /// Tells all members the shared segments and media, once everything is measured.
    pub(super) fn tell_shares(&mut self) {
        let Some(session) = self.installed.session() else { return };
        let view = session.view();
        let Some(shares) = self.rates.take_shares(view, self.election.links()) else { return };
        shares.into_iter().for_each(|shared| self.tell_rate_to_all(shared));
    }

    /// Repeats the rates of this node's paths to a member that was not there when they were sent;
    /// rank 0 also repeats the shared segments and media.
    pub(super) fn replay_rates(&mut self, to: Rank) {
        let Some(session) = self.installed.session() else { return };
        let (me, view, links) = (session.me(), session.view(), self.election.links());
        let mut said = Vec::new();
        // Rank 0 asks for missing rates itself.
        if to != Rank(0) {
            said.extend(self.rates.reports(me, view, links));
        }
        if me == Rank(0) {
            said.extend(self.rates.told_shares(view, links));
        }
        said.into_iter().for_each(|step| self.tell_rate(to, step));
    }

    fn tell_rate_to_all(&mut self, step: RateStep) {
        for rank in self.ranks_self_last() {
            self.tell_rate(rank, step);
        }
    }

    pub(super) fn tell_rate(&mut self, to: Rank, body: RateStep) {
        let Some(session) = self.installed.session() else { return };
        if to == session.me() {
            return self.hear_rate(to, body);
        }
        if let Some(member) = session.view().member(to) {
            let message = RateMessage { view: session.digest(), body };
            self.peers.send(member.id, Message::Rate(message));
        }
    }

    /// The port through which the links with a member leave this machine.
    fn port_to(&self, view: &View, to: Rank) -> Option<Port> {
        self.port_toward(view.member(to)?.id)
    }

    fn measures_any(&self, view: &View) -> bool {
        view.ranks()
            .filter(|rank| *rank != Rank(0))
            .any(|rank| self.port_to(view, rank).is_some_and(is_measured))
    }
}
