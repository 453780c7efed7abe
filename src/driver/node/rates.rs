//! Layer: Host.
//!
//! What the paths of a View carry: how it is measured, and told.

use super::Node;
use super::plans::members;
use crate::collective::Envelope;
use crate::driver::bursts::{Bursts, Traffic, with_bursts};
use crate::driver::event::Event;
use crate::election::Message;
use crate::identity::MemberId;
use crate::link::DataLink;
use crate::topology::{InterfaceKind, Pair, Port, RateMessage, RateStep, Survey};
use crate::view::{Rank, View, ViewDigest};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// How the paths of the View that is installed are measured.
#[derive(Default)]
pub(super) struct Rates {
    bursts: BTreeMap<Rank, Bursts>,
    traffic: Traffic,
    /// Of rank 0.
    survey: Option<Survey>,
    /// How often all paths were measured anew in this View.
    surveys: u32,
    /// In which of these a path was seen last.
    seen_in: BTreeMap<Pair, u32>,
    /// In which of these this node measures.
    asked_in: u32,
}

impl Rates {
    pub(super) fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// The next path to be measured, and in which survey.
    pub(super) fn next(&mut self, now: u64, is_quiet: bool) -> Option<(Rank, Rank, u32)> {
        let survey = self.survey.as_mut()?;
        survey.tick(now);
        let (from, to) = if is_quiet { survey.begin(now) } else { None }?;
        Some((from, to, self.surveys))
    }
}

impl Node {
    /// A data link of the View, as its engine gets it.
    pub(super) fn with_bursts(&mut self, view: ViewDigest, peer: Rank, link: Box<dyn DataLink>) -> Box<dyn DataLink> {
        let events = self.events.clone();
        // A full queue means the driver is far behind: what came of the burst is asked for again.
        let tell = move |said| _ = events.try_send(Event::Burst { view, peer, said });
        let (link, bursts) = with_bursts(link, &self.planning.rates.traffic, Box::new(tell));
        self.planning.rates.bursts.insert(peer, bursts);
        link
    }

    /// Whether all data links stand, and there is something to measure. Begins with what is known of earlier Views.
    pub(super) fn can_measure(&mut self, envelope: &Envelope) -> bool {
        let view = envelope.view();
        if self.planning.rates.bursts.len() + 1 < view.size() || !self.measures_any(view) {
            return false;
        }
        if self.planning.rates.survey.is_none() {
            let (links, order) = (self.election.links(), members(envelope));
            let known = |(from, to): Pair| links.path(order[from.index()], order[to.index()])?.rate_kbps.map(NonZeroU32::get);
            self.planning.rates.survey = Some(Survey::new(view.size(), known));
        }
        true
    }

    /// What is known is no longer believed.
    pub(super) fn survey_anew(&mut self) {
        let Some(envelope) = self.envelope.clone() else { return };
        self.planning.rates.surveys = self.planning.rates.surveys.saturating_add(1);
        self.election.links_mut().forget_rates(&members(&envelope));
        self.planning.rates.survey = Some(Survey::new(envelope.view().size(), |_| None));
    }

    /// A member speaks about what a path carries.
    pub(super) fn on_rate(&mut self, from: MemberId, message: RateMessage) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.digest() == message.view) else { return };
        if let Some(rank) = envelope.view().rank_of(from) {
            self.hear_rate(rank, message.body);
        }
    }

    /// A burst has come here over a data link.
    pub(super) fn on_burst(&mut self, view: ViewDigest, peer: Rank, said: RateStep) {
        if self.envelope.as_ref().is_some_and(|e| e.digest() == view) {
            self.tell_rate(peer, said);
        }
    }

    fn hear_rate(&mut self, from: Rank, step: RateStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        match step {
            RateStep::Measure { to, survey } => {
                if from != Rank(0) {
                    return self.expel(from);
                }
                self.planning.rates.asked_in = survey;
                let measures = self.port_to(envelope.view(), to).is_some_and(is_measured);
                match self.planning.rates.bursts.get(&to).filter(|_| measures && envelope.moving() == 0) {
                    Some(bursts) => bursts.begin(),
                    None => self.rated(to, 0),
                }
            }
            RateStep::Enough => {
                if let Some(bursts) = self.planning.rates.bursts.get(&from) {
                    bursts.end();
                }
            }
            RateStep::Timed(kbps) => self.rated(from, kbps),
            RateStep::Rated { to, kind, number, kbps, survey } => {
                self.note_rate(&envelope, (from, to), Port::unmeasured(kind, number), kbps, survey);
            }
        }
    }

    fn note_rate(&mut self, envelope: &Envelope, pair: Pair, port: Port, kbps: u32, survey: u32) {
        let (order, now, rates) = (members(envelope), self.now(), &mut self.planning.rates);
        let (Some(from), Some(to)) = (order.get(pair.0.index()).copied(), order.get(pair.1.index()).copied()) else { return };
        // Rank 0 counts them, and takes nobody's word for it.
        let survey = if envelope.me() == Rank(0) { survey.min(rates.surveys) } else { survey };
        let links = self.election.links_mut();
        if survey > rates.surveys {
            rates.surveys = survey;
            links.forget_rates(&order);
        }
        if let Some(kbps) = NonZeroU32::new(kbps) {
            // A burst can show too little, but never too much.
            let again = rates.seen_in.insert(pair, survey) == Some(survey);
            let before = links.path(from, to).and_then(|path| path.rate_kbps).filter(|_| again);
            links.rate(from, to, port, before.map_or(kbps, |before| before.max(kbps)));
        }
        if let Some(ours) = &mut rates.survey {
            if !is_measured(port) {
                ours.leave(pair);
            }
            if ours.on_rate(now, pair, kbps) && kbps > 0 {
                self.go_on_planning();
            }
        }
        self.renew_forecasts();
    }

    /// Tells everybody what a path of this node carries.
    fn rated(&mut self, to: Rank, kbps: u32) {
        let Some(envelope) = self.envelope.clone() else { return };
        let port = self.port_to(envelope.view(), to).unwrap_or(Port::unmeasured(InterfaceKind::Other, 0));
        tracing::debug!(%to, kbps, "a path was measured");
        let (kbps, survey) = (kbps.min(KBPS_MAX), self.planning.rates.asked_in);
        let rated = RateStep::Rated { to, kind: port.kind, number: port.number, kbps, survey };
        // This node last: what it says to itself it hears at once.
        envelope.view().ranks().filter(|rank| *rank != envelope.me()).for_each(|rank| self.tell_rate(rank, rated));
        self.tell_rate(envelope.me(), rated);
    }

    pub(super) fn tell_rate(&mut self, to: Rank, body: RateStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        if to == envelope.me() {
            return self.hear_rate(to, body);
        }
        if let Some(member) = envelope.view().member(to) {
            self.peers.send(member.id, Message::Rate(RateMessage { view: envelope.digest(), body }));
        }
    }

    /// Where the link to a member leaves this machine.
    fn port_to(&self, view: &View, to: Rank) -> Option<Port> {
        let link = self.peers.get(view.member(to)?.id)?;
        Some(self.port_of(link.local?.ip()))
    }

    fn measures_any(&self, view: &View) -> bool {
        view.ranks().filter(|rank| *rank != Rank(0)).any(|rank| self.port_to(view, rank).is_some_and(is_measured))
    }
}

/// Inside one machine nothing is shaped by a wire, and of a tunnel nobody knows what it shares.
fn is_measured(port: Port) -> bool {
    matches!(port.kind, InterfaceKind::Ethernet | InterfaceKind::Wifi | InterfaceKind::Thunderbolt | InterfaceKind::Bridge)
}

/// What is faster depends on processors more than on wires, and differs by chance.
const KBPS_MAX: u32 = 8_000_000;
