//! A peer of the demo: the process of a [`Member`](super::Member), controlled by JSON lines.

use super::message::{Answer, Event, Membership, Order};
use crate::itself;
use anyhow::{Context, Result, bail};
use potluck::plan::EngineKind;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// A running peer. Dropping it kills the process.
pub struct Peer {
    name: String,
    child: Child,
    orders: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
}

/// The parts of a peer that remain when it is started again.
pub struct Place<'a> {
    pub name: &'a str,
    pub home: &'a Path,
    pub log: &'a Path,
}

impl Peer {
    /// Starts a peer, which joins a group of at least `min` members.
    pub fn start(place: &Place<'_>, min: usize, key: &str, engine: EngineKind) -> Result<Peer> {
        let Place { name, home, log } = *place;
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::from(itself::command()?);
        command.args(["demo-member", "--name", name, "--min", &min.to_string()]);
        for variable in [
            "POTLUCK_NAMESPACE",
            "POTLUCK_JOB",
            "POTLUCK_PEERS",
            "POTLUCK_INTERFACES",
            "POTLUCK_PARTITION",
            "POTLUCK_MEMBERS",
        ] {
            command.env_remove(variable);
        }
        command
            .env("POTLUCK_HOME", home)
            .env("POTLUCK_KEY", key)
            .env("POTLUCK_ENGINE", engine.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let (Some(orders), Some(events)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{name} has no pipes")
        };
        Ok(Peer { name: name.to_owned(), child, orders, events: BufReader::new(events).lines() })
    }

    /// Its display name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a command.
    pub async fn tell(&mut self, order: &Order) -> Result<()> {
        let line = format!("{}\n", serde_json::to_string(order)?);
        self.orders
            .write_all(line.as_bytes())
            .await
            .with_context(|| format!("{} takes no orders", self.name))
    }

    /// The next event. A failure is an error.
    pub async fn event(&mut self) -> Result<Event> {
        let line =
            self.events.next_line().await?.with_context(|| format!("{} has ended", self.name))?;
        match serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))? {
            Event::Failed(why) => bail!("{}: {why}", self.name),
            event => Ok(event),
        }
    }

    /// Waits until it has joined.
    pub async fn joined(&mut self) -> Result<()> {
        match self.event().await? {
            Event::Joined => Ok(()),
            other => bail!("{} said {other:?} before it joined", self.name),
        }
    }

    /// The Context that it has taken.
    pub async fn context(&mut self) -> Result<Membership> {
        match self.event().await? {
            Event::Context(membership) => Ok(membership),
            other => bail!("{} said {other:?} instead of a context", self.name),
        }
    }

    /// The end of its call.
    pub async fn answer(&mut self) -> Result<Answer> {
        match self.event().await? {
            Event::Answered(answer) => Ok(answer),
            other => bail!("{} said {other:?} instead of an answer", self.name),
        }
    }

    /// Sends SIGKILL; returns when the process has ended.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("{} cannot be killed", self.name))
    }

    /// Ends its input, so that it leaves the group; kills it if that takes too long.
    pub async fn end(self) {
        let Peer { mut child, orders, .. } = self;
        drop(orders);
        if tokio::time::timeout(GOOD_BYE, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}

/// The time limit of a leave, which usually takes a few hundred milliseconds.
const GOOD_BYE: Duration = Duration::from_secs(3);
