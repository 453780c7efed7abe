//! Two programs of one cluster on the same machines are two groups.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{PATIENCE, has_members};
use potluck_harness::peer::Start;
use potluck_harness::{Chance, Group, Peer, Suite};
use serde_json::{Value, json};

use crate::{LAN, LO, all_exact, seed};

pub fn add(suite: &mut Suite) {
    suite.serial(
        "two jobs and observers on the same machines: none ends a call of another",
        &LAN,
        two_jobs,
    );
    suite.test_needing("who waits beside another job says so", &LO, waits_beside);
}

const JOBS: [&str; 2] = ["train", "quickstart"];

/// Calls of the job that is left alone in each round.
const CALLS: usize = 40;

/// A node of this job on this machine. Both jobs of a machine use one home. It has no state, so
/// that a View needs no sync after a restart.
fn start_of(group: &Group, machine: usize, job: &str) -> Start {
    let mut start = group.start(machine);
    start.options.push("--stateless".to_owned());
    start.variables.push(("POTLUCK_JOB", PathBuf::from(job)));
    start
}

/// Waits until this observer sees the members of both jobs, each in one View, and the other
/// observers.
fn sees_all(observer: &mut Peer, machines: usize) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = observer.ask(&json!({"do": "observed"}), "observed", PATIENCE)?;
        let nodes = seen["nodes"].as_array().context("a list")?;
        let observers = nodes.iter().filter(|node| node["observer"] == true).count();
        let one_view = |job: &str| {
            let of_job = nodes.iter().filter(|node| node["job"] == job && node["state"] == "in");
            let views: Vec<&Value> = of_job.map(|node| &node["view"]).collect();
            views.len() == machines && views.iter().all(|view| *view == views[0])
        };
        if JOBS.iter().all(|job| one_view(job)) && observers == machines - 1 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "it sees {seen}");
        // Polls: documents come once a second.
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// `POTLUCK_ROUNDS` rounds on five machines, else three rounds on three.
fn two_jobs() -> Result<()> {
    let rounds = std::env::var("POTLUCK_ROUNDS").ok().map(|text| text.parse()).transpose()?;
    let (machines, rounds) = rounds.map_or((3, 3), |rounds: usize| (5, rounds));
    let mut chance = Chance::new(seed("two jobs")?);
    let mut group = Group::empty("loop", machines)?;
    for machine in 0..machines {
        for job in JOBS {
            let start = start_of(&group, machine, job);
            group.add(machine, &start)?;
        }
    }
    let mut observers = Vec::new();
    for machine in 0..machines {
        let mut start = start_of(&group, machine, "observer");
        start.name = format!("o{}", machine + 1);
        let mut observer = Peer::start(&group.lab, &format!("n{}", machine + 1), &start)?;
        observer.ask(&json!({"do": "observe"}), "observing", PATIENCE)?;
        observers.push(observer);
    }
    group.all(&json!({"do": "join"}), "joined")?;
    for round in 0..rounds {
        let (steady, hit) = if chance.below(2) == 0 { (0, 1) } else { (1, 0) };
        let runs = |job: usize| move |index: usize| index % 2 == job;
        group.meet_of(runs(hit))?;
        let views = group.meet_of(runs(steady))?;
        for _ in 0..CALLS {
            let order = json!({"do": "all_reduce", "len": 40_001, "seed": round});
            group.chosen(runs(steady)).try_for_each(|peer| peer.order(&order))?;
        }
        let machine = chance.below(machines);
        let victim = 2 * machine + hit;
        let how = ["kill", "terminate", "leave"][chance.below(3)];
        match how {
            "kill" => group.peers[victim].process().kill()?,
            "terminate" => group.peers[victim].process().terminate()?,
            _ => drop(group.peers[victim].ask(&json!({"do": "leave"}), "left", PATIENCE)?),
        }
        group.go_on(|index| runs(hit)(index) && index != victim)?;
        let start = start_of(&group, machine, JOBS[hit]);
        let again = Peer::start(&group.lab, &format!("n{}", machine + 1), &start)?;
        group.peers[victim] = again;
        group.peers[victim].ask(&json!({"do": "join"}), "joined", PATIENCE)?;
        group.go_on(runs(hit))?;
        for call in 0..CALLS {
            let events = group.events(runs(steady), "done", PATIENCE)?;
            all_exact(&events).with_context(|| {
                format!("round {round}, call {call} of {}, {how} of the other", JOBS[steady])
            })?;
        }
        for peer in group.chosen(runs(steady)) {
            let status = peer.status()?;
            ensure!(status["view"]["id"] == views[0]["view"], "another View: {status}");
            ensure!(status["job"] == JOBS[steady], "{status}");
            // Neither the other job nor an observer has a link with it.
            ensure!(status["peers"].as_array().map(Vec::len) == Some(machines - 1), "{status}");
        }
        for observer in &mut observers {
            sees_all(observer, machines).with_context(|| format!("round {round}"))?;
        }
    }
    println!("measured: {rounds} rounds on {machines} machines, {CALLS} calls each");
    Ok(())
}

fn waits_beside() -> Result<()> {
    let mut group = Group::empty("lo", 1)?;
    for job in ["train", "train", "quickstart"] {
        let start = start_of(&group, 0, job);
        group.add(0, &start)?;
    }
    group.peers[0].order(&json!({"do": "join"}))?;
    group.peers[1].order(&json!({"do": "join"}))?;
    group.meet_of(|index| index < 2)?;
    let sentence = "job `train` runs on p1, p1; this is `quickstart`";
    // It is no job, so nobody names it.
    let mut observer = Peer::start(&group.lab, "n1", &start_of(&group, 0, "observer"))?;
    observer.ask(&json!({"do": "observe"}), "observing", PATIENCE)?;
    group.peers[2].ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    let says_so = |status: &Value| {
        status["reasons"].as_array().is_some_and(|all| all.iter().any(|said| said == sentence))
    };
    let status = group.peers[2].status_where(says_so, PATIENCE)?;
    ensure!(status["peers"] == json!([]) && status["view"].is_null(), "{status}");
    ensure!(!status.to_string().contains("`observer`"), "{status}");
    // Another one of its job, and the reason is gone.
    let start = start_of(&group, 0, "quickstart");
    group.add(0, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    group.go_on(|index| index >= 2)?;
    let is_silent = |status: &Value| has_members(status, 2) && !says_so(status);
    group.peers[2].status_where(is_silent, Duration::from_secs(5))?;
    group.go_on(|index| index < 2)
}
