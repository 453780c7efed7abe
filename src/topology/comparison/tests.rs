//! The comparison of plans by the durations of operations.

use super::*;
use crate::protocol::{Rank, Tree};

const MIB: u64 = 1 << 20;
/// The prediction for all plans, per MiB.
const PREDICTED_US: f64 = 10_000.0;

fn ring() -> Plan {
    Plan::of_one(256 * 1024, Algorithm::Ring { order: vec![Rank(0), Rank(1), Rank(2)] })
}

fn star(root: u8) -> Plan {
    Plan::of_one(256 * 1024, Algorithm::tree(Tree::star(Rank(root), 3)))
}

/// A group that goes by the plans that the comparison wants.
struct Group {
    comparison: Comparison,
    now: u64,
    plan: Plan,
    /// The time for a MiB under a plan, in microseconds.
    us: fn(&Plan) -> f64,
    runner_ups: Vec<Plan>,
}

impl Group {
    fn of(plan: Plan, runner_ups: &[Plan], us: fn(&Plan) -> f64) -> Group {
        let comparison = Comparison::default();
        Group { comparison, now: 0, plan, us, runner_ups: runner_ups.to_vec() }
    }

    /// Makes a call of so many bytes. Whether the plan changes.
    fn calls(&mut self, bytes: u64) -> bool {
        let us = (self.us)(&self.plan) * bytes as f64 / MIB as f64;
        self.comparison.note(self.now, &self.plan, [(bytes, us)].into_iter());
        self.looks()
    }

    /// Whether the plan changes.
    fn looks(&mut self) -> bool {
        let runner_ups = self.runner_ups.clone();
        let is_due = self.comparison.is_due(self.now, &self.plan);
        let next = self.comparison.next(self.now, &self.plan, PREDICTED_US, |_| runner_ups);
        let changes = next.is_some();
        assert!(is_due || !changes, "it was not due");
        self.plan = next.unwrap_or_else(|| self.plan.clone());
        changes
    }

    /// So many calls of 4 MiB; the number of calls until each change of the plan, and the plan.
    fn call(&mut self, times: usize) -> Vec<(usize, Plan)> {
        let (mut changes, mut since) = (Vec::new(), 0);
        for _ in 0..times {
            since += 1;
            if self.calls(4 * MIB) {
                changes.push((std::mem::take(&mut since), bare(&self.plan)));
            }
        }
        changes
    }
}

/// Without its reason.
fn bare(plan: &Plan) -> Plan {
    Plan { reason: String::new(), ..plan.clone() }
}

#[test]
fn a_plan_that_keeps_its_promise_stays() {
    let mut group = Group::of(ring(), &[star(0)], |_| PREDICTED_US * 1.4);
    assert!(group.call(100).is_empty());
}

#[test]
fn of_plans_that_disappoint_the_fastest_stays() {
    let us = |plan: &Plan| match () {
        () if bare(plan) == ring() => 30_000.0,
        () if bare(plan) == star(0) => 25_000.0,
        () => 28_000.0,
    };
    let mut group = Group::of(ring(), &[star(1), star(0), star(2), ring()], us);
    let tried = [star(1), star(0), star(2), star(0)].map(|plan| (ENOUGH, plan));
    assert_eq!(group.call(100), tried);
    assert_eq!(
        group.plan.reason,
        "by trial, because operations took longer than predicted: 1 MiB over a tree to 0 \
         takes 25.0 ms, against 30.0 ms round a ring and 28.0 ms over a tree to 1 and 28.0 ms \
         over a tree to 2"
    );
    assert!(group.comparison.is_slower(&ring(), &star(0)));
    assert!(!group.comparison.is_slower(&star(0), &ring()));
    group.comparison.forget();
    assert!(!group.comparison.is_slower(&ring(), &star(0)), "the rates are others");
}

#[test]
fn the_reason_of_a_plan_by_trial_still_says_what_is_taken_of_codecs() {
    let codecs = "; Codec::auto takes int8: 64 MiB take about 5900 ms as they are, int8 1500 ms";
    let reasoned = Plan { reason: format!("by forecast{codecs}"), ..star(0) };
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 25_000.0 };
    let mut group = Group::of(ring(), &[reasoned], us);
    assert_eq!(group.call(100).len(), 2);
    let (trial, told) = group.plan.reason.split_once(';').expect("two sentences");
    assert!(trial.starts_with("by trial") && codecs == format!(";{told}"), "{trial};{told}");
}

#[test]
fn without_anything_better_the_plan_stays_and_is_not_asked_again() {
    let mut group = Group::of(ring(), &[], |_| 30_000.0);
    assert!(group.call(100).is_empty());
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 31_000.0 };
    let mut group = Group::of(ring(), &[star(1)], us);
    let there_and_back = [(ENOUGH, star(1)), (ENOUGH, ring())];
    assert_eq!(group.call(100), there_and_back);
}

#[test]
fn a_hopeless_plan_is_left_after_two_calls() {
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 46_000.0 };
    let mut group = Group::of(ring(), &[star(1)], us);
    assert_eq!(group.call(100), [(ENOUGH, star(1)), (FAR_ENOUGH, ring())]);
}

#[test]
fn a_plan_that_is_slower_than_the_one_before_it_is_left() {
    // Both take less than is tolerated.
    let us = |plan: &Plan| if bare(plan) == ring() { 10_000.0 } else { 13_000.0 };
    let mut group = Group::of(ring(), &[], us);
    assert!(group.call(2 * ENOUGH).is_empty());
    // New measurements promise more.
    group.plan = star(0);
    let back_and_forth = group.call(100);
    let kept = [(ENOUGH, ring()), (ENOUGH, ring())];
    assert_eq!(back_and_forth, kept, "measured once more, and kept, with the reason");
}

#[test]
fn only_calls_of_about_one_size_are_compared() {
    let mut group = Group::of(ring(), &[star(1)], |_| 30_000.0);
    assert!(group.call(ENOUGH - 1).is_empty());
    assert!(!group.calls(MIB) && !group.calls(64 * MIB) && !group.calls(MIB / 2));
    assert_eq!(group.call(1), [(1, star(1))]);

    let mut group = Group::of(ring(), &[star(1)], |_| 30_000.0);
    assert!(group.call(ENOUGH - 1).is_empty());
    assert!((0..=OTHERS_MAX).all(|_| !group.calls(64 * MIB)));
    let until_change = (1..100).find(|_| group.calls(64 * MIB));
    assert_eq!(until_change, Some(ENOUGH), "it begins again with calls of that size");
}

#[test]
fn what_is_known_later_is_judged_again_beside_what_was_measured() {
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 40_000.0 };
    let mut group = Group::of(ring(), &[], us);
    assert!(group.call(100).is_empty(), "over");
    group.comparison.reopen();
    group.plan = star(0);
    assert_eq!(group.call(100), [(ENOUGH, ring()), (ENOUGH, ring())]);
}

#[test]
fn a_plan_on_trial_that_stays_gets_its_reason() {
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 20_000.0 };
    let mut group = Group::of(ring(), &[star(1)], us);
    assert_eq!(group.call(100), [(ENOUGH, star(1)), (ENOUGH, star(1))]);
    assert!(group.plan.reason.starts_with("by trial"), "{}", group.plan.reason);
}

#[test]
fn trials_that_end_early_leave_the_fastest_plan_so_far() {
    let us = |plan: &Plan| match () {
        () if bare(plan) == ring() => 30_000.0,
        () if bare(plan) == star(1) => 25_000.0,
        () => 40_000.0,
    };
    let on_trial = || {
        let mut group = Group::of(ring(), &[star(1), star(2)], us);
        assert_eq!(group.call(2 * ENOUGH).len(), 2);
        assert_eq!(bare(&group.plan), star(2));
        group
    };
    // The program makes no such calls any more.
    let mut group = on_trial();
    group.now += LEFT_ALONE_MS - 1;
    assert!(!group.looks());
    group.now += 1;
    assert!(group.looks() && bare(&group.plan) == star(1));
    assert!(group.call(100).is_empty(), "over");
    // It makes others.
    let mut group = on_trial();
    assert!((0..OTHERS_MAX).all(|_| !group.calls(64 * MIB)));
    assert!(group.calls(64 * MIB) && bare(&group.plan) == star(1));
    // Rates change, and no other plan is found.
    let mut group = on_trial();
    group.comparison.forget();
    assert!(group.looks() && bare(&group.plan) == star(1));
    // Or one is found.
    let mut group = on_trial();
    group.comparison.forget();
    group.comparison.replaced();
    assert!(!group.looks());
    // Before anything is measured, the plan that disappointed is the best one.
    let mut group = Group::of(ring(), &[star(1)], us);
    assert_eq!(group.call(ENOUGH), [(ENOUGH, star(1))]);
    group.comparison.forget();
    assert!(group.looks() && group.plan == ring());
}
