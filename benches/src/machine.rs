//! The machines of a lab, on which this program starts itself.

use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Lab};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time limit for a line of a peer; only a failing run reaches it.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    files: PathBuf,
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
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "potluck-bench-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        Ok(Machines { lab, profile, files: std::env::temp_dir().join(name) })
    }

    /// Starts a peer on machine `n`, from 1 on, with these orders, in a group of `size`.
    pub fn start(&self, n: usize, size: usize, trusted: &str, order: &[&str]) -> Result<Child> {
        Child::spawn(&mut self.peer(n, size, trusted, order, Engine::Native)?)
    }

    /// Deletes the identity on machine `n`: the next peer there is a new node.
    pub fn forget(&self, n: usize) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.files.join(n.to_string()))?)
    }

    /// Starts a peer that waits for commands.
    pub fn serve(&self, n: usize, size: usize, trusted: &str, engine: Engine) -> Result<Child> {
        Child::spawn_told(&mut self.peer(n, size, trusted, &["serve"], engine)?)
    }

    /// Starts `program`, Gloo without potluck, as one of `size`; it waits for commands.
    pub fn bare(&self, n: usize, size: usize, program: &Path) -> Result<Child> {
        std::fs::create_dir_all(&self.files)?;
        let mut command = self.lab.command(&format!("n{n}"), program);
        command.args([(n - 1).to_string(), size.to_string()]).arg(self.files.join("store"));
        command.arg(self.lab.addr(&format!("n{n}")).to_string()).arg("-");
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
        let home = self.files.join(n.to_string());
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = self.lab.command(&format!("n{n}"), program);
        command
            .args(["peer", network, &size.to_string(), trusted])
            .args(order)
            .env("POTLUCK_HOME", home);
        // The environment must not influence the measurement.
        for name in [
            "POTLUCK_PEERS",
            "POTLUCK_INTERFACES",
            "POTLUCK_KEY",
            "POTLUCK_NAMESPACE",
            "POTLUCK_PARTITION",
        ] {
            command.env_remove(name);
        }
        command.env("POTLUCK_ENGINE", engine.word());
        Ok(command)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Keys of ended groups; on an error they stay in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.files);
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
