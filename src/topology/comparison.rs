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
//! ```
//!
//! It begins again when more is known of the network, and anew when rates change.

use super::heterogeneous::in_words;
use crate::protocol::{Algorithm, Plan};
use std::collections::VecDeque;

/// The plans of one View that were used while its rates were the same. Durations are in
/// microseconds per MiB.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    state: State,
    /// Only operations of about this size are compared, in bytes.
    typical_bytes: Option<u64>,
    /// Operations of another size since the last one that counted.
    others: usize,
    present: Option<Sample>,
    former: Vec<Measured>,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Watching,
    Trying(VecDeque<Plan>),
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

    /// Notes operations under this plan, each with its bytes and its duration in microseconds.
    pub fn note(&mut self, plan: &Plan, served: impl Iterator<Item = (u64, f64)>) {
        let served: Vec<(u64, f64)> =
            served.filter(|(bytes, _)| *bytes >= Comparison::BYTES_MIN).collect();
        if served.is_empty() || matches!(self.state, State::Over) {
            return;
        }
        let algorithm = large(plan);
        let sample = self.present.get_or_insert_with(|| Sample::of(algorithm));
        if sample.algorithm != *algorithm {
            // Some of these may have run under the plan before.
            *sample = Sample::of(algorithm);
            self.others = 0;
            return;
        }
        for (bytes, us) in served {
            let typical = *self.typical_bytes.get_or_insert(bytes);
            if (typical / 2..=typical.saturating_mul(2)).contains(&bytes) {
                self.others = 0;
                sample.us.push(us * Comparison::BYTES_MIN as f64 / bytes as f64);
            } else {
                self.others += 1;
            }
        }
        if self.others > OTHERS_MAX {
            // The program makes other calls now.
            *self = Comparison::default();
        }
    }

    /// The plan to be used next; `None` to stay with the present one.
    ///
    /// `predicted_us` is the forecast of the present plan per MiB, and `runner_ups` returns the
    /// other plans that are predicted to take at most so long, the best one first.
    pub fn next(
        &mut self,
        present: &Plan,
        predicted_us: f64,
        runner_ups: impl FnOnce(f64) -> Vec<Plan>,
    ) -> Option<Plan> {
        let sample = self.present.as_ref().filter(|sample| sample.algorithm == *large(present))?;
        let others = self.former.iter().filter(|one| !is_same(&one.plan, present));
        let fastest = others.min_by(|a, b| a.us.total_cmp(&b.us)).cloned();
        let us = match &self.state {
            State::Over => return None,
            State::Trying(_) => sample.of_trial(fastest.as_ref().map(|one| one.us))?,
            State::Watching => sample.median()?,
        };
        if let State::Watching = self.state {
            let better = fastest.filter(|before| us > before.us * WORSE);
            if better.is_none() && us <= predicted_us * DISAPPOINTING + SLACK_US {
                // The next ones are judged apart.
                self.present = Some(Sample::of(large(present)));
                self.learn(present, us);
                return None;
            }
            // The plan before is measured again, because other things may have changed.
            self.former.clear();
            let better = better.map(|before| before.plan);
            self.state = State::Trying(better.into_iter().chain(runner_ups(us)).collect());
        }
        self.learn(present, us);
        self.next_trial(present)
    }

    fn next_trial(&mut self, present: &Plan) -> Option<Plan> {
        if let State::Trying(untried) = &mut self.state {
            let is_new = |plan: &Plan| !self.former.iter().any(|one| is_same(&one.plan, plan));
            while let Some(next) = untried.pop_front() {
                if is_new(&next) {
                    return Some(next);
                }
            }
        }
        self.state = State::Over;
        let fastest = self.former.iter().min_by(|a, b| a.us.total_cmp(&b.us))?;
        (!is_same(&fastest.plan, present)).then(|| self.said(fastest))
    }

    /// Whether plans are being tried.
    pub fn is_trying(&self) -> bool {
        matches!(self.state, State::Trying(_))
    }

    /// Whether this plan was measured to be slower than the present one.
    pub fn is_slower(&self, plan: &Plan, present: &Plan) -> bool {
        let us =
            |plan: &Plan| self.former.iter().find(|one| is_same(&one.plan, plan)).map(|one| one.us);
        us(plan).zip(us(present)).is_some_and(|(us, present_us)| us > present_us)
    }

    /// More is known of the network, and may have led to another plan, which is judged, too.
    pub fn reopen(&mut self) {
        if let State::Over = self.state {
            self.state = State::Watching;
        }
    }

    /// Rates have changed.
    pub fn forget(&mut self) {
        *self = Comparison::default();
    }

    fn learn(&mut self, plan: &Plan, us: f64) {
        self.former.retain(|one| !is_same(&one.plan, plan));
        self.former.push(Measured { plan: plan.clone(), us });
    }

    /// The plan with what was measured as its reason.
    fn said(&self, fastest: &Measured) -> Plan {
        let others: Vec<String> = self
            .former
            .iter()
            .filter(|one| !is_same(&one.plan, &fastest.plan))
            .map(|one| format!("{:.1} ms {}", one.us / 1e3, in_words(large(&one.plan))))
            .collect();
        let reason = format!(
            "by trial, because operations took longer than predicted: 1 MiB {} takes {:.1} ms, \
             against {}",
            in_words(large(&fastest.plan)),
            fastest.us / 1e3,
            others.join(" and ")
        );
        Plan { reason, ..fastest.plan.clone() }
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
/// After so many operations of another size in a row the comparison begins again.
const OTHERS_MAX: usize = 8;

#[cfg(test)]
mod tests;
