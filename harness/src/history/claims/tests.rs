//! Logs made by hand: a clean one passes, and each claim violated once is found.

use serde_json::{Value, json};

use super::super::inputs::{chained, hash};
use super::super::record::History;
use super::super::reference::{Expected, Place};
use super::super::what::{Coded, DType, Kind, Op, What};
use super::{CLAIMS, check};

const SEED: u64 = 7;
const FIRST: &str = "1#aa";
const SECOND: &str = "2#bb";

/// The events of three nodes, and of the process that disturbs them.
#[derive(Clone)]
struct Logs {
    nodes: Vec<Vec<Value>>,
    faults: Vec<Value>,
}

fn members() -> Vec<String> {
    ["p1", "p2", "p3"].map(str::to_owned).to_vec()
}

fn sum() -> What {
    What { dtype: DType::F32, len: 5, op: Op::Sum, ..What::of(Kind::AllReduce) }
}

fn place<'a>(view: &'a str, k: u64, members: &'a [String]) -> Place<'a> {
    Place { seed: SEED, view, lane: 1, k, members }
}

fn before(what: &What, rank: usize, view: &str, k: u64) -> u64 {
    let members = members();
    hash(&place(view, k, &members).given(what, rank, 0, 0..what.len))
}

fn sum_of(what: &What, view: &str, k: u64) -> u64 {
    match place(view, k, &members()).expected(what, 0, &[]) {
        Expected::Buffer(hash) => hash,
        other => panic!("not a buffer: {other:?}"),
    }
}

impl Logs {
    /// All three install the first View, sync, and make two calls there; then the second View.
    fn clean() -> Logs {
        let mut logs = Logs { nodes: Vec::new(), faults: Vec::new() };
        for (rank, node) in members().iter().enumerate() {
            let mut events = vec![json!({"e": "start", "t": 1, "node": node, "life": 0})];
            events.push(json!({"e": "installed", "t": 2, "view": FIRST, "members": members()}));
            events
                .push(json!({"e": "took", "t": 3, "lane": 1, "view": FIRST, "members": members()}));
            events.extend(synced(1, (0, 0), (0, 0)));
            let mut digest = 0;
            for k in 0..2u64 {
                let result = sum_of(&sum(), FIRST, k);
                events.push(called(10 + k, k, &sum(), before(&sum(), rank, FIRST, k)));
                events.push(returned(10 + k, "ok", result));
                digest = chained(digest, FIRST, k, result);
                events.push(json!({
                    "e": "applied", "t": 100 + k, "lane": 1, "view": FIRST, "k": k,
                    "version": k + 1, "digest": digest,
                }));
            }
            events.push(json!({"e": "installed", "t": 200, "view": SECOND, "members": members()}));
            logs.nodes.push(events);
        }
        logs
    }

    /// The names of the claims that do not hold, each once.
    fn broken(&self) -> Vec<&'static str> {
        let mut history = History::default();
        for events in self.nodes.iter().chain([&self.faults]) {
            let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
            history.add(&lines).expect("the log is well-formed");
        }
        let mut claims: Vec<_> =
            check(&history, SEED).violations.iter().map(|found| found.claim).collect();
        claims.dedup();
        claims.sort_unstable();
        claims.dedup();
        claims
    }

    /// Changes the event of this kind and call of one node.
    fn change(&mut self, node: usize, kind: &str, id: u64, field: &str, value: Value) {
        let found = self.nodes[node].iter_mut().find(|e| e["e"] == kind && e["id"] == id);
        found.expect("such an event")[field] = value;
    }

    fn applied(&mut self, node: usize, k: u64, field: &str, value: Value) {
        let found = self.nodes[node].iter_mut().find(|e| e["e"] == "applied" && e["k"] == k);
        found.expect("such an event")[field] = value;
    }

    fn without(&mut self, node: usize, kind: &str, id: u64) {
        self.nodes[node].retain(|event| event["e"] != kind || event["id"] != id);
    }
}

fn called(id: u64, k: u64, what: &What, before: u64) -> Value {
    json!({
        "e": "call", "t": 20 + id, "id": id, "lane": 1, "view": FIRST, "k": k,
        "what": what, "way": "await", "before": before,
    })
}

fn returned(id: u64, code: &str, after: u64) -> Value {
    json!({"e": "return", "t": 40 + id, "id": id, "code": code, "cause": "", "after": after})
}

fn synced(id: u64, from: (u64, u64), to: (u64, u64)) -> [Value; 2] {
    let mut call = called(id, 0, &What::of(Kind::Sync), 0);
    (call["version"], call["digest"]) = (from.0.into(), from.1.into());
    let mut end = returned(id, "ok", 0);
    (end["version"], end["digest"]) = (to.0.into(), to.1.into());
    [call, end]
}

#[test]
fn a_clean_log_passes() {
    assert_eq!(Logs::clean().broken(), [""; 0]);
}

#[test]
fn every_claim_violated_once_is_found() {
    type Change = fn(&mut Logs);
    let aborted = |logs: &mut Logs, node: usize, cause: &str| {
        let untouched = before(&sum(), node, FIRST, 1);
        logs.change(node, "return", 11, "code", "aborted".into());
        logs.change(node, "return", 11, "cause", cause.into());
        logs.change(node, "return", 11, "after", untouched.into());
        logs.nodes[node].retain(|event| event["e"] != "applied" || event["k"] != 1);
    };
    let mut split = Logs::clean();
    aborted(&mut split, 1, "member-lost");
    assert_eq!(split.broken(), ["outcome"], "they go on together");
    let mut apart = Logs::clean();
    aborted(&mut apart, 1, "member-lost");
    apart.nodes[1].pop();
    assert_eq!(apart.broken(), [""; 0], "the second member went elsewhere");
    let mut one = apart.clone();
    one.faults.push(json!({"e": "majority", "t": 0}));
    assert_eq!(one.broken(), ["outcome"], "only one group goes on");
    aborted(&mut apart, 1, "deadline");
    assert_eq!(apart.broken(), ["outcome"], "a deadline is voted by all");

    let table: [(&str, Change); 13] = [
        ("call", |logs| logs.change(0, "call", 10, "what", json!(What { len: 6, ..sum() }))),
        ("call", |logs| logs.change(0, "call", 11, "k", 0.into())),
        ("call", |logs| logs.change(2, "return", 11, "code", "mismatch".into())),
        ("call", |logs| {
            logs.nodes[1].push(called(12, 2, &sum(), 5));
            logs.nodes[1].push(returned(12, "lost-result", 5));
        }),
        ("value", |logs| (0..3).for_each(|n| logs.change(n, "return", 10, "after", 5.into()))),
        ("buffer", |logs| {
            logs.change(1, "return", 11, "code", "indeterminate".into());
            logs.change(1, "return", 11, "after", 5.into());
        }),
        ("state", |logs| logs.applied(2, 1, "digest", 5.into())),
        ("state", |logs| logs.applied(2, 1, "version", 5.into())),
        ("sync", |logs| logs.nodes[0].extend(synced(20, (0, 0), (9, 9)))),
        ("sync", |logs| {
            logs.nodes[0].extend(synced(20, (2, 9), (2, 9)));
        }),
        ("vote", |logs| logs.nodes[0].push(json!({"e": "withheld", "t": 50, "who": "p2"}))),
        ("hang", |logs| logs.faults.push(json!({"e": "hang", "t": 50, "text": "call 3"}))),
        ("open", |logs| logs.without(1, "return", 11)),
    ];
    for (claim, change) in table {
        let mut logs = Logs::clean();
        change(&mut logs);
        assert!(logs.broken().contains(&claim), "{claim}: {:?}", logs.broken());
    }
    let tried: Vec<&str> = table.iter().map(|(claim, _)| *claim).collect();
    for (claim, _) in CLAIMS {
        let elsewhere = ["outcome", "one-history"].contains(&claim);
        assert!(elsewhere || tried.contains(&claim), "no log violates {claim}");
    }
}

#[test]
fn a_dropped_call_whose_result_was_kept_counts_as_its_result() {
    let mut logs = Logs::clean();
    let untouched = before(&sum(), 0, FIRST, 1);
    logs.change(0, "call", 11, "way", "drop".into());
    logs.change(0, "return", 11, "code", "dropped".into());
    logs.change(0, "return", 11, "after", untouched.into());
    let kept = |result: u64| json!({"e": "kept", "t": 60, "id": 11, "result": result});
    logs.nodes[0].push(kept(sum_of(&sum(), FIRST, 1)));
    assert_eq!(logs.broken(), [""; 0]);
    logs.nodes[0].pop();
    logs.nodes[0].push(kept(5));
    assert_eq!(logs.broken(), ["value"]);
}

/// The ranks 0 and 2 call in a sub-group.
#[test]
fn the_result_of_a_group_is_that_of_its_ranks() {
    let what = What { ranks: vec![0, 2], ..sum() };
    let group = what.among(&members());
    assert_eq!(group, ["p1", "p3"]);
    let at = place(FIRST, 2, &group);
    let Expected::Buffer(result) = at.expected(&what, 0, &[]) else { panic!("not a buffer") };
    let mut logs = Logs::clean();
    for (rank, node) in [0, 2].into_iter().enumerate() {
        let before = hash(&at.given(&what, rank, 0, 0..what.len));
        logs.nodes[node].push(called(12, 2, &what, before));
        logs.nodes[node].push(returned(12, "ok", result));
    }
    assert_eq!(logs.broken(), [""; 0]);
    let mut wrong = logs.clone();
    wrong.change(2, "return", 12, "after", 5.into());
    assert_eq!(wrong.broken(), ["value"]);
    let mut other = logs.clone();
    other.change(2, "call", 12, "what", json!(What { ranks: vec![1, 2], ..sum() }));
    assert!(other.broken().contains(&"call"), "another group: {:?}", other.broken());
    logs.nodes[1].push(called(12, 2, &what, 5));
    logs.nodes[1].push(returned(12, "aborted", 5));
    assert!(logs.broken().contains(&"call"), "rank 1 is not in it: {:?}", logs.broken());
}

#[test]
fn what_a_killed_process_has_open_is_no_violation() {
    let mut logs = Logs::clean();
    logs.without(1, "return", 11);
    logs.nodes[1].retain(|event| event["e"] != "applied" || event["k"] != 1);
    logs.faults.push(json!({"e": "killed", "t": 70, "node": "p2", "life": 0}));
    assert_eq!(logs.broken(), [""; 0]);
}

#[test]
fn two_groups_without_a_fault_are_a_violation_and_with_one_they_are_not() {
    let second = 1_000_000;
    let group = |names: [&str; 2], view: &str| {
        let events = names.map(|node| {
            let mut events = vec![json!({"e": "start", "t": 0, "node": node, "life": 0})];
            events.push(json!({"e": "installed", "t": 1, "view": view, "members": names}));
            for k in 0..20u64 {
                let digest = chained(0, view, k, k);
                events.push(json!({
                    "e": "applied", "t": (k + 1) * second, "lane": 1, "view": view, "k": k,
                    "version": k + 1, "digest": digest,
                }));
            }
            events
        });
        events.to_vec()
    };
    let nodes = [group(["p1", "p2"], FIRST), group(["p3", "p4"], SECOND)].concat();
    let mut logs = Logs { nodes, faults: Vec::new() };
    assert_eq!(logs.broken(), ["one-history"]);
    // The same while a member of one group keeps one of the other out, and not while it keeps out
    // another node.
    for (who, broken) in [("p3", &[][..]), ("p2", &["one-history"][..])] {
        let mut kept_out = Logs { nodes: logs.nodes.clone(), faults: Vec::new() };
        for t in (0..20).map(|n| n * second + 2) {
            kept_out.nodes[0].push(json!({"e": "status", "t": t, "kept_out": [who]}));
        }
        kept_out.nodes[0].sort_by_key(|event| event["t"].as_u64());
        assert_eq!(kept_out.broken(), broken);
    }
    for n in 0..5 {
        let (from, until) = (n * 4 * second, (n * 4 + 1) * second);
        logs.faults.push(json!({"e": "struck", "t": from, "n": n, "kind": "cut", "who": ["p1"]}));
        logs.faults.push(json!({"e": "healed", "t": until, "n": n}));
    }
    assert_eq!(logs.broken(), [""; 0], "they had no time to meet");
}

#[test]
fn a_result_that_may_be_rounded_is_near_the_exact_one() {
    let what = What { coded: Coded::Int8, ..sum() };
    let Expected::Near(exact, most) = place(FIRST, 0, &members()).expected(&what, 0, &[]) else {
        panic!("it may be rounded");
    };
    let with = |error: f64| {
        let mut logs = Logs::clean();
        for node in 0..3 {
            let values: Vec<f64> = exact.iter().map(|value| value + error).collect();
            logs.change(node, "call", 10, "what", json!(what));
            logs.change(node, "return", 10, "values", values.into());
        }
        logs.broken()
    };
    assert_eq!(with(0.9 * most), [""; 0]);
    assert_eq!(with(1.1 * most), ["value"]);
}

#[test]
fn the_noise_of_four_bits_has_a_bound() {
    let what = What { coded: Coded::Int4, ..sum() };
    let Expected::Noisy(exact, most) = place(FIRST, 0, &members()).expected(&what, 0, &[]) else {
        panic!("it may be rounded");
    };
    let with = |error: f64| {
        let mut logs = Logs::clean();
        for node in 0..3 {
            // A few elements may be far off.
            let mut values = exact.clone();
            values[0] += error * (exact.len() as f64).sqrt();
            logs.change(node, "call", 10, "what", json!(what));
            logs.change(node, "return", 10, "values", values.into());
        }
        logs.broken()
    };
    assert_eq!(with(0.9 * most), [""; 0]);
    assert_eq!(with(1.1 * most), ["value"]);
}

#[test]
fn the_end_of_a_log_that_was_cut_off_is_left_out() {
    let mut history = History::default();
    let log = "{\"e\":\"start\",\"t\":1,\"node\":\"p1\",\"life\":0}\n{\"e\":\"left\",\"t\"";
    history.add(log).expect("the whole line");
    assert_eq!((history.lives.len(), history.lives[0].left), (1, None));
}
