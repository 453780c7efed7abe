//! An outsider cannot tell which nodes run the same job, nor the names of jobs.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;
use crate::intruder::{Intruder, hex};

pub fn add(suite: &mut Suite) {
    suite.serial("adverts of one job look as different as those of two", &LAN, unlinkable);
}

/// The job of the first two nodes.
const JOB: &str = "a-job-of-two";

fn unlinkable() -> Result<()> {
    let mut group = Group::empty("loop", 4)?;
    let mut capture = Intruder::on_the_switch(&group.lab, &["capture", &hex(JOB.as_bytes())])?;
    capture.event("capturing")?;
    let address = group.lab.addr("n4").to_string();
    let python = group.lab.command("n4", "python3");
    let mut outsider = Intruder::running("adverts.py", python, &[&address])?;
    outsider.event("listening")?;
    for (machine, job) in [(0, JOB), (1, JOB), (2, "another-job")] {
        let mut start = group.start(machine);
        start.variables.push(("POTLUCK_JOB", PathBuf::from(job)));
        group.add(machine, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    }
    group.meet_of(|index| index < 2)?;
    // The third one has asked for the name of the others' job, under encryption.
    let names_it = |status: &Value| status["reasons"].to_string().contains(JOB);
    group.peers[2].status_where(names_it, PATIENCE)?;
    // The first node again: another start of the same job.
    group.peers[0].process().kill()?;
    let mut start = group.start(0);
    start.variables.push(("POTLUCK_JOB", PathBuf::from(JOB)));
    group.add(0, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    let mut tags = BTreeSet::new();
    for _ in 0..4 {
        let advert = outsider.event("advert")?;
        let fields: Vec<&String> =
            advert.as_object().context("fields")?.keys().filter(|key| *key != "event").collect();
        ensure!(fields == ["b", "j", "s", "t", "v"], "{advert}");
        for field in ["t", "j"] {
            let tag = advert[field].as_str().context("a tag")?;
            ensure!(tag.len() == 16 && tags.insert(tag.to_owned()), "seen before: {advert}");
        }
    }
    let seen = capture.captured()?;
    ensure!(seen["hits"] == 0, "the name of the job is on the wire: {seen}");
    Ok(())
}
