//! The comparison of plans by the durations of real operations.
//!
//! Forecasts know ports, paths, media and segments. A network may have other limits. So a plan
//! disappoints if operations take much longer than predicted, or longer than under the plan before
//! it. Then the next best plans by forecast are used for a few operations each, and the fastest of
//! all stays:
//!
//! ```text
//! state      event                                      next state
//! watching   ENOUGH operations, as fast as hoped        watching
//! watching   ENOUGH operations, the plan disappoints    trying, the next plan is used
//! trying     ENOUGH operations, or two far too slow     trying, the next plan is used
//! trying     the same, and no plan is left              over, the fastest plan is used
//! trying     no such operations for a minute            over, the fastest plan is used
//! trying     rates or the size of operations change     watching, the fastest plan is used
//! ```
//!
//! When more is known of the network, `over` becomes `watching`. When rates change, all measured
//! durations are forgotten as well.

use super::codec_choice::of_codecs;
use super::heterogeneous::in_words;
use crate::protocol::{Algorithm, Plan};
use std::collections::VecDeque;

/// The plans of one View that were used while its rates were the same. Durations are in
/// microseconds per MiB, times in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    state: TrialState,
    /// Only operations of about this size are compared, in bytes.
    typical_bytes: Option<u64>,
    /// Operations of another size since the last one that counted.
    others: usize,
    /// When an operation counted last.
    counted_at: u64,
    present: Option<Sample>,
    former: Vec<Measured>,
    /// The plan to return to, because trials have ended early.
    back: Option<Plan>,
}

#[derive(Clone, Debug, Default)]
enum TrialState {
    #[default]
    Watching,
    /// The plans that are left, and the one that disappointed.
    Trying(VecDeque<Plan>, Plan),
    Over,
}

/// The operations under the present plan.
#[derive(Clone, Debug)]
struct Sample {
    algorithm: Algorithm,
    us: Vec<f64>,
}

/// A plan that was used, and the median of its operations.
#[derive(Clone, Debug)]
struct Measured {
    plan: Plan,
    us: f64,
}

impl Comparison {
    /// Smaller operations are mostly latency.
    pub const BYTES_MIN: u64 = 1 << 20;

    /// Notes operations that ran under this plan, each with its bytes and its duration in
    /// microseconds.
    pub fn note(&mut self, now: u64, plan: &Plan, served: impl Iterator<Item = (u64, f64)>) {
        let algorithm = large(plan);
        let is_large = |bytes: u64| {
            bytes >= Comparison::BYTES_MIN && plan.class_for(bytes).algorithm == *algorithm
        };
        for (bytes, us) in served.filter(|(bytes, _)| is_large(*bytes)) {
            let typical = *self.typical_bytes.get_or_insert(bytes);
            if !(typical / 2..=typical.saturating_mul(2)).contains(&bytes) {
                self.others += 1;
                continue;
            }
            (self.others, self.counted_at) = (0, now);
            let sample = self.present.get_or_insert_with(|| Sample::of(algorithm));
            if sample.algorithm != *algorithm {
                *sample = Sample::of(algorithm);
            }
            sample.us.push(us * Comparison::BYTES_MIN as f64 / bytes as f64);
        }
        if self.others > OTHERS_MAX {
            // The program makes other calls now.
            self.forget();
        }
    }

    /// Whether [`next`](Comparison::next) may give a plan.
    pub fn is_due(&self, now: u64, present: &Plan) -> bool {
        let is_enough = || {
            let sample = self.present.as_ref();
            sample.is_some_and(|one| one.us.len() >= FAR_ENOUGH && one.algorithm == *large(present))
        };
        let is_over = matches!(self.state, TrialState::Over);
        self.back.is_some() || self.is_left_alone(now) || !is_over && is_enough()
    }

    /// The plan to be used next; `None` to stay with the present one.
    ///
    /// `predicted_us` is the forecast of the present plan per MiB, and `runner_ups` returns the
    /// other plans that are predicted to take at most so long, the best one first.
    pub fn next(
        &mut self,
        now: u64,
        present: &Plan,
        predicted_us: f64,
        runner_ups: impl FnOnce(f64) -> Vec<Plan>,
    ) -> Option<Plan> {
        if self.is_left_alone(now) {
            self.back = self.best_of_trials();
            self.state = TrialState::Over;
        }
        if let Some(back) = self.back.take() {
            return (!is_same(&back, present)).then_some(back);
        }
        let sample = self.present.as_ref().filter(|sample| sample.algorithm == *large(present))?;
        let others = self.former.iter().filter(|one| !is_same(&one.plan, present));
        let fastest = others.min_by(|a, b| a.us.total_cmp(&b.us)).cloned();
        let us = match &self.state {
            TrialState::Over => return None,
            TrialState::Trying(..) => sample.of_trial(fastest.as_ref().map(|one| one.us))?,
            TrialState::Watching => sample.median()?,
        };
        if let TrialState::Watching = self.state {
            let better = fastest.filter(|before| us > before.us * WORSE);
            if better.is_none() && us <= predicted_us * DISAPPOINTING + SLACK_US {
                // The next ones are judged apart.
                self.present = None;
                self.learn(present, us);
                return None;
            }
            // The plan before is measured again, because other things may have changed.
            self.former.clear();
            let untried = better.map(|before| before.plan).into_iter().chain(runner_ups(us));
            self.state = TrialState::Trying(untried.collect(), present.clone());
        }
        self.learn(present, us);
        self.next_trial(present)
    }

    fn next_trial(&mut self, present: &Plan) -> Option<Plan> {
        let TrialState::Trying(untried, home) = &mut self.state else { return None };
        let is_new = |plan: &Plan| !self.former.iter().any(|one| is_same(&one.plan, plan));
        while let Some(next) = untried.pop_front() {
            if is_new(&next) {
                return Some(next);
            }
        }
        let is_home = is_same(home, present);
        let fastest = self.best_of_trials()?;
        self.state = TrialState::Over;
        // A plan on trial that stays gets its reason.
        (!is_home || !is_same(&fastest, present)).then_some(fastest)
    }

    /// The fastest plan that was measured, with the figures as its reason unless it is the one that
    /// the trials began from; `None` if there are no trials.
    fn best_of_trials(&self) -> Option<Plan> {
        let TrialState::Trying(_, home) = &self.state else { return None };
        let fastest = self.former.iter().min_by(|a, b| a.us.total_cmp(&b.us));
        let better = fastest.filter(|one| !is_same(&one.plan, home));
        Some(better.map_or_else(|| home.clone(), |one| self.said(one)))
    }

    /// Whether trials were begun, and no operation counts any more.
    fn is_left_alone(&self, now: u64) -> bool {
        self.is_trying() && now >= self.counted_at + LEFT_ALONE_MS
    }

    /// Whether plans are being tried.
    pub fn is_trying(&self) -> bool {
        matches!(self.state, TrialState::Trying(..))
    }

    /// Whether this plan was measured to be slower than the present one.
    pub fn is_slower(&self, plan: &Plan, present: &Plan) -> bool {
        let us =
            |plan: &Plan| self.former.iter().find(|one| is_same(&one.plan, plan)).map(|one| one.us);
        us(plan).zip(us(present)).is_some_and(|(us, present_us)| us > present_us)
    }

    /// More is known of the network, and may lead to another plan, which is judged, too.
    pub fn reopen(&mut self) {
        if let TrialState::Over = self.state {
            self.state = TrialState::Watching;
        }
    }

    /// Another plan replaces the present one, because of measurements.
    pub fn replaced(&mut self) {
        self.back = None;
        if self.is_trying() {
            self.state = TrialState::Watching;
        }
    }

    /// Rates have changed.
    pub fn forget(&mut self) {
        let back = self.back.take().or_else(|| self.best_of_trials());
        *self = Comparison { back, ..Comparison::default() };
    }

    fn learn(&mut self, plan: &Plan, us: f64) {
        self.former.retain(|one| !is_same(&one.plan, plan));
        self.former.push(Measured { plan: plan.clone(), us });
    }

    /// The plan with the measurements as its reason.
    fn said(&self, fastest: &Measured) -> Plan {
        let others: Vec<String> = self
            .former
            .iter()
            .filter(|one| !is_same(&one.plan, &fastest.plan))
            .map(|one| format!("{:.1} ms {}", one.us / 1e3, in_words(large(&one.plan))))
            .collect();
        let reason = format!(
            "by trial, because operations took longer than predicted: 1 MiB {} takes {:.1} ms, \
             against {}{}",
            in_words(large(&fastest.plan)),
            fastest.us / 1e3,
            others.join(" and "),
            of_codecs(&fastest.plan.reason)
        );
        Plan { reason: Plan::cut_reason(&reason, 0).to_owned(), ..fastest.plan.clone() }
    }
}

impl Sample {
    fn of(algorithm: &Algorithm) -> Sample {
        Sample { algorithm: algorithm.clone(), us: Vec::new() }
    }

    /// `None` before [`ENOUGH`] operations.
    fn median(&self) -> Option<f64> {
        if self.us.len() < ENOUGH {
            return None;
        }
        let mut sorted = self.us.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// The same in a trial, which ends early if all operations were far slower than the fastest
    /// plan.
    fn of_trial(&self, fastest_us: Option<f64>) -> Option<f64> {
        let least = self.us.iter().copied().reduce(f64::min)?;
        let is_hopeless =
            self.us.len() >= FAR_ENOUGH && fastest_us.is_some_and(|us| least > us * HOPELESS);
        if is_hopeless { Some(least) } else { self.median() }
    }
}

/// The schedule for large buffers.
fn large(plan: &Plan) -> &Algorithm {
    &plan.class_for(u64::MAX).algorithm
}

fn is_same(one: &Plan, other: &Plan) -> bool {
    large(one) == large(other)
}

/// So many operations tell how fast a plan is.
const ENOUGH: usize = 5;
/// So many operations tell that a plan is hopeless, if all of them take [`HOPELESS`] times as long
/// as the median of the fastest one.
const FAR_ENOUGH: usize = 2;
const HOPELESS: f64 = 1.5;
/// A plan disappoints if operations take so many times their forecast and [`SLACK_US`] more.
/// Processors that are too slow are the usual reason, and then nothing is gained.
const DISAPPOINTING: f64 = 1.5;
const SLACK_US: f64 = 2_000.0;
/// It also disappoints if they take so many times as long as under a plan before.
const WORSE: f64 = 1.1;
/// Trials end early if no operation counts for so long.
const LEFT_ALONE_MS: u64 = 60_000;
/// After so many operations of another size in a row the comparison begins again.
const OTHERS_MAX: usize = 8;

#[cfg(test)]
mod tests;
