//! Changes of the plan within a View, as the control loop leads them: rank 0 lets all hold their
//! calls, and at any time after that it announces the new plan.

use super::super::claims::Claim;
use super::turn::Turn;
use crate::collective::Revising;
use crate::identity::MemberId;
use crate::protocol::{Message, Plan, PlanMessage, PlanStep, Rank, View};

impl Turn<'_> {
    /// A View has been installed: with the one before, all changes of its plan are over.
    pub(super) fn view_has_a_plan(&mut self, view: &View) {
        self.node.revising = None;
        self.node.revision = view.plan.revision;
        self.node.held.clear();
    }

    /// This node, rank 0, lets all members hold their calls.
    pub(super) fn hold_all(&mut self) {
        let Some(view) = self.node.view.clone() else { return };
        self.node.revision += 1;
        let revising = Revising::new(self.node.revision, view.size());
        let hold = revising.hold();
        self.node.revising = Some(revising);
        self.tell_plan_to_all(&view, &hold);
    }

    /// All members hold: this node, rank 0, announces the new plan.
    pub(super) fn decide_plan(&mut self) {
        let (Some(view), Some(revising)) = (self.node.view.clone(), &mut self.node.revising) else {
            return;
        };
        let switch = revising.decide(Some(Plan::mesh(view.size())));
        self.tell_plan_to_all(&view, &switch);
    }

    fn tell_plan_to_all(&mut self, view: &View, step: &PlanStep) {
        // This node last: it handles its own message at once.
        view.ranks().skip(1).for_each(|rank| self.tell_plan(rank, step));
        self.tell_plan(Rank(0), step);
    }

    fn tell_plan(&mut self, to: Rank, step: &PlanStep) {
        let (Some(ledger), Some(view)) = (&self.node.ledger, &self.node.view) else { return };
        let (view_digest, member) = (ledger.view(), view.member(to).map(|m| m.id));
        match member {
            Some(id) if id == self.node.me => self.hear_plan_step(to, step),
            Some(id) => {
                let message = PlanMessage { view: view_digest, body: step.clone() };
                self.post(id, Message::Plan(Box::new(message)));
            }
            None => {}
        }
    }

    pub(super) fn hear_of_plan(&mut self, from: MemberId, message: &PlanMessage) {
        let (Some(ledger), Some(view)) = (&self.node.ledger, &self.node.view) else { return };
        let rank = view.rank_of(from).filter(|_| ledger.view() == message.view);
        if let Some(rank) = rank {
            self.hear_plan_step(rank, &message.body);
        }
    }

    fn hear_plan_step(&mut self, from: Rank, step: &PlanStep) {
        let Some(ledger) = &mut self.node.ledger else { return };
        let answer = match step {
            PlanStep::Hold { revision } if ledger.is_past(*revision) => {
                Ok(PlanStep::Switched { revision: *revision })
            }
            PlanStep::Hold { revision } => {
                ledger.hold(*revision).map(|next| PlanStep::Held { revision: *revision, next })
            }
            PlanStep::Switch { revision, to } => {
                let first = to.as_ref().map(|to| &to.first[..]);
                let switched = if ledger.is_past(*revision) {
                    Ok(())
                } else {
                    ledger.switch(*revision, first)
                };
                switched.map(|()| PlanStep::Switched { revision: *revision })
            }
            PlanStep::Held { revision, next } => {
                if let Some(revising) = &mut self.node.revising {
                    revising.on_held(from, *revision, next.clone());
                }
                return;
            }
            PlanStep::Switched { revision } => {
                if let Some(revising) = &mut self.node.revising {
                    revising.on_switched(from, *revision);
                }
                self.node.revising.take_if(|revising| revising.is_over());
                return;
            }
        };
        self.expect(Claim::Honest, answer.is_ok());
        if let Ok(answer) = answer {
            self.tell_plan(Rank(0), &answer);
        }
    }

    /// Repeats the messages that a rank may have missed of a change that this node leads.
    pub(super) fn replay_plan(&mut self, to: Rank) {
        let steps = self.node.revising.as_ref().map_or_else(Vec::new, Revising::replay);
        steps.iter().for_each(|step| self.tell_plan(to, step));
    }
}
