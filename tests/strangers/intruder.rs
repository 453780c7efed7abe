//! A program without a key on one of the lab's machines, see `intruder.py` and `proxy.py`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Group, Lab};
use serde_json::Value;

pub struct Intruder(Child);

const PATIENCE: Duration = Duration::from_secs(120);

impl Intruder {
    /// Starts it on a machine.
    pub fn on(lab: &Lab, machine: &str, arguments: &[&str]) -> Result<Intruder> {
        Intruder::running("intruder.py", lab.command(machine, "python3"), arguments)
    }

    /// Starts it on the switch, where all frames pass.
    pub fn on_the_switch(lab: &Lab, arguments: &[&str]) -> Result<Intruder> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &lab.switch()?, "python3"]);
        Intruder::running("intruder.py", command, arguments)
    }

    /// Starts a script of this folder with this interpreter.
    pub fn running(script: &str, mut command: Command, arguments: &[&str]) -> Result<Intruder> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers");
        command.arg(folder.join(script)).args(arguments);
        Ok(Intruder(Child::spawn_told(&mut command)?))
    }

    /// Its next event, which must be of this kind.
    pub fn event(&mut self, kind: &str) -> Result<Value> {
        let line = self.0.wait_for_line(|_| true, PATIENCE)?;
        let event: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        ensure!(event["event"] == kind, "not {kind}: {event}");
        Ok(event)
    }

    /// Asks it for an event of this kind.
    pub fn asked(&mut self, kind: &str) -> Result<Value> {
        self.0.tell("")?;
        self.0.wait_for_event(kind, |_| true, PATIENCE)
    }

    /// Whether it has reported anything yet.
    pub fn has_spoken(&self) -> bool {
        !self.0.stdout().is_empty()
    }

    /// Ends a recording and returns what connections began with.
    pub fn recorded(mut self) -> Result<Vec<Vec<u8>>> {
        self.0.end_input();
        let event = self.event("recorded")?;
        let streams = event["streams"].as_array().context("no list")?;
        let bytes = |text: &Value| from_hex(text.as_str().unwrap_or_default());
        streams.iter().map(bytes).collect()
    }

    /// Ends a capture and returns its contents.
    pub fn captured(mut self) -> Result<Value> {
        self.0.end_input();
        let event = self.event("captured")?;
        ensure!(
            event["drops"] == 0 && event["frames"].as_u64() > Some(0),
            "not all was seen: {event}"
        );
        Ok(event)
    }
}

/// Checks that no node has panicked or ended.
pub fn unharmed(group: &mut Group) -> Result<()> {
    for peer in &mut group.peers {
        peer.status()?;
        let said = peer.process().stderr().join("\n");
        ensure!(!said.contains("panicked"), "{}: {said}", peer.name());
    }
    Ok(())
}

/// Checks that a stranger got no byte, and soon the end of its connection.
pub fn turned_away(event: &Value) -> Result<()> {
    let soon = event["ms"].as_f64() < Some(5000.0);
    ensure!(event["received"] == 0 && event["closed"] == true && soon, "{event}");
    Ok(())
}

/// Bytes of no protocol, always the same.
pub fn junk() -> Vec<u8> {
    (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn from_hex(hex: &str) -> Result<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("?"), 16);
    Ok((0..hex.len()).step_by(2).map(byte).collect::<Result<_, _>>()?)
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
