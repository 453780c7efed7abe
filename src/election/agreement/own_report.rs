//! The report of this member in a promise: its View, its operations, its history, and the lanes
//! whose state it lacks.

use super::super::recovery;
use super::Agreement;
use crate::protocol::{Closing, History, LaneSet, Mutant, Promise, Rank, View};

impl Agreement {
    /// Its report on the installed View; `on_prepare` fills in the accepted one.
    pub(super) fn promise(&self) -> Promise {
        Promise {
            prev: self.installed_id,
            rank: self.rank_in(self.installed.as_deref()),
            base: self.base,
            common: self.installed.as_ref().and_then(|view| view.history),
            closing: self.with_all_lanes(self.closing.clone().unwrap_or_default()),
            cut_off: self.cut_off.is_some(),
            accepted: None,
            accepted_here: None,
            is_late: false,
            if_installed: None,
            is_behind: self.catching_up.is_some(),
            name: self.applicant.name.clone(),
            stateless: self.applicant.stateless,
            engines: self.applicant.engines,
            begun: self.has_begun() && !self.mutation.has(Mutant::ForgetsBeginning),
            sizes: self.applicant.sizes,
        }
    }

    /// This member's history after it installs `view`.
    pub(super) fn history_in(&self, view: &View) -> Option<History> {
        let member = view.rank_of(self.me).and_then(|rank| view.member(rank));
        let is_common = view.in_sync() || member.is_some_and(|m| m.in_sync);
        // Its own history, after `view` has decided the operations of its View or left them open.
        let own = || {
            recovery::history_after(
                self.me,
                &self.promise(),
                (view.parent, &view.committed, &view.failed),
                self.mutation,
            )
        };
        if is_common { view.history } else { own() }
    }

    /// A report on the installed View with the lanes of earlier ones.
    fn with_all_lanes(&self, mut closing: Closing) -> Closing {
        closing.lanes.stateful.extend(&self.stateful);
        if let Some(caught_up) = &self.catching_up {
            closing.lanes.caught_up.extend(caught_up);
        }
        closing
    }

    /// The lanes that this member has synced since it came without the common history, once it has
    /// installed `view`; `None` if it lacks no state.
    pub(super) fn still_to_catch_up(&self, view: &View) -> Option<LaneSet> {
        let member = view.rank_of(self.me).and_then(|rank| view.member(rank));
        if !view.in_sync() && member.is_some_and(|member| !member.in_sync) {
            return Some(LaneSet::default());
        }
        let promise = self.promise();
        let lacks = recovery::lacks_a_state(&promise, &view.committed, &self.stateful);
        lacks.then_some(promise.closing.lanes.caught_up)
    }

    pub(super) fn rank_in(&self, view: Option<&View>) -> Option<Rank> {
        view.and_then(|view| view.rank_of(self.me))
    }
}
