//! The machines of a lab, on which this program starts itself.

use anyhow::{Context, Result, ensure};
use potluck_harness::program::isolate;
use potluck_harness::{Child, Lab, Scratch};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The time limit for a line of a peer; only a failing run reaches it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The bare Gloo program, which `scripts/bench.sh` puts beside this one; or the reason why there is
/// none.
pub fn bare_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("bare-gloo");
    ensure!(
        program.is_file(),
        "there is no `bare-gloo` beside this program; `make bench` builds it"
    );
    Ok(program)
}

/// The engine of the peers; always explicit, independent of the environment and the build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Native,
    Gloo,
}

impl Engine {
    /// The name in `POTLUCK_ENGINE` and of `Context::engine`.
    pub fn word(self) -> &'static str {
        match self {
            Engine::Native => "native",
            Engine::Gloo => "gloo",
        }
    }
}

/// A lab, and a directory for the files of its machines.
pub struct Machines {
    lab: Lab,
    profile: &'static str,
    files: Scratch,
    /// The machine of each peer; of peer 1 first. Empty: peer `n` is on machine `n`.
    places: &'static [usize],
}

impl Machines {
    pub fn up(profile: &'static str, count: usize) -> Result<Machines> {
        Machines::on(Lab::up_with(profile, count)?, profile)
    }

    /// Like `up`, with this line rate in Mbit/s on every cable.
    pub fn up_at(profile: &'static str, count: usize, mbit: u32) -> Result<Machines> {
        Machines::on(Lab::up_at(profile, count, mbit)?, profile)
    }

    fn on(lab: Lab, profile: &'static str) -> Result<Machines> {
        Ok(Machines { lab, profile, files: Scratch::new()?, places: &[] })
    }

    /// With peer 1 on the first of these machines, and so on. Several peers may be on one: each has
    /// a home and an identity of its own, and they find by themselves that they share a host.
    pub fn with_places(self, places: &'static [usize]) -> Machines {
        Machines { places, ..self }
    }

    /// The name of the machine of peer `n`. A peer above those that have a place is on machine 1.
    fn node(&self, n: usize) -> String {
        let placed = self.places.get(n - 1).copied();
        format!("n{}", placed.unwrap_or(if self.places.is_empty() { n } else { 1 }))
    }

    /// Starts a peer on machine `n`, from 1 on, with these orders, in a group of `size`.
    pub fn start(&self, n: usize, size: usize, trusted: &str, order: &[&str]) -> Result<Child> {
        Child::spawn(&mut self.peer(n, size, trusted, order, Engine::Native)?)
    }

    /// Deletes the identity on machine `n`: the next peer there is a new node.
    pub fn forget(&self, n: usize) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.files.path().join(n.to_string()))?)
    }

    /// Starts a peer that waits for commands.
    pub fn serve(&self, n: usize, size: usize, trusted: &str, engine: Engine) -> Result<Child> {
        Child::spawn_told(&mut self.peer(n, size, trusted, &["serve"], engine)?)
    }

    /// Starts peer `n` of a View of `size` that is formed in the order of the peers, of which all
    /// but the last are a group on a ring; see `peer.rs`. Peer `n - 1` must be in the View.
    pub fn ring(&self, n: usize, size: usize) -> Result<Child> {
        let order = ["ring", &n.to_string()];
        Child::spawn_told(&mut self.peer(n, size, "-", &order, Engine::Gloo)?)
    }

    /// Starts `program`, Gloo without potluck, as one of `size`; it waits for commands.
    pub fn bare(&self, n: usize, size: usize, program: &Path) -> Result<Child> {
        let mut command = self.lab.command(&self.node(n), program);
        command.args([(n - 1).to_string(), size.to_string()]).arg(self.files.path().join("store"));
        command.arg(self.lab.addr(&self.node(n)).to_string()).arg("-");
        Child::spawn_told(&mut command)
    }

    /// The interface of its machines.
    pub fn interface(&self) -> &'static str {
        if self.profile == "lo" { "lo" } else { "eth0" }
    }

    fn peer(
        &self,
        n: usize,
        size: usize,
        trusted: &str,
        order: &[&str],
        engine: Engine,
    ) -> Result<Command> {
        let network = if self.profile == "lo" { "loopback" } else { "lan" };
        let home = self.files.path().join(n.to_string());
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = self.lab.command(&self.node(n), program);
        command.args(["peer", network, &size.to_string(), trusted]).args(order);
        isolate(&mut command, &home);
        command.env("POTLUCK_ENGINE", engine.word());
        Ok(command)
    }
}

/// The words after the next line's `title`.
pub fn answer(child: &mut Child, title: &str) -> Result<Vec<String>> {
    let line = child.wait_for_line(|line| line.split(' ').next() == Some(title), PATIENCE)?;
    Ok(line.split(' ').skip(1).map(str::to_owned).collect())
}

/// The number at this position of such a line.
pub fn number(words: &[String], at: usize) -> Result<f64> {
    ensure!(at < words.len(), "a peer's line is too short: {words:?}");
    words[at].parse().with_context(|| format!("not a number: {}", words[at]))
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) && middle > 0 {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

/// The 99th percentile (nearest rank).
pub fn p99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * 99).div_ceil(100) - 1]
}

pub fn worst(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
