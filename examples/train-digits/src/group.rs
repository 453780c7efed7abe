//! The members of a group, on the machines of a lab.

use crate::peer::Task;
use crate::train::{Order, Trained};
use anyhow::{Context as _, Result, ensure};
use potluck_harness::{Child, Lab};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time limit for an answer; only a failing run reaches it.
const PATIENCE: Duration = Duration::from_secs(300);

/// The number of members.
pub const MEMBERS: usize = 4;

/// A lab and its members.
pub struct Group {
    members: Vec<Child>,
    lab: Lab,
    network: &'static str,
    min_members: usize,
    digits: Option<PathBuf>,
    files: PathBuf,
    engine: String,
}

impl Group {
    /// All members on one machine, with a network of its own.
    pub fn on_one_machine(min_members: usize, digits: Option<&Path>) -> Result<Group> {
        Group::start(Lab::up_with("lo", MEMBERS)?, "loopback", min_members, digits)
    }

    /// Four members on four machines, each with a cable of this many Mbit/s.
    pub fn on_four_machines(mbit: u32, digits: Option<&Path>) -> Result<Group> {
        Group::start(Lab::up_at("loop", MEMBERS, mbit)?, "lan", MEMBERS, digits)
    }

    fn start(
        lab: Lab,
        network: &'static str,
        min_members: usize,
        digits: Option<&Path>,
    ) -> Result<Group> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "train-digits-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let (files, digits) = (std::env::temp_dir().join(name), digits.map(Path::to_owned));
        let mut group = Group {
            members: Vec::new(),
            lab,
            network,
            min_members,
            digits,
            files,
            engine: String::new(),
        };
        for i in 0..MEMBERS {
            group.members.push(group.spawn(i)?);
        }
        for member in &mut group.members {
            group.engine = answer(member, "ready")?;
        }
        Ok(group)
    }

    /// The engine of the group.
    pub fn engine(&self) -> &str {
        &self.engine
    }

    fn spawn(&self, i: usize) -> Result<Child> {
        let mut command = self.lab.command(&format!("n{}", i + 1), std::env::current_exe()?);
        command.args(["peer", self.network, &self.min_members.to_string()]).args(&self.digits);
        command.env("POTLUCK_HOME", self.files.join(i.to_string()));
        // Matrix products run on one thread, so their order of addition is fixed.
        command.env("RAYON_NUM_THREADS", "1");
        for name in [
            "POTLUCK_PEERS",
            "POTLUCK_INTERFACES",
            "POTLUCK_KEY",
            "POTLUCK_NAMESPACE",
            "POTLUCK_PARTITION",
            "POTLUCK_MEMBERS",
        ] {
            command.env_remove(name);
        }
        Child::spawn_told(&mut command)
    }

    /// Lets all members train; returns their answers.
    pub fn train(&mut self, order: &Order) -> Result<Vec<Trained>> {
        self.begin(order)?;
        self.end()
    }

    /// Starts the training on all members and does not wait.
    pub fn begin(&mut self, order: &Order) -> Result<()> {
        let task = serde_json::to_string(&Task::Train(order.clone()))?;
        self.members.iter_mut().try_for_each(|member| member.tell(&task))
    }

    /// Waits for all members' answers. Fails if their parameters differed after any step.
    pub fn end(&mut self) -> Result<Vec<Trained>> {
        let trained = self
            .members
            .iter_mut()
            .map(|member| Ok(serde_json::from_str(&answer(member, "trained")?)?));
        let trained: Vec<Trained> = trained.collect::<Result<_>>()?;
        ensure!(
            trained
                .windows(2)
                .all(|pair| pair[0].chain == pair[1].chain && pair[0].steps == pair[1].steps),
            "the members' parameters differ after some step"
        );
        Ok(trained)
    }

    /// Waits until a member has done at least this many steps.
    pub fn at_step(&mut self, i: usize, step: u64) -> Result<()> {
        let reached = |line: &str| {
            line.strip_prefix("step ")
                .and_then(|done| done.parse().ok())
                .is_some_and(|done: u64| done >= step)
        };
        self.members[i].wait_for_line(reached, PATIENCE).map(drop)
    }

    /// Kills a member with SIGKILL.
    pub fn kill(&mut self, i: usize) -> Result<()> {
        self.members[i].kill()?;
        self.members[i].wait(PATIENCE).map(drop)
    }

    /// Starts a new process in its place and gives it the task.
    pub fn start_again(&mut self, i: usize, order: &Order) -> Result<()> {
        self.members[i] = self.spawn(i)?;
        self.members[i].tell(&serde_json::to_string(&Task::Train(order.clone()))?)
    }

    /// The seconds of each sum, each on the slowest member.
    pub fn sum(&mut self, elements: usize, codec: &str, rounds: usize) -> Result<Vec<f64>> {
        let task = serde_json::to_string(&Task::Sum { elements, codec: codec.to_owned(), rounds })?;
        self.members.iter_mut().try_for_each(|member| member.tell(&task))?;
        let mut slowest = vec![0.0; rounds];
        for member in &mut self.members {
            let seconds: Vec<f64> = serde_json::from_str(&answer(member, "summed")?)?;
            ensure!(seconds.len() == rounds, "{} sums", seconds.len());
            slowest
                .iter_mut()
                .zip(seconds)
                .for_each(|(most, s): (&mut f64, f64)| *most = most.max(s));
        }
        Ok(slowest)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The members must end before their machines.
        self.members.clear();
        // Keys of an ended group; on an error they stay in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

/// The rest of the next line whose first word is `title`.
fn answer(member: &mut Child, title: &str) -> Result<String> {
    let line = member.wait_for_line(|line| line.split(' ').next() == Some(title), PATIENCE)?;
    line.split_once(' ').map(|(_, rest)| rest.to_owned()).context("an answer")
}
