//! A group of three machines with one node each; the last machine has a slow cable.

use crate::keys::KEY;
use crate::run::{Network, Ran, run, told};
use anyhow::{Result, ensure};
use potluck_harness::Peer;
use potluck_harness::peer::Start;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The time limit for the whole group to agree or measure.
pub const SOON: Duration = Duration::from_secs(60);

/// The nodes of `n1`, `n2` and `n3`, each of which has the machine's name as home.
pub struct Group {
    pub nodes: Vec<Peer>,
    pub network: Network,
}

impl Group {
    /// A group that begins with three members and goes on with two.
    pub fn up(names: [&str; 3]) -> Result<Group> {
        let mut group = Group { nodes: Vec::new(), network: Network::machines("slow1", 3)? };
        for (machine, name) in ["n1", "n2", "n3"].into_iter().zip(names) {
            told(&group.network.home(machine), &["join"], KEY)?;
            let start = Start {
                key: None,
                home: group.network.home(machine),
                name: name.to_owned(),
                engine: None,
                program: None,
                options: Vec::new(),
                variables: vec![("POTLUCK_MEMBERS", "3".into())],
            };
            let mut node = Peer::start(&group.network.lab, machine, &start)?;
            node.ask(&json!({"do": "join"}), "joined", SOON)?;
            group.nodes.push(node);
        }
        for node in &mut group.nodes {
            node.status_where(|status| status["state"] == "in", SOON)?;
        }
        Ok(group)
    }

    /// Runs the command on a machine, in the home of its node.
    pub fn run(&self, machine: &str, arguments: &[&str]) -> Result<Ran> {
        run(&mut self.network.command(machine, machine, arguments), "")
    }

    pub fn status(&self, machine: &str, flags: &[&str]) -> Result<Ran> {
        self.run(machine, &[&["status"], flags].concat())
    }

    /// The status once all links are measured and the plan uses the measurements.
    pub fn measured(&self, machine: &str) -> Result<Value> {
        let began = Instant::now();
        loop {
            let status = self.status(machine, &["--json"])?.json(0)?;
            let rates = |link: &Value| {
                link["there"]["rate_bps"].is_u64() && link["back"]["rate_bps"].is_u64()
            };
            let links = status["topology"]["links"]
                .as_array()
                .map_or(0, |links| links.iter().filter(|link| rates(link)).count());
            // With Gloo the group starts on Gloo and then switches to the native engine.
            let is_fitting = status["topology"]["plan"]
                .as_str()
                .is_some_and(|plan| plan.contains("whose links differ"));
            if links == 3 && is_fitting {
                return Ok(status);
            }
            ensure!(began.elapsed() < SOON, "not measured: {status}");
            // Polls: no event reports the end of the measurement.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn end(self) -> Result<()> {
        for mut node in self.nodes {
            node.process().terminate()?;
            ensure!(node.process().wait(SOON)?.success());
        }
        Ok(())
    }
}
