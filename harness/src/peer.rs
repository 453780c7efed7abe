//! A potluck node in its own process, controlled by JSON commands; it answers with JSON events. Its
//! program is `harness/peer`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::lab::Lab;
use crate::process::Child;
use crate::program;

/// A node under test. Dropping it kills the process.
#[derive(Debug)]
pub struct Peer {
    name: String,
    child: Child,
    /// Events that no call has returned yet.
    unclaimed: VecDeque<Value>,
}

/// The start options of a node.
#[derive(Clone, Debug)]
pub struct Start {
    /// `POTLUCK_KEY`; `None` leaves it unset.
    pub key: Option<String>,
    /// `POTLUCK_HOME`.
    pub home: PathBuf,
    /// The node's display name.
    pub name: String,
    /// `POTLUCK_ENGINE`; `None` leaves it unset.
    pub engine: Option<String>,
    /// The program, if it differs from the one that all tests use ([`program::peer`]).
    pub program: Option<PathBuf>,
    /// Further options of the program.
    pub options: Vec<String>,
    /// Further environment variables.
    pub variables: Vec<(&'static str, PathBuf)>,
}

/// The cluster key of all tests.
pub const KEY: &str = "plk1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaagxdk";

impl Peer {
    /// Starts a node on a machine of the lab. It is idle until it is told to join.
    pub fn start(lab: &Lab, machine: &str, start: &Start) -> Result<Peer> {
        let program = match &start.program {
            Some(program) => program.clone(),
            None => program::peer()?,
        };
        let mut command = lab.command(machine, program);
        command.args(["--name", &start.name]).args(&start.options);
        program::isolate(&mut command, &start.home);
        // Builds of other names are one group, too. `variables` may name another job.
        command.env("POTLUCK_JOB", "test");
        match &start.engine {
            Some(engine) => command.env("POTLUCK_ENGINE", engine),
            None => command.env_remove("POTLUCK_ENGINE"),
        };
        command.envs(start.variables.iter().cloned());
        if let Some(key) = &start.key {
            command.env("POTLUCK_KEY", key);
        }
        Ok(Peer {
            name: start.name.clone(),
            child: Child::spawn_told(&mut command)?,
            unclaimed: VecDeque::new(),
        })
    }

    /// The node's display name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process, for signals and for its output.
    pub fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Its whole output: the events, and the log that `POTLUCK_LOG` enables.
    pub fn log(&self) -> String {
        [self.child.stdout(), self.child.stderr()]
            .concat()
            .iter()
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Sends a command, for example `json!({"do": "barrier"})`.
    pub fn order(&mut self, order: &Value) -> Result<()> {
        self.child.tell(&order.to_string())
    }

    /// The next event of this kind that no call has returned yet. Fails at once on an `error`
    /// event, unless `kind` is `error`.
    pub fn event(&mut self, kind: &str, within: Duration) -> Result<Value> {
        self.event_where(kind, |_| true, within)
    }

    /// The next event of this kind that satisfies `likes`; earlier events of this kind are
    /// discarded.
    pub fn event_where(
        &mut self,
        kind: &str,
        likes: impl Fn(&Value) -> bool,
        within: Duration,
    ) -> Result<Value> {
        let until = Instant::now() + within;
        let mut known = 0;
        loop {
            while let Some(event) = self.unclaimed.get(known) {
                if event["event"] == kind && likes(event) {
                    return self.unclaimed.remove(known).context("it was there");
                }
                if event["event"] == "error" && kind != "error" {
                    let event = self.unclaimed.remove(known).context("it was there")?;
                    bail!("{}: waiting for {kind:?}, got {event}{}", self.name, self.complaints());
                }
                if event["event"] == kind {
                    self.unclaimed.remove(known);
                } else {
                    known += 1;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            let line = self.child.wait_for_line(|_| true, left);
            let line = line
                .with_context(|| format!("{}: no event {kind:?} within {within:?}", self.name))?;
            let event = serde_json::from_str(&line)
                .with_context(|| format!("{}: not JSON: {line}", self.name))?;
            self.unclaimed.push_back(event);
        }
    }

    /// Whether there is an unclaimed event that `likes`. Does not wait.
    pub fn has_said(&mut self, likes: impl Fn(&Value) -> bool) -> bool {
        while let Ok(line) = self.child.wait_for_line(|_| true, Duration::ZERO) {
            self.unclaimed.extend(serde_json::from_str::<Value>(&line));
        }
        self.unclaimed.iter().any(likes)
    }

    /// Sends a command and waits for the event.
    pub fn ask(&mut self, order: &Value, kind: &str, within: Duration) -> Result<Value> {
        self.order(order)?;
        self.event(kind, within)
    }

    /// The node's current status.
    pub fn status(&mut self) -> Result<Value> {
        self.ask(&json!({"do": "status"}), "status", Duration::from_secs(10))
    }

    /// Polls the status until it satisfies `likes`.
    pub fn status_where(
        &mut self,
        likes: impl Fn(&Value) -> bool,
        within: Duration,
    ) -> Result<Value> {
        let until = Instant::now() + within;
        loop {
            let status = self.status()?;
            if likes(&status) {
                return Ok(status);
            }
            if Instant::now() >= until {
                bail!("{}: not that status within {within:?}, but {status}", self.name);
            }
            // Polls the condition; the pause keeps the node from only answering.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn complaints(&self) -> String {
        let lines = self.child.stderr();
        let last = &lines[lines.len().saturating_sub(10)..];
        last.iter().map(|line| format!("\n  stderr: {line}")).collect()
    }
}

/// The current time, in the format of the field `at_ms` of events.
pub fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}

/// The order, with one field more if `is_this`.
pub fn with_if(is_this: bool, order: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut order = order.clone();
    if is_this {
        order[field] = value.into();
    }
    order
}
