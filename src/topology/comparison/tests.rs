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
    plan: Plan,
    /// The time for a MiB under a plan, in microseconds.
    us: fn(&Plan) -> f64,
    runner_ups: Vec<Plan>,
}

impl Group {
    fn of(plan: Plan, runner_ups: &[Plan], us: fn(&Plan) -> f64) -> Group {
        Group { comparison: Comparison::default(), plan, us, runner_ups: runner_ups.to_vec() }
    }

    /// Makes a call of so many bytes. Whether the plan changes.
    fn calls(&mut self, bytes: u64) -> bool {
        let us = (self.us)(&self.plan) * bytes as f64 / MIB as f64;
        self.comparison.note(&self.plan, [(bytes, us)].into_iter());
        let runner_ups = self.runner_ups.clone();
        let next = self.comparison.next(&self.plan, PREDICTED_US, |_| runner_ups);
        let changes = next.is_some();
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
    // The first call under a plan may have begun under the one before.
    let first = (ENOUGH, star(1));
    let rest = [star(0), star(2), star(0)].map(|plan| (ENOUGH + 1, plan));
    assert_eq!(group.call(100), [vec![first], rest.to_vec()].concat());
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
fn without_anything_better_the_plan_stays_and_is_not_asked_again() {
    let mut group = Group::of(ring(), &[], |_| 30_000.0);
    assert!(group.call(100).is_empty());
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 31_000.0 };
    let mut group = Group::of(ring(), &[star(1)], us);
    let there_and_back = [(ENOUGH, star(1)), (ENOUGH + 1, ring())];
    assert_eq!(group.call(100), there_and_back);
}

#[test]
fn a_hopeless_plan_is_left_after_two_calls() {
    let us = |plan: &Plan| if bare(plan) == ring() { 30_000.0 } else { 46_000.0 };
    let mut group = Group::of(ring(), &[star(1)], us);
    assert_eq!(group.call(100), [(ENOUGH, star(1)), (FAR_ENOUGH + 1, ring())]);
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
    assert_eq!(back_and_forth, [(ENOUGH + 1, ring())], "measured once more, and kept");
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
    assert_eq!(group.call(100), [(ENOUGH + 1, ring())]);
}
