//! How a View gets a plan that fits its links: rank 0 has the links measured while no operation
//! runs, and proposes the plan.
//!
//! If there are no idle moments, or operations take longer than the plan predicts, rank 0 creates
//! one. A change of the plan holds all calls anyway, so they are held until the ports are measured:
//! while bursts give a rate at least every three seconds, and for at most ten seconds after the
//! last running operation has ended.
//!
//! Gloo's schedules follow the ranks, whatever the links are. If trees suit the links much better,
//! the plan names trees, and with them the native engine.

use super::Node;
pub(super) use super::planning::{Change, Looked, Signs};
use super::rates::members;
use crate::collective::Revising;
use crate::identity::MemberId;
use crate::protocol::{EngineKind, Manner, Message, Plan, PlanMessage, PlanStep, Rank, RateStep};
use crate::report::Forecast;
use crate::session::Envelope;
use crate::topology::{
    LinkMap, Probe, Survey, Watch, best_plan, better_plan, forecasts_us, with_better_codecs,
};
use crate::trace;
use std::sync::Arc;
use std::time::Duration;

impl Node {
    /// Continues measuring, and searches for a better plan when enough is known. Does nothing
    /// except on rank 0.
    pub(super) fn go_on_planning(&mut self) {
        let leads = |e: &Arc<Envelope>| e.me() == Rank(0) && e.view().size() > 1 && !e.is_frozen();
        let Some(envelope) = self.envelope.clone().filter(leads) else { return };
        if envelope.asks_for_codecs()
            && !std::mem::replace(&mut self.planning.asked_for_codecs, true)
        {
            self.planning.looked = Looked::Never;
        }
        if !self.can_measure(&envelope) {
            return;
        }
        self.watch_the_plan(&envelope);
        let was_idle = std::mem::replace(&mut self.planning.was_idle, envelope.in_flight() == 0)
            && self.planning.was_idle;
        let is_quiet = match &self.planning.change {
            Some(change) if change.revising.is_held() => envelope.moving() == 0,
            Some(_) => false,
            None => was_idle,
        };
        let may_spare = self.planning.change.is_none() && self.has_choice(&envelope);
        self.measure_on(is_quiet, may_spare);
        if self.planning.change.is_some() {
            self.decide_plan();
        } else if !self.look_for_a_plan(&envelope) && self.is_busy(&envelope) {
            self.hold_all(None);
        }
    }

    /// Whether calls should be held for measuring: there were no idle moments for a while, much
    /// data was sent, and the best plan or a changed path is unknown.
    fn is_busy(&self, envelope: &Envelope) -> bool {
        // Two members have only one schedule; only another path or another codec can help them.
        let depends = envelope.view().size() > 2 || self.planning.asked_for_codecs;
        let has_no_plan = |survey: &Survey| depends && !survey.knows_the_ports();
        let is_unknown =
            self.has_choice(envelope) && self.planning.rates.survey().is_some_and(has_no_plan);
        let is_worth_it = || envelope.backend().traffic().sent_bytes >= BUSY_BYTES;
        (is_unknown || self.planning.rates.is_wished())
            && self.now() >= self.planning.pause_from
            && is_worth_it()
    }

    /// Measures again when operations take longer than predicted.
    fn watch_the_plan(&mut self, envelope: &Envelope) {
        let served = envelope.take_served();
        self.planning.rates.note_served(served.iter().map(|(_, took)| *took).sum());
        if self.planning.change.is_some()
            || served.is_empty()
            || !self.has_choice(envelope)
            || envelope.view().size() < 3
        {
            return;
        }
        let (order, now, plan) = (members(envelope), self.now(), envelope.plan());
        // The forecast is by bandwidth alone, from the slope between two large sizes: operations
        // overlap, and the time that they wait for each other is not due to the links.
        let [(small, small_us), (large, large_us)] =
            forecasts_us(&order, self.election.links(), &plan, [GIB, 2 * GIB])[..]
        else {
            return;
        };
        let us_of_a_byte = (large_us - small_us) / (large - small) as f64;
        for (bytes, took) in served.into_iter().filter(|(bytes, _)| *bytes >= Watch::BYTES_MIN) {
            let us = bytes as f64 * us_of_a_byte;
            if self.planning.watch.note(now, us, took.as_secs_f64() * 1e6) {
                trace::info!(
                    bytes,
                    ?took,
                    forecast_us = us,
                    "operations take longer than foretold; measures the links again"
                );
                self.survey_anew();
                self.planning.looked = Looked::Never;
                return self.hold_all(None);
            }
        }
    }

    /// Searches once when all ports are measured, and once when all paths are. Returns whether a
    /// plan was found and proposed.
    fn look_for_a_plan(&mut self, envelope: &Envelope) -> bool {
        let Some(survey) =
            self.planning.rates.survey().filter(|_| self.planning.looked < Looked::AtThePaths)
        else {
            return false;
        };
        let known = match (survey.is_good_for_a_plan(), survey.is_over()) {
            (_, true) => Looked::AtThePaths,
            (true, false) => Looked::AtThePorts,
            (false, false) => return false,
        };
        if known <= self.planning.looked || !self.has_choice(envelope) {
            return false;
        }
        self.planning.looked = known;
        let has_stations = !survey.stations().is_empty();
        let plan = self.better_plan(envelope).or_else(|| {
            // If a medium turned out to be shared, the present plan's promise is wrong even if the
            // plan remains the best one; then the same plan with a new reason is proposed.
            let is_wrong = known == Looked::AtThePaths && has_stations && can_be_revised(envelope);
            let best = is_wrong.then(|| {
                best_plan(&members(envelope), &self.data_links(envelope), has_gloo(envelope))
            });
            best.filter(|best| best.reason != envelope.plan().reason)
        });
        let is_better = plan.is_some();
        if is_better {
            self.hold_all(plan);
        }
        is_better
    }

    /// Whether another plan, or at least other codecs, can be chosen.
    fn has_choice(&self, envelope: &Envelope) -> bool {
        envelope.view().size() > 2 && can_be_revised(envelope) || self.planning.asked_for_codecs
    }

    /// A better plan, or the present one with better codecs.
    fn better_plan(&self, envelope: &Envelope) -> Option<Plan> {
        let (order, links, present) =
            (members(envelope), self.data_links(envelope), envelope.plan());
        let other = if can_be_revised(envelope) {
            better_plan(&order, &links, &present, has_gloo(envelope))
        } else {
            None
        };
        other.or_else(|| {
            self.planning.asked_for_codecs.then(|| with_better_codecs(&order, &links, &present))?
        })
    }

    /// Makes all members hold their calls: for this plan, or until one is found.
    fn hold_all(&mut self, plan: Option<Plan>) {
        let Some(envelope) = self.envelope.clone() else { return };
        // A proposer may have used the largest revision in its plan.
        let Some(revision) = self.planning.revision.checked_add(1) else { return };
        self.planning.revision = revision;
        let (now, revising) = (self.now(), Revising::new(revision, envelope.view().size()));
        let hold = revising.hold();
        trace::debug!(revision, known = plan.is_some(), "calls are held for another plan");
        self.planning.pause_from = now + PAUSES_APART_MS;
        let (until, until_at_most) = (now + PAUSE_MS, now + DRAIN_MS);
        let signs = self.signs(&envelope);
        self.planning.rates.calls_are_held(now);
        self.planning.change = Some(Change { revising, plan, until, until_at_most, signs });
        self.tell_plan_to_all(&hold);
    }

    fn signs(&self, envelope: &Envelope) -> Signs {
        let received_bytes = envelope.backend().traffic().received_bytes;
        let bursts = self.planning.rates.survey().map_or(0, Survey::told);
        Signs { received_bytes, under_way: envelope.moving(), bursts }
    }

    /// Once all members hold: proposes the plan if it is known, or if the time for measuring is
    /// over.
    fn decide_plan(&mut self) {
        let Some(envelope) = self.envelope.clone() else { return };
        let (now, signs) = (self.now(), self.signs(&envelope));
        let Some(change) = self.planning.change.as_mut().filter(|change| change.revising.is_held())
        else {
            return;
        };
        if std::mem::replace(&mut change.signs, signs) != signs {
            change.until = now + PAUSE_MS;
        }
        if signs.under_way == 0 {
            change.until_at_most = change.until_at_most.min(now + MEASURING_MS);
        }
        let is_over = now >= change.until.min(change.until_at_most);
        let survey = self.planning.rates.survey();
        let is_unknown = survey.is_some_and(|survey| !survey.is_good_for_a_plan())
            || self.planning.rates.is_wished();
        if change.plan.is_none() && !is_over && is_unknown {
            return;
        }
        let known = change.plan.take();
        let plan = known.or_else(|| self.better_plan(&envelope));
        if plan.is_some() {
            self.planning.watch.was_right();
        }
        let Some(change) = &mut self.planning.change else { return };
        let switch = change.revising.decide(plan);
        self.tell_plan_to_all(&switch);
    }

    /// A message of the plan protocol between rank 0 and a member.
    pub(super) fn on_plan(&mut self, from: MemberId, message: &PlanMessage) {
        let Some(envelope) = self.envelope_of(message.view) else { return };
        let Some(rank) = envelope.view().rank_of(from) else { return };
        self.hear_plan_step(rank, &message.body);
    }

    fn hear_plan_step(&mut self, from: Rank, step: &PlanStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        let answer = match step {
            PlanStep::Hold { revision } if from == Rank(0) => envelope.hold(*revision),
            PlanStep::Switch { revision, to } if from == Rank(0) => {
                let answer = envelope.switch(*revision, to.as_deref());
                if let Some(to) = to {
                    trace::info!(revision, reason = to.plan.reason, "goes by another plan");
                }
                self.renew_forecasts();
                answer
            }
            PlanStep::Held { revision, next } => {
                if let Some(change) = &mut self.planning.change {
                    change.revising.on_held(from, *revision, next.clone());
                }
                return self.decide_plan();
            }
            PlanStep::Switched { revision } => {
                if let Some(change) = &mut self.planning.change {
                    change.revising.on_switched(from, *revision);
                }
                self.planning.change.take_if(|change| change.revising.is_over());
                return;
            }
            PlanStep::Hold { .. } | PlanStep::Switch { .. } => return self.expel(from),
        };
        match answer {
            Ok(answer) => self.tell_plan(Rank(0), &answer),
            Err(_) => self.expel(from),
        }
    }

    fn tell_plan_to_all(&mut self, step: &PlanStep) {
        let Some(envelope) = self.envelope.clone() else { return };
        // This node last: it handles its own message at once.
        envelope
            .view()
            .ranks()
            .filter(|rank| *rank != envelope.me())
            .for_each(|rank| self.tell_plan(rank, step));
        self.tell_plan(envelope.me(), step);
    }

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

    /// Repeats the open steps to a member whose link was down.
    pub(super) fn replay_plan(&mut self, to: Rank) {
        let steps =
            self.planning.change.as_ref().map_or_else(Vec::new, |change| change.revising.replay());
        steps.iter().for_each(|step| self.tell_plan(to, step));
    }

    /// Updates the predicted durations from the present link map.
    pub(super) fn renew_forecasts(&mut self) {
        let Some(envelope) = &self.envelope else { return };
        let takes = |us: f64| Duration::from_secs_f64(us / 1e6);
        let forecasts = forecasts_us(
            &members(envelope),
            self.election.links(),
            &envelope.plan(),
            FORECAST_BYTES,
        );
        self.planning.forecasts =
            forecasts.into_iter().map(|(bytes, us)| Forecast { bytes, takes: takes(us) }).collect();
    }

    /// The link map without the pairs that have no data link in this View.
    fn data_links(&self, envelope: &Envelope) -> LinkMap {
        let (order, view) = (members(envelope), envelope.view());
        self.election
            .links()
            .without(view.apart.iter().map(|(a, b)| (order[a.index()], order[b.index()])))
    }

    /// Has the next path measured, if it is time.
    fn measure_on(&mut self, is_quiet: bool, may_spare: bool) {
        let now = self.now();
        match self.planning.rates.next(now, is_quiet, may_spare) {
            Some((Probe::Alone((from, to)), turn)) => {
                self.tell_rate(from, RateStep::Measure { to, turn, manner: Manner::Alone });
            }
            Some((Probe::Spare((from, to)), turn)) => {
                self.tell_rate(from, RateStep::Measure { to, turn, manner: Manner::Spare });
            }
            Some((Probe::Together((a, b)), turn)) => {
                for (from, to) in [(a, b), (b, a)] {
                    self.tell_rate(from, RateStep::Measure { to, turn, manner: Manner::Together });
                }
            }
            None => self.tell_stations(),
        }
    }
}

/// Whether the View may use any plan. With Gloo alone, plans follow the ranks.
fn can_be_revised(envelope: &Envelope) -> bool {
    envelope.view().runs(EngineKind::Native)
}

/// Whether plans may use Gloo.
fn has_gloo(envelope: &Envelope) -> bool {
    envelope.view().runs(EngineKind::Gloo)
}

const GIB: u64 = 1 << 30;
/// Buffer sizes for which the predicted durations are reported.
const FORECAST_BYTES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];
const BUSY_BYTES: u64 = 32 << 20;
/// Calls are held for measuring for at most this long without a sign of progress, and not again for
/// `PAUSES_APART_MS`.
const PAUSE_MS: u64 = 3_000;
/// The limit after the running operations have ended. A burst takes half a second at most, and a
/// member may answer late.
const MEASURING_MS: u64 = 10_000;
/// Nothing is measured before the running operations have ended; this limits the wait for them.
const DRAIN_MS: u64 = 30_000;
const PAUSES_APART_MS: u64 = 60_000;
