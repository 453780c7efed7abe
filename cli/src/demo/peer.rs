//! One peer of the demo: a `potluck peer` process, controlled by JSON lines.

use anyhow::{Context, Result, bail};
use potluck::plan::EngineKind;
use serde_json::{Value, json};
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

impl Peer {
    /// Starts a peer with its own home directory.
    pub fn start(
        name: &str,
        home: &Path,
        log: &Path,
        key: &str,
        engine: EngineKind,
    ) -> Result<Peer> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["peer", "--loopback", "--name", name]);
        for variable in
            ["POTLUCK_NAMESPACE", "POTLUCK_PEERS", "POTLUCK_INTERFACES", "POTLUCK_PARTITION"]
        {
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
    pub async fn tell(&mut self, order: &Value) -> Result<()> {
        let line = format!("{order}\n");
        self.orders
            .write_all(line.as_bytes())
            .await
            .with_context(|| format!("{} takes no orders", self.name))
    }

    /// The next event, which must be one of `wanted`.
    pub async fn event(&mut self, wanted: &[&str]) -> Result<Value> {
        let line =
            self.events.next_line().await?.with_context(|| format!("{} has ended", self.name))?;
        let event: Value =
            serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))?;
        match event["event"].as_str() {
            Some(name) if wanted.contains(&name) => Ok(event),
            Some("error") => bail!(
                "{}: {}",
                self.name,
                event["message"].as_str().unwrap_or("an error without words")
            ),
            _ => bail!("{} said {event} instead of {}", self.name, wanted.join(" or ")),
        }
    }

    /// Sends SIGKILL; returns when the process has ended.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("{} cannot be killed", self.name))
    }

    /// Tells it to leave the group; kills it if that takes too long.
    pub async fn end(mut self) {
        // An error means that it has ended already. It ends with its input in any case.
        let _ = self.tell(&json!({ "do": "leave" })).await;
        let Peer { mut child, orders, .. } = self;
        drop(orders);
        if tokio::time::timeout(GOOD_BYE, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }
}

/// The time limit of a leave, which usually takes a few hundred milliseconds.
const GOOD_BYE: Duration = Duration::from_secs(3);
