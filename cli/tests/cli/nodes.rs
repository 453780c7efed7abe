//! `up` and `status` in a network namespace that has only a loopback interface.

use crate::keys::KEY;
use crate::run::{clean, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Lab, Scratch};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(15);

/// A network namespace, and a home directory per name.
struct Machine {
    lab: Lab,
    scratch: Scratch,
}

impl Machine {
    fn new() -> Result<Machine> {
        Ok(Machine { lab: Lab::up_with("lo", 1)?, scratch: Scratch::new()? })
    }

    fn home(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.lab.command("n1", env!("CARGO_BIN_EXE_potluck"));
        command.args(arguments);
        clean(&mut command, &self.home(name));
        command
    }

    fn up(&self, name: &str, arguments: &[&str]) -> Result<Child> {
        let common = ["up", "--loopback", "--json", "--name", name];
        Child::spawn(&mut self.command(name, &[&common, arguments].concat()))
    }
}

/// The next document of this kind that satisfies `likes`.
fn event(child: &mut Child, kind: &str, likes: impl Fn(&Value) -> bool) -> Result<Value> {
    let parsed = |line: &str| serde_json::from_str::<Value>(line).ok();
    let wanted =
        |line: &str| parsed(line).is_some_and(|event| event["event"] == kind && likes(&event));
    let line = child.wait_for_line(wanted, SOON)?;
    parsed(&line).context("it was parsed before")
}

fn end(mut child: Child, signal: Signal, code: i32) -> Result<()> {
    kill_process(Pid::from_raw(child.id() as i32).context("a process")?, signal)?;
    event(&mut child, "left", |_| true)?;
    let status = child.wait(SOON)?;
    ensure!(status.code() == Some(code), "{signal:?} ended it with {status}");
    for line in child.stdout() {
        serde_json::from_str::<Value>(&line).with_context(|| format!("not JSON: {line}"))?;
    }
    Ok(())
}

fn key_of(home: &Path) -> Result<String> {
    Ok(told(home, &["key", "--show"], "")?.out)
}

pub fn first_machine() -> Result<()> {
    let machine = Machine::new()?;
    let mut ada = machine.up("ada", &[])?;
    event(&mut ada, "key-made", |e| {
        e["file"].as_str().is_some_and(|file| file.ends_with("cluster-default.key"))
    })?;
    let status = event(&mut ada, "status", |_| true)?;
    ensure!(
        status["state"] == "alone" && status["name"] == "ada" && status["view"].is_null(),
        "{status}"
    );
    let alone = event(&mut ada, "alone", |_| true)?;
    let reasons: Vec<&str> =
        alone["reasons"].as_array().context("a list")?.iter().filter_map(Value::as_str).collect();
    ensure!(
        reasons
            .iter()
            .any(|r| r.starts_with("lo: ") && r.contains("queries sent, 0 heard: nobody is heard")),
        "{reasons:?}"
    );
    ensure!(reasons.iter().any(|r| r.contains("--peer")), "{reasons:?}");
    let key = key_of(&machine.home("ada"))?;
    ensure!(key.starts_with("plk1"), "{key}");
    ensure!(
        !ada.stdout().concat().contains(key.trim()) && !ada.stderr().concat().contains(key.trim()),
        "it shows the key"
    );
    let said = ada.stderr().concat();
    ensure!(said.contains("potluck join") && said.contains("potluck key --show"), "{said}");
    end(ada, Signal::TERM, 0)?;
    let again = run(&mut machine.command("ada", &["up", "--loopback", "--new"]), "")?;
    ensure!(again.complaint(2)?.contains("has a cluster key already"), "{again:?}");
    Ok(())
}

pub fn stopped_early() -> Result<()> {
    let machine = Machine::new()?;
    let home = machine.home("ada");
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let ran =
            run(&mut machine.command("ada", &[&["up", "--loopback"], arguments].concat()), "")?;
        ensure!(ran.complaint(code)?.contains(words) && ran.out.is_empty(), "{ran:?}");
        anyhow::Ok(())
    };
    told(&home, &["join"], KEY)?;
    refused(&["--min", "17"], 2, "between 1 and 16")?;
    refused(&["--peer", "no port:x"], 2, "a peer")?;
    std::fs::write(home.join("identity.key"), "")?;
    std::fs::set_permissions(home.join("identity.key"), Permissions::from_mode(0o600))?;
    refused(&[], 1, "this file is empty")?;
    std::fs::set_permissions(home.join("cluster-default.key"), Permissions::from_mode(0o644))?;
    refused(&[], 1, "chmod 600")
}

pub fn beside_another_cluster() -> Result<()> {
    let machine = Machine::new()?;
    told(&machine.home("ada"), &["join"], KEY)?;
    let mut ada = machine.up("ada", &[])?;
    event(&mut ada, "status", |_| true)?;
    let refused = run(&mut machine.command("bob", &["up", "--loopback", "--json"]), "")?.json(6)?;
    ensure!(refused["code"] == "cluster-here", "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains("potluck join") && message.contains("potluck up --new"), "{message}");
    ensure!(!machine.home("bob").join("cluster-default.key").exists(), "a key was made");

    let mut bob = machine.up("bob", &["--new"])?;
    event(&mut bob, "key-made", |_| true)?;
    event(&mut bob, "status", |s| s["reasons"].to_string().contains("another cluster is here"))?;
    ensure!(key_of(&machine.home("bob"))?.trim() != KEY);
    end(bob, Signal::INT, 130)?;
    end(ada, Signal::TERM, 0)
}

pub fn two_meet() -> Result<()> {
    let machine = Machine::new()?;
    for name in ["ada", "bob"] {
        told(&machine.home(name), &["join"], KEY)?;
    }
    let mut ada = machine.up("ada", &[])?;
    event(&mut ada, "status", |s| s["state"] == "alone")?;
    let mut bob = machine.up("bob", &[])?;
    let mut views = Vec::new();
    for child in [&mut ada, &mut bob] {
        let status = event(child, "status", |s| s["state"] == "in")?;
        let names: Vec<&str> = status["view"]["members"]
            .as_array()
            .context("a list")?
            .iter()
            .filter_map(|m| m["name"].as_str())
            .collect();
        ensure!(names.len() == 2 && names.contains(&"ada") && names.contains(&"bob"), "{names:?}");
        views.push(status["view"]["id"].clone());
    }
    ensure!(views[0] == views[1], "{views:?}");
    end(bob, Signal::TERM, 0)?;
    event(&mut ada, "status", |s| s["state"] == "not-enough-peers")?;
    end(ada, Signal::INT, 130)
}

pub fn status() -> Result<()> {
    let machine = Machine::new()?;
    let status =
        |name: &str| run(&mut machine.command(name, &["status", "--loopback", "--json"]), "");
    told(&machine.home("ada"), &["join"], KEY)?;
    let nobody = status("ada")?.json(3)?;
    ensure!(
        nobody["running"] == false && nobody["neighbours"] == serde_json::json!([]),
        "{nobody}"
    );
    ensure!(nobody["interfaces"][0]["interface"] == "lo", "{nobody}");

    let mut ada = machine.up("ada", &[])?;
    event(&mut ada, "status", |_| true)?;
    let running = status("ada")?.json(0)?;
    ensure!(
        running["running"] == true && running["name"] == "ada" && running["state"] == "alone",
        "{running}"
    );
    let socket = machine.home("ada").join("up-default.sock");
    let mode = std::fs::metadata(&socket)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    // Another home directory on the same network has no node of its own, but sees this one.
    told(&machine.home("bob"), &["join"], KEY)?;
    ensure!(status("bob")?.json(3)?["neighbours"][0]["cluster"] == "ours");
    ensure!(status("eve")?.json(3)?["neighbours"][0]["cluster"] == "other");

    // A killed node leaves its socket file behind; that must not hinder the next one.
    ada.kill()?;
    ada.wait(SOON)?;
    ensure!(socket.exists() && status("ada")?.json(3)?["running"] == false);
    let mut ada = machine.up("ada", &[])?;
    event(&mut ada, "status", |_| true)?;
    ensure!(status("ada")?.json(0)?["running"] == true);
    end(ada, Signal::TERM, 0)?;
    ensure!(!socket.exists(), "the socket is left");
    Ok(())
}

/// Runs a program with the largest limit for core dumps that this process may set.
const WITH_DUMPS: &str = "ulimit -c $(ulimit -Hc) && exec \"$0\" \"$@\"";

/// Whether programs of this machine leave core dumps, if their limit allows it.
pub fn machine_dumps_core() -> Result<bool> {
    let folder = Scratch::new()?;
    let mut command = Command::new("sh");
    let status = command.args(["-c", WITH_DUMPS, "sh", "-c", "kill -ABRT $$"]);
    Ok(status.current_dir(folder.path()).status()?.core_dumped())
}

pub fn no_core_dump() -> Result<()> {
    let machine = Machine::new()?;
    let mut command = machine.lab.command("n1", "sh");
    command.args(["-c", WITH_DUMPS, env!("CARGO_BIN_EXE_potluck")]);
    command.args(["up", "--loopback", "--json", "--name", "n1"]);
    command.current_dir(machine.scratch.path());
    clean(&mut command, &machine.home("n1"));
    let mut child = Child::spawn(&mut command)?;
    child.wait_for_line(|line| line.contains("event"), SOON)?;
    kill_process(Pid::from_raw(child.id() as i32).context("a process")?, Signal::ABORT)?;
    let status = child.wait(SOON)?;
    ensure!(status.signal() == Some(Signal::ABORT.as_raw()), "it ended with {status}");
    ensure!(
        !status.core_dumped(),
        "the keys are in a file in {}",
        machine.scratch.path().display()
    );
    Ok(())
}
