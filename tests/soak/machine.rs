//! The processes of a run, each with the machine of the lab on which it runs.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use potluck_harness::peer::KEY;
use potluck_harness::program::isolate;
use potluck_harness::{Child, Lab};

use crate::conductor::Plan;
use crate::node::log::Log;
use crate::watch::Tail;

/// The processes that form one group.
pub struct Job {
    /// `POTLUCK_JOB`.
    pub name: &'static str,
    /// The logs of its processes and its faults.
    pub folder: PathBuf,
    pub log: Log,
}

/// A process under test, and the machine of the lab on which it runs.
pub struct Machine {
    pub name: String,
    pub machine: String,
    /// The index of its job.
    pub job: usize,
    pub child: Option<Child>,
    /// A disk of its own.
    pub home: PathBuf,
    pub life: u64,
    pub watch: Option<Tail>,
    pub is_stopped: bool,
    /// It was asked to end, and may be starting.
    pub leaves: bool,
}

impl Machine {
    /// Starts the process anew, with a rule broken if one is named.
    pub fn start(&mut self, lab: &Lab, job: &Job, plan: &Plan, mutant: Option<&str>) -> Result<()> {
        let path = job.folder.join(format!("{}-{}.jsonl", self.name, self.life));
        let mut command = lab.command(&self.machine, std::env::current_exe()?);
        command.arg("node").arg(&self.name);
        command.args([self.life.to_string(), plan.seed.to_string()]).arg(&path);
        isolate(&mut command, &self.home);
        command.env("POTLUCK_KEY", KEY).env("POTLUCK_JOB", job.name);
        command.env("POTLUCK_ENGINE", &plan.engine).env_remove("POTLUCK_MUTANT");
        if let Some(mutant) = mutant {
            command.env("POTLUCK_MUTANT", mutant);
        }
        self.child = Some(Child::spawn_told(&mut command)?);
        self.watch = Some(Tail::new(&path, &self.name));
        (self.is_stopped, self.leaves) = (false, false);
        Ok(())
    }

    /// Keeps what the process wrote to its standard error.
    pub fn keep_words(&self, job: &Job) -> Result<()> {
        let said = self.child.as_ref().map(Child::stderr).unwrap_or_default();
        if said.is_empty() {
            return Ok(());
        }
        let path = job.folder.join(format!("{}-{}.stderr", self.name, self.life));
        Ok(fs::write(path, said.join("\n"))?)
    }
}
