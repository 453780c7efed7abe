//! The messages by which rank 0 changes the plan of the View.

use super::super::planner::Search;
use super::ControlPlane;
use crate::identity::MemberId;
use crate::protocol::{Message, Plan, PlanMessage, PlanStep, Rank, RateStep};
use crate::session::ViewSession;
use crate::trace;
use std::sync::Arc;

impl ControlPlane {
    /// Continues measuring, and searches for a better plan when enough is known. Does nothing
    /// except on rank 0.
    pub(super) fn go_on_planning(&mut self) {
        let leads =
            |e: &&Arc<ViewSession>| e.me() == Rank(0) && e.view().size() > 1 && !e.is_frozen();
        let Some(session) = self.installed.session().filter(leads).cloned() else { return };
        self.planner.look_for_codecs(&session);
        if !self.can_measure(&session) {
            return;
        }
        self.watch_the_plan(&session);
        let (is_quiet, may_spare) = self.planner.may_measure(&session);
        self.measure_on(is_quiet, may_spare);
        if self.planner.is_changing() {
            return self.decide_plan();
        }
        let (rates, links) = (&self.rates, self.election.links());
        let now = self.clock.now();
        if let Some(plan) = self.planner.find(&session, rates, links) {
            self.hold_all(Some(plan), Search::Measured);
        } else if let Some(plan) = self.planner.compare(now, &session, rates, links) {
            self.hold_all(Some(plan), Search::Tried);
        } else if self.planner.is_busy(now, &session, rates) {
            self.hold_all(None, Search::Measured);
        }
    }

    /// Measures again when operations take longer than predicted.
    fn watch_the_plan(&mut self, session: &ViewSession) {
        let served = session.take_served();
        self.rates.note_served(served.iter().map(|op| op.took).sum());
        self.planner.note_served(&served);
        if self.planner.are_late(self.clock.now(), session, self.election.links(), &served) {
            self.rates.survey_anew(session.view(), self.election.links_mut());
            self.planner.look_again();
            self.hold_all(None, Search::Measured);
        }
    }

    /// Has the next paths measured, if it is time. Once only spare bursts are left, the shared
    /// segments are told, before a plan is searched for.
    fn measure_on(&mut self, is_quiet: bool, may_spare: bool) {
        let next = self.rates.next(self.clock.now(), is_quiet, may_spare);
        if let Some((paths, manner)) = next {
            for ((from, to), turn) in paths {
                self.tell_rate(from, RateStep::Measure { to, turn, manner });
            }
        }
        self.tell_shares();
    }

    /// Makes all members hold their calls: for this plan, or until one is found.
    fn hold_all(&mut self, plan: Option<Plan>, search: Search) {
        let Some(session) = self.installed.session() else { return };
        let now = self.clock.now();
        if let Some(hold) = self.planner.hold(now, session, &self.rates, plan, search) {
            self.rates.calls_are_held(now);
            self.tell_plan_to_all(&hold);
        }
    }

    /// Proposes the plan, or lets it stay, once all members hold and enough is known.
    fn decide_plan(&mut self) {
        let Some(session) = self.installed.session() else { return };
        let (now, links) = (self.clock.now(), self.election.links());
        if let Some(switch) = self.planner.decide(now, session, &self.rates, links) {
            self.tell_plan_to_all(&switch);
        }
    }

    /// A message of the plan protocol between rank 0 and a member.
    pub(super) fn on_plan(&mut self, from: MemberId, message: &PlanMessage) {
        let Some(session) = self.session_of(message.view) else { return };
        let Some(rank) = session.view().rank_of(from) else { return };
        self.hear_plan_step(rank, &message.body);
    }

    fn hear_plan_step(&mut self, from: Rank, step: &PlanStep) {
        let Some(session) = self.installed.session() else { return };
        let answer = match step {
            PlanStep::Hold { revision } if from == Rank(0) => session.hold(*revision),
            PlanStep::Switch { revision, to } if from == Rank(0) => {
                let answer = session.switch(*revision, to.as_deref());
                if let Some(to) = to {
                    trace::info!(revision, reason = to.plan.reason, "goes by another plan");
                }
                self.renew_forecasts();
                answer
            }
            PlanStep::Held { revision, next } => {
                self.planner.on_held(from, *revision, next.clone());
                return self.decide_plan();
            }
            PlanStep::Switched { revision } => return self.planner.on_switched(from, *revision),
            PlanStep::Hold { .. } | PlanStep::Switch { .. } => return self.expel(from),
        };
        match answer {
            Ok(answer) => self.tell_plan(Rank(0), &answer),
            Err(_) => self.expel(from),
        }
    }

    fn tell_plan_to_all(&mut self, step: &PlanStep) {
        for rank in self.ranks_self_last() {
            self.tell_plan(rank, step);
        }
    }

    fn tell_plan(&mut self, to: Rank, step: &PlanStep) {
        let Some(session) = self.installed.session() else { return };
        if to == session.me() {
            return self.hear_plan_step(to, step);
        }
        if let Some(member) = session.view().member(to) {
            let message = PlanMessage { view: session.digest(), body: step.clone() };
            self.peers.send(member.id, Message::Plan(Box::new(message)));
        }
    }

    /// Repeats the open steps to a member whose link was down.
    pub(super) fn replay_plan(&mut self, to: Rank) {
        self.planner.open_steps().iter().for_each(|step| self.tell_plan(to, step));
    }

    /// Updates the predicted durations from the present link map.
    pub(super) fn renew_forecasts(&mut self) {
        if let Some(session) = self.installed.session() {
            self.planner.renew_forecasts(session, self.election.links());
        }
    }

    /// The ranks of the View, this node's last: it handles its own message at once.
    pub(super) fn ranks_self_last(&self) -> Vec<Rank> {
        let Some(session) = self.installed.session() else { return Vec::new() };
        let me = session.me();
        session.view().ranks().filter(|rank| *rank != me).chain([me]).collect()
    }
}
