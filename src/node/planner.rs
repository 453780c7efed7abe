//! How a View gets a plan that fits its links: rank 0 has the links measured while no operation
//! runs, and proposes the plan.
//!
//! If there are no idle moments, or operations take longer than the plan predicts, rank 0 creates
//! one. A change of the plan holds all calls anyway, so they are held until the ports are measured:
//! while bursts give a rate at least every three seconds, and for at most ten seconds after the
//! last running operation has ended.
//!
//! A plan that disappoints is compared with others on real operations, see [`Comparison`].
//!
//! Gloo's schedules follow the ranks, whatever the links are. If trees suit the links much better,
//! the plan names trees, and with them the native engine.

use super::rates::{Rates, members};
use crate::collective::Revising;
use crate::protocol::{EngineKind, OpId, Plan, PlanStep, Rank, View};
use crate::report::Forecast;
use crate::session::{ServedOp, ViewSession};
use crate::topology::{
    Comparison, LinkMap, RUNNER_UPS_BYTES, Survey, Watch, best_plan, better_plan, forecasts_us,
    runner_ups, with_better_codecs,
};
use crate::trace;
use std::time::Duration;

const GIB: u64 = 1 << 30;
/// Buffer sizes for which the predicted durations are reported.
const FORECAST_BYTES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];
/// A View that still has unmeasured links after `BUSY_MS`, in which large reductions have taken
/// `BUSY`, or this node has sent `BUSY_BYTES`, has no idle moments.
const BUSY_BYTES: u64 = 32 << 20;
const BUSY: Duration = Duration::from_secs(1);
const BUSY_MS: u64 = 1_000;
/// Smaller reductions are mostly latency.
const LARGE_BYTES: u64 = 256 << 10;
/// Calls are held for measuring for at most this long without a sign of progress, and not again for
/// `PAUSES_APART_MS`.
const PAUSE_MS: u64 = 3_000;
/// The limit after the running operations have ended. A burst takes half a second at most, and a
/// member may answer late.
const MEASURING_MS: u64 = 10_000;
/// Nothing is measured before the running operations have ended; this limits the wait for them.
const DRAIN_MS: u64 = 30_000;
const PAUSES_APART_MS: u64 = 60_000;

/// The search for a plan in the installed View. Times are in milliseconds.
pub(super) struct Planner {
    /// On rank 0: the change of the plan in progress.
    change: Option<Change>,
    /// The highest revision used so far.
    revision: u32,
    /// No operation was in flight at the last look.
    was_idle: bool,
    /// The knowledge on which the last search for a plan was based.
    looked: Looked,
    forecasts: Vec<Forecast>,
    watch: Watch,
    comparison: Comparison,
    /// Some calls leave their codecs to the plan.
    asked_for_codecs: bool,
    /// Calls are not held for measuring before this time.
    pause_from: u64,
    /// Total duration of the large reductions of this View.
    served_large: Duration,
}

/// How a plan is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// From measured rates.
    Measured,
    /// By real operations.
    Tried,
}

/// A change of the plan.
struct Change {
    revising: Revising,
    search: Search,
    /// The plan, if it is already known. Else calls are held until the links are measured.
    plan: Option<Plan>,
    /// End of the measuring. Extended while the signs change.
    until: u64,
    /// Upper limit of `until`.
    until_at_most: u64,
    /// The signs at the last look.
    signs: Signs,
}

/// The state of the survey at the last search for a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Looked {
    Never,
    /// All ports were measured.
    AtThePorts,
    /// All paths were measured.
    AtThePaths,
}

/// Signs of progress while calls are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    /// Bytes received by this node.
    received_bytes: u64,
    /// Undecided operations.
    under_way: usize,
    /// Bursts that gave a rate.
    bursts: u64,
}

impl Signs {
    fn of(session: &ViewSession, rates: &Rates) -> Signs {
        let received_bytes = session.backend().traffic().received_bytes;
        let bursts = rates.survey().map_or(0, Survey::rates_measured);
        Signs { received_bytes, under_way: session.moving(), bursts }
    }
}

impl Planner {
    /// For a View that is installed now.
    pub(super) fn of(view: Option<&View>, now: u64) -> Planner {
        Planner {
            change: None,
            revision: view.map_or(0, |view| view.plan.revision),
            was_idle: false,
            looked: Looked::Never,
            forecasts: Vec::new(),
            watch: Watch::new(now),
            comparison: Comparison::default(),
            asked_for_codecs: false,
            pause_from: now + BUSY_MS,
            served_large: Duration::ZERO,
        }
    }

    /// Searches again, because new knowledge may give a better plan.
    pub(super) fn look_again(&mut self) {
        self.looked = Looked::Never;
        self.comparison.forget();
    }

    /// Searches again if calls leave their codecs to the plan since the last look.
    pub(super) fn look_for_codecs(&mut self, session: &ViewSession) {
        if session.asks_for_codecs() && !std::mem::replace(&mut self.asked_for_codecs, true) {
            self.look_again();
        }
    }

    /// Whether nothing is in the way of bursts, and whether a path may be measured whose rate is
    /// known.
    pub(super) fn may_measure(&mut self, session: &ViewSession) -> (bool, bool) {
        let is_idle = session.in_flight() == 0;
        let was_idle = std::mem::replace(&mut self.was_idle, is_idle) && is_idle;
        let is_quiet = match &self.change {
            Some(change) if change.revising.is_held() => session.moving() == 0,
            Some(_) => false,
            None => was_idle,
        };
        (is_quiet, self.change.is_none() && self.has_choice(session))
    }

    /// Whether the plan is being changed.
    pub(super) fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Whether calls should be held for measuring: there were no idle moments for a while, much
    /// data was sent, and the best plan or a changed path is unknown.
    pub(super) fn is_busy(&self, now: u64, session: &ViewSession, rates: &Rates) -> bool {
        // Two members have only one schedule; only another path or another codec can help them.
        let depends = session.view().size() > 2 || self.asked_for_codecs;
        let has_no_plan = |survey: &Survey| depends && !survey.knows_the_ports();
        let is_unknown = self.has_choice(session) && rates.survey().is_some_and(has_no_plan);
        let is_worth_it =
            || self.served_large >= BUSY || session.backend().traffic().sent_bytes >= BUSY_BYTES;
        (is_unknown || rates.is_wished()) && now >= self.pause_from && is_worth_it()
    }

    /// Adds these operations to those of this View.
    pub(super) fn note_served(&mut self, served: &[ServedOp]) {
        let large = served.iter().filter(|op| op.bytes >= LARGE_BYTES);
        let took: Duration = large.map(|op| op.took).sum();
        self.served_large = self.served_large.saturating_add(took);
    }

    /// Whether these operations took so much longer than predicted that the links should be
    /// measured again.
    pub(super) fn are_late(
        &mut self,
        now: u64,
        session: &ViewSession,
        links: &LinkMap,
        served: &[ServedOp],
    ) -> bool {
        if self.change.is_some()
            || served.is_empty()
            || !self.has_choice(session)
            || session.view().size() < 3
        {
            return false;
        }
        let plan = session.plan();
        // Operations that began under the plan before say nothing of this one.
        let present = served.iter().filter(|op| op.revision == plan.revision);
        let in_us = |op: &ServedOp| (op.bytes, op.took.as_secs_f64() * 1e6);
        self.comparison.note(now, &plan, present.clone().map(in_us));
        if self.comparison.is_trying() {
            return false;
        }
        let Some(us_of_a_byte) = predicted_us_of_a_byte(session, links) else { return false };
        let is_late = |op: &&ServedOp| {
            let us = op.bytes as f64 * us_of_a_byte;
            self.watch.note(now, us, op.took.as_secs_f64() * 1e6)
        };
        let late = present.filter(|op| op.bytes >= Watch::BYTES_MIN).find(is_late);
        if let Some(ServedOp { bytes, took, .. }) = late {
            let forecast_us = *bytes as f64 * us_of_a_byte;
            trace::info!(
                bytes,
                ?took,
                forecast_us,
                "operations take longer than predicted; measures the links again"
            );
        }
        late.is_some()
    }

    /// The next plan to be compared with the present one on real operations, or the fastest one
    /// after that. `None` while the ports are not known.
    pub(super) fn compare(
        &mut self,
        now: u64,
        session: &ViewSession,
        rates: &Rates,
        links: &LinkMap,
    ) -> Option<Plan> {
        let present = session.plan();
        if !self.comparison.is_due(now, &present) || !can_be_revised(session) {
            return None;
        }
        rates.survey().filter(|survey| survey.is_good_for_a_plan())?;
        let mib_us = predicted_us_of_a_byte(session, links)? * Comparison::BYTES_MIN as f64;
        let (order, links) = (members(session.view()), data_links(session, links));
        let mibs = (RUNNER_UPS_BYTES / Comparison::BYTES_MIN) as f64;
        let others = |us_of_mib: f64| runner_ups(&order, &links, &present, us_of_mib * mibs);
        let next = self.comparison.next(now, &present, mib_us, others);
        if let Some(next) = &next {
            trace::info!(reason = next.reason, "compares plans on real operations");
        }
        next
    }

    /// Searches once when all ports are measured, and once when all paths are. Returns the plan to
    /// be proposed.
    pub(super) fn find(
        &mut self,
        session: &ViewSession,
        rates: &Rates,
        links: &LinkMap,
    ) -> Option<Plan> {
        let survey = rates.survey().filter(|_| self.looked < Looked::AtThePaths)?;
        let known = match (survey.is_good_for_a_plan(), survey.is_over()) {
            (_, true) => Looked::AtThePaths,
            (true, false) => Looked::AtThePorts,
            (false, false) => return None,
        };
        if known <= self.looked || !self.has_choice(session) {
            return None;
        }
        self.looked = known;
        self.comparison.reopen();
        let has_shares = !survey.stations().is_empty() || !survey.segments().is_empty();
        let found = self.better_plan(session, links).or_else(|| {
            // If a medium or a segment turned out to be shared, the present plan's promise is wrong
            // even if the plan remains the best one; then the same plan with a new reason is
            // proposed.
            let is_wrong = known == Looked::AtThePaths && has_shares && can_be_revised(session);
            let best = is_wrong.then(|| {
                let (order, links) = (members(session.view()), data_links(session, links));
                best_plan(&order, &links, has_gloo(session))
            });
            let present = session.plan();
            best.filter(|best| {
                best.reason != present.reason && !self.comparison.is_slower(best, &present)
            })
        });
        if found.is_some() {
            self.comparison.replaced();
        }
        found
    }

    /// Whether another plan, or at least other codecs, can be chosen.
    fn has_choice(&self, session: &ViewSession) -> bool {
        session.view().size() > 2 && can_be_revised(session) || self.asked_for_codecs
    }

    /// A better plan, or the present one with better codecs.
    fn better_plan(&self, session: &ViewSession, links: &LinkMap) -> Option<Plan> {
        let (order, links) = (members(session.view()), data_links(session, links));
        let present = session.plan();
        let other = if can_be_revised(session) {
            better_plan(&order, &links, &present, has_gloo(session))
        } else {
            None
        };
        let other = other.filter(|other| !self.comparison.is_slower(other, &present));
        other.or_else(|| {
            self.asked_for_codecs.then(|| with_better_codecs(&order, &links, &present))?
        })
    }

    /// Begins a change of the plan: to this one, or to one that is found while calls are held.
    /// Returns the step that makes all members hold their calls; `None` if a proposer has used the
    /// largest revision in its plan.
    pub(super) fn hold(
        &mut self,
        now: u64,
        session: &ViewSession,
        rates: &Rates,
        plan: Option<Plan>,
        search: Search,
    ) -> Option<PlanStep> {
        let revision = self.revision.checked_add(1)?;
        self.revision = revision;
        let revising = Revising::new(revision, session.view().size());
        let hold = revising.hold();
        trace::debug!(revision, known = plan.is_some(), "calls are held for another plan");
        if search == Search::Measured {
            self.pause_from = now + PAUSES_APART_MS;
        }
        let (until, until_at_most) = (now + PAUSE_MS, now + DRAIN_MS);
        let signs = Signs::of(session, rates);
        self.change = Some(Change { revising, search, plan, until, until_at_most, signs });
        Some(hold)
    }

    /// Once all members hold: the step that switches to the plan, if it is known or if the time for
    /// measuring is over.
    pub(super) fn decide(
        &mut self,
        now: u64,
        session: &ViewSession,
        rates: &Rates,
        links: &LinkMap,
    ) -> Option<PlanStep> {
        let signs = Signs::of(session, rates);
        let change = self.change.as_mut().filter(|change| change.revising.is_held())?;
        if std::mem::replace(&mut change.signs, signs) != signs {
            change.until = now + PAUSE_MS;
        }
        if signs.under_way == 0 {
            change.until_at_most = change.until_at_most.min(now + MEASURING_MS);
        }
        let is_over = now >= change.until.min(change.until_at_most);
        let is_unknown =
            rates.survey().is_some_and(|survey| !survey.is_good_for_a_plan()) || rates.is_wished();
        if change.plan.is_none() && !is_over && is_unknown {
            return None;
        }
        let (known, search) = (change.plan.take(), change.search);
        let plan = known.or_else(|| self.better_plan(session, links));
        match search {
            Search::Measured if plan.is_some() => {
                self.watch.was_right();
                self.comparison.replaced();
            }
            Search::Measured => {}
            Search::Tried => self.watch.forget(),
        }
        Some(self.change.as_mut()?.revising.decide(plan))
    }

    /// A member holds its calls.
    pub(super) fn on_held(&mut self, from: Rank, revision: u32, next: Option<Vec<OpId>>) {
        if let Some(change) = &mut self.change {
            change.revising.on_held(from, revision, next);
        }
    }

    /// A member goes by the plan of this revision.
    pub(super) fn on_switched(&mut self, from: Rank, revision: u32) {
        if let Some(change) = &mut self.change {
            change.revising.on_switched(from, revision);
        }
        self.change.take_if(|change| change.revising.is_over());
    }

    /// The open steps, for a member whose link was down.
    pub(super) fn open_steps(&self) -> Vec<PlanStep> {
        self.change.as_ref().map_or_else(Vec::new, |change| change.revising.replay())
    }

    /// The predicted durations of calls.
    pub(super) fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }

    /// Updates them from the present link map.
    pub(super) fn renew_forecasts(&mut self, session: &ViewSession, links: &LinkMap) {
        let takes = |us: f64| Duration::from_secs_f64(us / 1e6);
        let order = members(session.view());
        let forecasts = forecasts_us(&order, links, &session.plan(), FORECAST_BYTES);
        self.forecasts =
            forecasts.into_iter().map(|(bytes, us)| Forecast { bytes, takes: takes(us) }).collect();
    }
}

/// The forecast of the present plan by bandwidth alone, from the slope between two large sizes:
/// operations overlap, and the time that they wait for each other is not due to the links.
fn predicted_us_of_a_byte(session: &ViewSession, links: &LinkMap) -> Option<f64> {
    let order = members(session.view());
    match forecasts_us(&order, links, &session.plan(), [GIB, 2 * GIB])[..] {
        [(small, small_us), (large, large_us)] => {
            Some((large_us - small_us) / (large - small) as f64)
        }
        _ => None,
    }
}

/// The link map without the pairs that have no data link in this View.
fn data_links(session: &ViewSession, links: &LinkMap) -> LinkMap {
    let view = session.view();
    let order = members(view);
    links.without(view.no_direct_link.iter().map(|(a, b)| (order[a.index()], order[b.index()])))
}

/// Whether the View may use any plan. With Gloo alone, plans follow the ranks.
fn can_be_revised(session: &ViewSession) -> bool {
    session.view().runs(EngineKind::Native)
}

/// Whether plans may use Gloo.
fn has_gloo(session: &ViewSession) -> bool {
    session.view().runs(EngineKind::Gloo)
}
