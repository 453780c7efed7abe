//! Layer: Host.
//!
//! How a View gets a plan that fits its links: what its paths carry is measured while nothing else goes on, and rank 0 brings the plan.

use super::Node;
use crate::collective::{PlanMessage, PlanStep, Revising};
use crate::driver::bursts::{Bursts, Traffic, with_bursts};
use crate::driver::event::Event;
use crate::election::Message;
use crate::identity::MemberId;
use crate::link::DataLink;
use crate::status::Forecast;
use crate::topology::{InterfaceKind, Pair, Plan, Port, RateMessage, RateStep, Survey, better_plan, forecasts_us};
use crate::view::{Rank, View, ViewDigest};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// What is under way in the View that is installed.
#[derive(Default)]
pub(super) struct Planning {
    bursts: BTreeMap<Rank, Bursts>,
    traffic: Traffic,
    /// Of rank 0.
    survey: Option<Survey>,
    /// Of rank 0: a plan that is being agreed on.
    revising: Option<Revising>,
    /// The highest revision there was.
    revision: u32,
    /// Nothing went on when it was last looked.
    was_idle: bool,
    forecasts: Vec<Forecast>,
    /// How much was known when a plan was last looked for.
    looked: Looked,
}

/// When a plan was last looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Looked {
    #[default]
    Never,
    /// All ports had been measured.
    AtThePorts,
    /// All paths had.
    AtThePaths,
}

impl Planning {
    pub(super) fn of(view: &View) -> Planning {
        Planning { revision: view.plan.revision, ..Planning::default() }
    }

    pub(super) fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }
}

impl Node {
    /// A data link of the View, as its engine gets it.
    pub(super) fn with_bursts(&mut self, view: ViewDigest, peer: Rank, link: Box<dyn DataLink>) -> Box<dyn DataLink> {
        let events = self.events.clone();
        // A full queue means the driver is far behind: what came of the burst is asked for again.
        let tell = move |said| _ = events.try_send(Event::Burst { view, peer, said });
        let (link, bursts) = with_bursts(link, &self.planning.traffic, Box::new(tell));
        self.planning.bursts.insert(peer, bursts);
        link
    }

    /// Measures on, and looks for a better plan when enough is known. Rank 0 alone does.
    pub(super) fn go_on_planning(&mut self) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.me() == Rank(0) && e.view().size() > 2 && !e.is_frozen()) else {
            return;
        };
        let was_idle = std::mem::replace(&mut self.planning.was_idle, envelope.in_flight() == 0);
        let all_linked = self.planning.bursts.len() + 1 == envelope.view().size();
        if self.planning.revising.is_some() || !all_linked || !self.measures_to(envelope.view()) {
            return;
        }
        let now = self.now();
        if self.planning.survey.is_none() {
            self.planning.survey = Some(self.survey(envelope.view()));
        }
        let is_idle = self.planning.was_idle && was_idle;
        let Some(survey) = &mut self.planning.survey else { return };
        survey.tick(now);
        if let Some((from, to)) = if is_idle { survey.begin(now) } else { None } {
            tracing::debug!(%from, %to, "measures a path");
            self.tell_rate(from, RateStep::Measure(to));
        }
        self.look_for_a_plan();
    }

    fn survey(&self, view: &View) -> Survey {
        let links = self.election.links();
        let id = |rank| view.member(rank).map(|member| member.id);
        let known = |(from, to): Pair| links.path(id(from)?, id(to)?)?.rate_kbps.map(NonZeroU32::get);
        Survey::new(view.size(), known)
    }

    /// Once when all ports are measured, and once when all paths are.
    fn look_for_a_plan(&mut self) {
        let Some(envelope) = self.envelope.clone() else { return };
        let Some(survey) = &self.planning.survey else { return };
        let known = match (survey.is_good_for_a_plan(), survey.is_over()) {
            (_, true) => Looked::AtThePaths,
            (true, false) => Looked::AtThePorts,
            (false, false) => return,
        };
        if known <= self.planning.looked || !envelope.can_be_revised() {
            return;
        }
        self.planning.looked = known;
        let order: Vec<MemberId> = envelope.view().members.iter().map(|member| member.id).collect();
        if let Some(plan) = better_plan(&order, self.election.links(), &envelope.plan()) {
            self.planning.revision += 1;
            self.propose_plan(Plan { revision: self.planning.revision, ..plan });
        }
    }

    fn propose_plan(&mut self, plan: Plan) {
        let Some(envelope) = &self.envelope else { return };
        tracing::info!(revision = plan.revision, reason = plan.reason, "proposes another plan");
        self.planning.revising = Some(Revising::new(plan.clone(), envelope.view().size()));
        self.tell_plan_to_all(&PlanStep::Propose(Box::new(plan)));
    }

    /// Rank 0 and a member speak about a plan.
    pub(super) fn on_plan(&mut self, from: MemberId, message: &PlanMessage) {
        let Some(envelope) = self.envelope.clone().filter(|e| e.digest() == message.view) else { return };
        let Some(rank) = envelope.view().rank_of(from) else { return };
        self.hear_plan_step(rank, &message.body);
    }

    fn hear_plan_step(&mut self, from: Rank, step: &PlanStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        let answer = match step {
            PlanStep::Propose(plan) if from == Rank(0) => envelope.hold(plan),
            PlanStep::Switch { revision, first } if from == Rank(0) => {
                let answer = envelope.switch(*revision, first.as_deref());
                let plan = envelope.plan();
                tracing::info!(revision = plan.revision, reason = plan.reason, "goes by this plan");
                self.renew_forecasts();
                answer
            }
            PlanStep::Held { revision, next } => {
                let switch = self.planning.revising.as_mut().and_then(|r| r.on_held(from, *revision, next.clone()));
                return switch.into_iter().for_each(|switch| self.tell_plan_to_all(&switch));
            }
            PlanStep::Switched { revision } => {
                if let Some(revising) = &mut self.planning.revising {
                    revising.on_switched(from, *revision);
                }
                self.planning.revising.take_if(|revising| revising.is_over());
                return;
            }
            PlanStep::Propose(_) | PlanStep::Switch { .. } => return self.expel(from),
        };
        match answer {
            Ok(answer) => self.tell_plan(Rank(0), &answer),
            Err(_) => self.expel(from),
        }
    }

    fn tell_plan_to_all(&mut self, step: &PlanStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        envelope.view().ranks().for_each(|rank| self.tell_plan(rank, step));
    }

    /// What this node has to say to itself it hears at once.
    fn tell_plan(&mut self, to: Rank, step: &PlanStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        if to == envelope.me() {
            return self.hear_plan_step(to, step);
        }
        if let Some(member) = envelope.view().member(to) {
            let message = PlanMessage { view: envelope.digest(), body: step.clone() };
            self.peers.send(member.id, Message::Plan(Box::new(message)));
        }
    }

    /// What a member must hear again whose link was down.
    pub(super) fn replay_plan(&mut self, to: Rank) {
        let steps = self.planning.revising.as_ref().map_or_else(Vec::new, Revising::replay);
        steps.iter().for_each(|step| self.tell_plan(to, step));
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
        let id = |rank| envelope.view().member(rank).map(|member| member.id);
        match step {
            RateStep::Measure(to) => match self.planning.bursts.get(&to).filter(|_| envelope.in_flight() == 0) {
                Some(bursts) if from == Rank(0) && self.port_to(envelope.view(), to).is_some_and(is_measured) => bursts.begin(),
                _ => self.rated(to, 0),
            },
            RateStep::Enough => {
                if let Some(bursts) = self.planning.bursts.get(&from) {
                    bursts.end();
                }
            }
            RateStep::Timed(kbps) => self.rated(from, kbps),
            RateStep::Rated { to, kind, number, kbps } => {
                let port = Port::unmeasured(kind, number);
                if let (Some(sender), Some(receiver), Some(kbps)) = (id(from), id(to), NonZeroU32::new(kbps)) {
                    self.election.links_mut().rate(sender, receiver, port, kbps);
                    self.renew_forecasts();
                }
                let now = self.now();
                let Some(survey) = &mut self.planning.survey else { return };
                if !is_measured(port) {
                    survey.leave((from, to));
                }
                if survey.on_rate(now, (from, to), kbps) && kbps > 0 {
                    self.go_on_planning();
                }
            }
        }
    }

    /// What the plan promises, by what is known now.
    pub(super) fn renew_forecasts(&mut self) {
        let Some(envelope) = &self.envelope else { return };
        let order: Vec<MemberId> = envelope.view().members.iter().map(|member| member.id).collect();
        let takes = |us: f64| Duration::from_secs_f64(us / 1e6);
        let forecasts = forecasts_us(&order, self.election.links(), &envelope.plan(), FORECAST_BYTES);
        self.planning.forecasts = forecasts.into_iter().map(|(bytes, us)| Forecast { bytes, takes: takes(us) }).collect();
    }

    /// Tells everybody what a path of this node carries.
    fn rated(&mut self, to: Rank, kbps: u32) {
        let Some(envelope) = self.envelope.clone() else { return };
        let port = self.port_to(envelope.view(), to).unwrap_or(Port::unmeasured(InterfaceKind::Other, 0));
        tracing::debug!(%to, kbps, "a path was measured");
        let rated = RateStep::Rated { to, kind: port.kind, number: port.number, kbps: kbps.min(KBPS_MAX) };
        envelope.view().ranks().for_each(|rank| self.tell_rate(rank, rated));
    }

    fn tell_rate(&mut self, to: Rank, body: RateStep) {
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

    fn measures_to(&self, view: &View) -> bool {
        view.ranks().filter(|rank| *rank != Rank(0)).any(|rank| self.port_to(view, rank).is_some_and(is_measured))
    }
}

/// Inside one machine nothing is shaped by a wire, and of a tunnel nobody knows what it shares.
fn is_measured(port: Port) -> bool {
    matches!(port.kind, InterfaceKind::Ethernet | InterfaceKind::Wifi | InterfaceKind::Thunderbolt | InterfaceKind::Bridge)
}

/// For which the plan's promise is told.
const FORECAST_BYTES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];
/// What is faster depends on processors more than on wires, and differs by chance.
const KBPS_MAX: u32 = 8_000_000;
