//! Measuring the rates of the View's paths, and reporting them to all members.

use super::Node;
use crate::identity::MemberId;
use crate::node::coding_speed;
use crate::os::InterfaceKind;
use crate::protocol::{
    CodingSpeed, Manner, Message, Rank, RateMessage, RateStep, Turn, View, ViewDigest,
};
use crate::session::Envelope;
use crate::topology::{Pair, Port, Survey};
use crate::trace;
use std::num::NonZeroU32;

impl Node {
    /// Whether all data links are established and at least one path can be measured. The first
    /// time, starts the survey with the rates known from earlier Views.
    pub(super) fn can_measure(&mut self, envelope: &Envelope) -> bool {
        let view = envelope.view();
        if self.planning.rates.bursts.len() < view.linked_with(envelope.me()).count()
            || !self.measures_any(view)
        {
            return false;
        }
        if self.planning.rates.survey.is_none() {
            let (links, order) = (self.election.links(), members(envelope));
            let known = |(from, to): Pair| {
                links.path(order[from.index()], order[to.index()])?.rate_kbps.map(NonZeroU32::get)
            };
            let mut survey = Survey::new(view.size(), known).without(&view.apart);
            for (rank, from) in view.ranks().zip(&order) {
                let shares = |to: &MemberId| {
                    links.path(*from, *to).is_some_and(|path| path.port.cell.is_some())
                };
                if order.iter().any(shares) {
                    survey.is_radio(rank);
                }
            }
            self.planning.rates.survey = Some(survey);
        }
        true
    }

    /// Discards all rates of the View's paths and measures them again.
    pub(super) fn survey_anew(&mut self) {
        let Some(envelope) = self.envelope.clone() else { return };
        self.planning.rates.surveys = self.planning.rates.surveys.saturating_add(1);
        self.election.links_mut().forget_rates(&members(&envelope));
        self.planning.rates.again.clear();
        self.planning.rates.survey =
            Some(Survey::new(envelope.view().size(), |_| None).without(&envelope.view().apart));
        self.planning.rates.stations_told = false;
    }

    /// A message about the rate of a path.
    pub(super) fn on_rate(&mut self, from: MemberId, message: RateMessage) {
        let Some(envelope) = self.envelope_of(message.view) else { return };
        if let Some(rank) = envelope.view().rank_of(from) {
            self.hear_rate(rank, message.body);
        }
    }

    /// The result of a burst that has arrived here, for the peer that sent it.
    pub(super) fn on_burst(&mut self, view: ViewDigest, peer: Rank, said: RateStep) {
        if self.envelope.as_ref().is_some_and(|e| e.digest() == view) {
            self.tell_rate(peer, said);
        }
    }

    fn hear_rate(&mut self, from: Rank, step: RateStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        match step {
            RateStep::Measure { to, turn, manner } => {
                if from != Rank(0) || manner == Manner::Before {
                    return self.expel(from);
                }
                // The port is unknown while the control link is redialled. Rank 0 asks again.
                let Some(port) = self.port_to(envelope.view(), to) else { return };
                self.planning.rates.asked.insert(to, (turn, manner));
                if self.is_trying(to) {
                    return;
                }
                if !is_measured(port) {
                    return self.try_ways(to, 0);
                }
                match self.planning.rates.bursts.get(&to).filter(|_| envelope.moving() == 0) {
                    Some(bursts) => bursts.begin(manner == Manner::Together),
                    None => self.rated(to, 0),
                }
            }
            RateStep::Enough => {
                if let Some(bursts) =
                    self.bursts_on_trial(from).or(self.planning.rates.bursts.get(&from))
                {
                    bursts.end();
                }
            }
            RateStep::Timed(kbps) => self.timed(from, kbps),
            RateStep::Ready => self.on_path_ready(from),
            RateStep::Wish { to } => self.on_wish(&envelope, (from, to)),
            RateStep::Rated { to, kbps, manner: Manner::Together, .. } => {
                let now = self.now();
                if self
                    .planning
                    .rates
                    .survey
                    .as_mut()
                    .is_some_and(|survey| survey.on_rate_together(now, (from, to), kbps))
                {
                    self.go_on_planning();
                }
            }
            RateStep::Rated {
                to,
                kind,
                number,
                kbps,
                turn,
                coding,
                manner: manner @ (Manner::Alone | Manner::Spare),
            } => {
                self.note_coding(&envelope, from, coding);
                self.note_rate(
                    &envelope,
                    (from, to),
                    Port::unmeasured(kind, number),
                    kbps,
                    turn,
                    manner,
                );
            }
            // Rank 0 does not accept rates of earlier Views from others; it has unknown paths
            // measured.
            RateStep::Rated { manner: Manner::Before, .. } if envelope.me() == Rank(0) => {}
            RateStep::Rated { to, kind, number, kbps, coding, manner: Manner::Before, .. } => {
                self.note_coding(&envelope, from, coding);
                self.learn_rate(&envelope, (from, to), Port::unmeasured(kind, number), kbps);
            }
            RateStep::Shared { .. } if from != Rank(0) => self.expel(from),
            RateStep::Shared { rank, number, cell } => {
                let Some(member) = envelope.view().member(rank) else { return };
                trace::debug!(%rank, number, cell, "a port shares a medium");
                self.election.links_mut().share(member.id, number, cell);
                self.renew_forecasts();
            }
        }
    }

    fn note_coding(&mut self, envelope: &Envelope, rank: Rank, coding: CodingSpeed) {
        if let Some(member) = envelope.view().member(rank) {
            self.election.links_mut().set_coding(member.id, coding);
        }
    }

    /// Takes over a path's rate from an earlier View, if no rate is known.
    fn learn_rate(&mut self, envelope: &Envelope, pair: Pair, port: Port, kbps: u32) {
        let order = members(envelope);
        let ends = order.get(pair.0.index()).copied().zip(order.get(pair.1.index()).copied());
        let (Some((from, to)), Some(kbps)) = (ends, NonZeroU32::new(kbps)) else { return };
        let links = self.election.links_mut();
        if links.path(from, to).and_then(|path| path.rate_kbps).is_none() {
            links.rate(from, to, port, kbps);
            self.renew_forecasts();
        }
    }

    fn note_rate(
        &mut self,
        envelope: &Envelope,
        pair: Pair,
        port: Port,
        kbps: u32,
        turn: Turn,
        manner: Manner,
    ) {
        let (order, now, rates) = (members(envelope), self.now(), &mut self.planning.rates);
        let (Some(from), Some(to)) =
            (order.get(pair.0.index()).copied(), order.get(pair.1.index()).copied())
        else {
            return;
        };
        // Rank 0 counts the surveys itself, and accepts no higher number from others.
        let survey =
            if envelope.me() == Rank(0) { turn.survey.min(rates.surveys) } else { turn.survey };
        let links = self.election.links_mut();
        if survey > rates.surveys {
            rates.surveys = survey;
            links.forget_rates(&order);
        }
        if envelope.me() == Rank(0) && turn < rates.turn_of(pair) {
            // Requested before the path changed.
            return;
        }
        let known = links.path(from, to);
        if let Some(kbps) = NonZeroU32::new(kbps) {
            // A burst may show too low a rate, never too high a one. So a repeated measurement in
            // the same turn, or a spare one, can only raise the rate of a port. Any other
            // measurement replaces the rate, because that is in doubt.
            let again = manner == Manner::Spare || rates.seen_in.insert(pair, turn) == Some(turn);
            let before = known
                .filter(|path| again && path.port.number == port.number)
                .and_then(|path| path.rate_kbps);
            links.rate(from, to, port, before.map_or(kbps, |before| before.max(kbps)));
        }
        if let Some(ours) = &mut rates.survey {
            if !is_measured(port) {
                ours.leave(pair);
            }
            if port.cell.is_some() {
                ours.is_radio(pair.0);
            }
            let was_awaited = ours.on_rate(now, pair, kbps);
            if ours.has_risen() {
                rates.stations_told = false;
                self.planning.look_again();
            }
            if was_awaited && kbps > 0 {
                self.go_on_planning();
            }
        }
        self.renew_forecasts();
    }

    /// A member reports that its path to another one has changed, or that there are untried
    /// alternatives.
    fn on_wish(&mut self, envelope: &Envelope, pair: Pair) {
        let (now, rates) = (self.now(), &mut self.planning.rates);
        let is_pair = pair.0 != pair.1 && pair.1.index() < envelope.view().size();
        let lately = rates.wished.get(&pair).is_some_and(|at| now < at + WISHES_APART_MS);
        if envelope.me() == Rank(0) && is_pair && !lately {
            rates.wished.insert(pair, now);
            rates.measure_again(pair);
            self.planning.look_again();
        }
    }

    /// Reports the rate of a path of this node to all members; for an exchange, to rank 0 only.
    pub(super) fn rated(&mut self, to: Rank, kbps: u32) {
        let Some(envelope) = self.envelope.clone() else { return };
        let Some(port) = self.port_to(envelope.view(), to) else { return };
        let (turn, manner) = self.planning.rates.asked.get(&to).copied().unwrap_or_default();
        trace::debug!(%to, kbps, ?manner, "a path was measured");
        let (kbps, coding) = (kbps.min(KBPS_MAX), coding_speed::known());
        let rated = RateStep::Rated {
            to,
            kind: port.kind,
            number: port.number,
            kbps,
            turn,
            coding,
            manner,
        };
        if manner == Manner::Together {
            return self.tell_rate(Rank(0), rated);
        }
        // This node last: it handles its own message at once.
        envelope
            .view()
            .ranks()
            .filter(|rank| *rank != envelope.me())
            .for_each(|rank| self.tell_rate(rank, rated));
        self.tell_rate(envelope.me(), rated);
    }

    /// Whether this node's burst to the peer runs together with one in the other direction.
    pub(super) fn is_exchange(&self, peer: Rank) -> bool {
        self.planning.rates.asked.get(&peer).is_some_and(|(_, manner)| *manner == Manner::Together)
    }

    /// Tells all members which ports share a medium, once everything is measured.
    pub(super) fn tell_stations(&mut self) {
        let rates = &mut self.planning.rates;
        let is_known = rates.survey.as_ref().is_some_and(Survey::is_over);
        let Some(envelope) = self.envelope.clone().filter(|_| is_known) else { return };
        if std::mem::replace(&mut rates.stations_told, true) {
            return;
        }
        for shared in self.stations(&envelope) {
            // This node last: it handles its own message at once.
            envelope
                .view()
                .ranks()
                .filter(|to| *to != Rank(0))
                .for_each(|to| self.tell_rate(to, shared));
            self.tell_rate(Rank(0), shared);
        }
    }

    fn stations(&self, envelope: &Envelope) -> Vec<RateStep> {
        let (links, order) = (self.election.links(), members(envelope));
        let stations = self.planning.rates.survey().map_or_else(Vec::new, Survey::stations);
        let shared = stations.into_iter().filter_map(|((rank, partner), cell)| {
            let number = links.path(order[rank.index()], order[partner.index()])?.port.number;
            Some(RateStep::Shared { rank, number, cell })
        });
        shared.collect()
    }

    /// Repeats the rates of this node's paths to a member that was not there when they were sent;
    /// rank 0 also repeats which ports share a medium.
    pub(super) fn replay_rates(&mut self, to: Rank) {
        let Some(envelope) = self.envelope.clone() else { return };
        let (me, order, links) = (envelope.me(), members(&envelope), self.election.links());
        let known = |peer: Rank| {
            let path = links.path(order[me.index()], order[peer.index()])?;
            let (kind, number, kbps) = (path.port.kind, path.port.number, path.rate_kbps?.get());
            let here = self.planning.rates.seen_in.get(&(me, peer));
            let (turn, manner) =
                here.map_or((Turn::default(), Manner::Before), |turn| (*turn, Manner::Alone));
            Some(RateStep::Rated {
                to: peer,
                kind,
                number,
                kbps,
                turn,
                coding: coding_speed::known(),
                manner,
            })
        };
        // Rank 0 asks for missing rates itself.
        let mut said: Vec<RateStep> = if to == Rank(0) {
            Vec::new()
        } else {
            envelope.view().ranks().filter_map(known).collect()
        };
        if me == Rank(0) && self.planning.rates.stations_told {
            said.extend(self.stations(&envelope));
        }
        said.into_iter().for_each(|step| self.tell_rate(to, step));
    }

    pub(super) fn tell_rate(&mut self, to: Rank, body: RateStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        if to == envelope.me() {
            return self.hear_rate(to, body);
        }
        if let Some(member) = envelope.view().member(to) {
            self.peers
                .send(member.id, Message::Rate(RateMessage { view: envelope.digest(), body }));
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

/// Whether paths through this port are measured: loopback is not limited by a wire, and the medium
/// below a tunnel is unknown.
fn is_measured(port: Port) -> bool {
    matches!(
        port.kind,
        InterfaceKind::Ethernet
            | InterfaceKind::Wifi
            | InterfaceKind::Thunderbolt
            | InterfaceKind::Bridge
    )
}

/// Minimum interval between two wishes for one pair; earlier ones are ignored.
const WISHES_APART_MS: u64 = 1_000;
/// Highest reported rate. Above it the rate depends on processors more than on wires, and varies at
/// random.
const KBPS_MAX: u32 = 8_000_000;

/// The members of the View, in rank order.
pub(super) fn members(envelope: &Envelope) -> Vec<MemberId> {
    envelope.view().members.iter().map(|member| member.id).collect()
}
