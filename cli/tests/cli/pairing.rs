//! `invite`, and `join` with its code: on one machine, and between two on a switch.

use crate::keys::KEY;
use crate::run::{Network, Ran, SOON, event, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant;

impl Network {
    /// Two machines on a switch.
    fn switch() -> Result<Network> {
        Network::machines("loop", 2)
    }

    /// Invites as `ada`, which has [`KEY`], on n1; returns its announcement.
    fn invite(&self, arguments: &[&str]) -> Result<(Child, Value)> {
        told(&self.home("ada"), &["join"], KEY)?;
        let arguments = [&["--name", "ada"], arguments].concat();
        let mut child = Child::spawn(&mut self.json("n1", "ada", "invite", &arguments))?;
        let invited = event(&mut child, "invited")?;
        Ok((child, invited))
    }

    /// Runs `join` as `name` on a machine.
    fn join(&self, machine: &str, name: &str, arguments: &[&str]) -> Result<Ran> {
        self.run(machine, name, "join", &[&["--name", name], arguments].concat())
    }

    fn key_file(&self, name: &str, namespace: &str) -> PathBuf {
        self.home(name).join(format!("cluster-{namespace}.key"))
    }

    /// Checks that `name` has the key, readable by its owner only.
    fn has_key(&self, name: &str, namespace: &str) -> Result<()> {
        let file = self.key_file(name, namespace);
        let mode = fs::metadata(&file)?.permissions().mode() & 0o777;
        ensure!(fs::read_to_string(&file)?.trim() == KEY && mode == 0o600, "mode {mode:o}");
        Ok(())
    }
}

pub fn ended(mut child: Child, reason: &str, code: i32) -> Result<()> {
    let event = event(&mut child, "ended")?;
    let status = child.wait(SOON)?;
    ensure!(event["reason"] == reason && status.code() == Some(code), "{event}, {status}");
    let all = [child.stdout(), child.stderr()].concat().join("\n");
    ensure!(!all.contains(&KEY[4..30]) && !all.contains("panicked"), "{all}");
    Ok(())
}

pub fn code_of(invited: &Value) -> Result<String> {
    Ok(invited["code"].as_str().context("a code")?.to_owned())
}

/// The same code with another last digit.
fn wrong(code: &str) -> String {
    let (rest, last) = code.split_at(code.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}

pub fn two_machines() -> Result<()> {
    let network = Network::switch()?;
    let (mut ada, invited) = network.invite(&[])?;
    let code = code_of(&invited)?;
    let joined = network.join("n2", "bob", &[&code])?.json(0)?;
    ensure!(joined["ok"] == true && joined["stored"] == "new", "{joined}");
    ensure!(joined["inviter"] == "ada" && joined["namespace"] == "default", "{joined}");
    network.has_key("bob", "default")?;
    let event = event(&mut ada, "joined")?;
    ensure!(event["name"] == "bob" && event["left"] == 0, "{event}");
    // The machines have link-local addresses too, which may answer first.
    let address: IpAddr = event["address"].as_str().context("an address")?.parse()?;
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    ensure!(address == network.lab.addr("n2") || is_link_local, "{event}");
    ended(ada, "used", 0)
}

pub fn beside_a_node() -> Result<()> {
    let network = Network::switch()?;
    told(&network.home("ada"), &["join"], KEY)?;
    let mut node = network.up("n1", "ada", &[])?;
    event(&mut node, "status")?;
    let (mut ada, invited) = network.invite(&[])?;
    // By hand, at all usual ports of the machine: the node is there too, and does not answer.
    let host = network.lab.addr("n1").to_string();
    let code = code_of(&invited)?;
    let joined = network.join("n2", "bob", &[&code, "--peer", &host])?.json(0)?;
    let at = invited["addresses"][0].as_str().context("an address")?;
    ensure!(joined["address"] == at && !at.ends_with(":47474"), "{joined} {invited}");
    event(&mut ada, "joined")?;
    ended(ada, "used", 0)?;
    // And with the key the two meet.
    let mut bob = network.up("n2", "bob", &[])?;
    let sees = |name: &'static str| move |s: &Value| s["observed"][0]["name"] == name;
    bob.wait_for_event("status", sees("ada"), SOON)?;
    node.wait_for_event("status", sees("bob"), SOON).map(drop)
}

pub fn wrong_codes() -> Result<()> {
    let network = Network::loopback()?;
    let (mut ada, invited) = network.invite(&["--machines", "2"])?;
    let code = code_of(&invited)?;
    for left in [2, 1, 0] {
        let refused = network.join("n1", "eve", &[&wrong(&code)])?.json(6)?;
        ensure!(refused["code"] == "pairing", "{refused}");
        let event = event(&mut ada, "wrong-code")?;
        ensure!(event["left"] == left && event["address"] == "127.0.0.1", "{event}");
    }
    ended(ada, "wrong-codes", 6)?;
    let late = network.join("n1", "eve", &[&code])?.json(3)?;
    ensure!(late["code"] == "pairing", "{late}");
    ensure!(!network.key_file("eve", "default").exists(), "a key was stored");
    Ok(())
}

pub fn several_machines() -> Result<()> {
    let network = Network::loopback()?;
    let (mut ada, invited) = network.invite(&["--machines", "2", "--namespace", "default"])?;
    let code = code_of(&invited)?;
    for (name, left) in [("bob", 1), ("cy", 0)] {
        network.join("n1", name, &[&code])?.json(0)?;
        network.has_key(name, "default")?;
        let event = event(&mut ada, "joined")?;
        ensure!(event["name"] == name && event["left"] == left, "{event}");
    }
    ended(ada, "used", 0)?;
    let began = Instant::now();
    let second = network.join("n1", "dee", &[&code])?;
    ensure!(second.json(3)?["code"] == "pairing", "{second:?}");
    ensure!(second.err.contains("potluck invite"), "{second:?}");
    ensure!(began.elapsed() < SOON, "{:?}", began.elapsed());
    // A full group without this machine.
    let (mut ada, invited) = network.invite(&["--machines", "31"])?;
    ensure!(invited["machines"] == 31, "{invited}");
    ada.terminate()?;
    ended(ada, "interrupted", 0)?;
    for machines in ["0", "32", "x"] {
        let ran = run(&mut network.command("n1", "ada", &["invite", "--machines", machines]), "")?;
        ensure!(ran.code == 2, "{machines}: {ran:?}");
    }
    Ok(())
}

pub fn expired() -> Result<()> {
    let network = Network::loopback()?;
    let (ada, _) = network.invite(&["--minutes", "0.02"])?;
    ended(ada, "expired", 3)?;
    for minutes in ["0", "61", "-1", "nan", "x"] {
        let ran = run(&mut network.command("n1", "ada", &["invite", "--minutes", minutes]), "")?;
        ensure!(ran.code == 2, "{minutes}: {ran:?}");
    }
    Ok(())
}

pub fn interrupted() -> Result<()> {
    let network = Network::loopback()?;
    let (mut ada, _) = network.invite(&[])?;
    ada.interrupt()?;
    ended(ada, "interrupted", 130)?;
    let (mut ada, _) = network.invite(&[])?;
    ada.terminate()?;
    ended(ada, "interrupted", 0)
}

pub fn namespaces() -> Result<()> {
    let network = Network::loopback()?;
    told(&network.home("ada"), &["join", "--namespace", "lab"], KEY)?;
    let (ada, invited) = network.invite(&["--namespace", "lab", "--machines", "2"])?;
    ensure!(invited["namespace"] == "lab", "{invited}");
    let code = code_of(&invited)?;
    let joined = network.join("n1", "bob", &[&code])?;
    ensure!(joined.json(0)?["namespace"] == "lab", "{joined:?}");
    ensure!(joined.err.contains("potluck up --namespace lab"), "{joined:?}");
    network.has_key("bob", "lab")?;
    let here = network.join("n1", "cy", &[&code, "--namespace", "here"])?.json(0)?;
    ensure!(here["namespace"] == "here", "{here}");
    network.has_key("cy", "here")?;
    ensure!(!network.key_file("cy", "lab").exists(), "stored twice");
    ended(ada, "used", 0)
}

pub fn another_key() -> Result<()> {
    let network = Network::loopback()?;
    let other = potluck::keys::ClusterKey::generate()?.to_text().to_string();
    told(&network.home("bob"), &["join"], &other)?;
    let (mut ada, invited) = network.invite(&[])?;
    let code = code_of(&invited)?;
    let refused = network.join("n1", "bob", &[&code])?;
    ensure!(refused.json(6)?["code"] == "other-key-stored", "{refused:?}");
    ensure!(refused.err.contains("--replace"), "{refused:?}");
    let kept = fs::read_to_string(network.key_file("bob", "default"))?;
    ensure!(kept.trim() == other, "the key was replaced");
    ensure!(event(&mut ada, "declined")?["name"] == "bob");
    let replaced = network.join("n1", "bob", &[&code, "--replace"])?.json(0)?;
    ensure!(replaced["stored"] == "replaced", "{replaced}");
    network.has_key("bob", "default")?;
    ended(ada, "used", 0)?;
    let (ada, invited) = network.invite(&[])?;
    let again = network.join("n1", "bob", &[&code_of(&invited)?])?.json(0)?;
    ensure!(again["stored"] == "same", "{again}");
    ended(ada, "used", 0)
}

pub fn typed() -> Result<()> {
    let network = Network::loopback()?;
    let (ada, invited) = network.invite(&["--machines", "3"])?;
    let code = code_of(&invited)?;
    let spaced = code.replace('-', " ");
    let words: Vec<&str> = spaced.split(' ').collect();
    network.join("n1", "bob", &words)?.json(0)?;
    // From a pipe, and at the highest verbosity: no key is in the output.
    let piped = ["join", "--loopback", "-vvv"];
    let ran = run(&mut network.command("n1", "cy", &piped), &format!(" {spaced}\n"))?;
    ensure!(ran.code == 0 && !format!("{ran:?}").contains(&KEY[4..30]), "{ran:?}");
    network.has_key("cy", "default")?;
    let file = network.home("code");
    fs::write(&file, &code)?;
    network.join("n1", "dee", &["--file", &file.display().to_string()])?.json(0)?;
    ended(ada, "used", 0)
}

pub fn nobody_invites() -> Result<()> {
    let network = Network::loopback()?;
    let began = Instant::now();
    for arguments in [&["42-1234-5678"][..], &["42-1234-5678", "--peer", "127.0.0.1:47474"]] {
        let ran = network.join("n1", "bob", arguments)?;
        ensure!(ran.json(3)?["code"] == "pairing", "{ran:?}");
        ensure!(ran.err.contains("potluck invite") && ran.err.contains("--peer"), "{ran:?}");
    }
    ensure!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
    for code in ["42-1234-567", "42-1234-5678x", "4"] {
        ensure!(network.join("n1", "bob", &[code])?.json(6)?["code"] == "bad-code", "{code}");
    }
    ensure!(!network.key_file("bob", "default").exists(), "a key was stored");
    Ok(())
}

pub fn first_key() -> Result<()> {
    let network = Network::switch()?;
    let mut ada = Child::spawn(&mut network.json("n1", "ada", "invite", &["--name", "ada"]))?;
    let made = event(&mut ada, "key-made")?;
    let invited = event(&mut ada, "invited")?;
    let joined = network.join("n2", "bob", &[&code_of(&invited)?])?.json(0)?;
    ensure!(joined["stored"] == "new" && joined["inviter"] == "ada", "{joined}");
    let key = |name| fs::read_to_string(network.key_file(name, "default"));
    ensure!(made["file"].as_str() == network.key_file("ada", "default").to_str(), "{made}");
    ensure!(key("ada")? == key("bob")? && key("ada")?.starts_with("plk1"), "another key");
    event(&mut ada, "joined")?;
    ended(ada, "used", 0)
}

/// The second machine that invites by mistake gets no cluster of its own.
pub fn no_second_key() -> Result<()> {
    let network = Network::switch()?;
    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "key-made")?;
    event(&mut ada, "status")?;
    let refused = network.run("n2", "bob", "invite", &[])?.json(6)?;
    ensure!(refused["code"] == "cluster-here", "{refused}");
    ensure!(
        refused["message"].as_str().is_some_and(|m| m.contains("potluck join CODE")),
        "{refused}"
    );
    ensure!(!network.key_file("bob", "default").exists(), "a key was made");
    Ok(())
}

pub fn up_beside_an_invitation() -> Result<()> {
    let network = Network::loopback()?;
    let (ada, _) = network.invite(&[])?;
    let refused = network.run("n1", "bob", "up", &[])?.json(6)?;
    ensure!(refused["code"] == "cluster-here", "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains("potluck join CODE"), "{message}");
    ensure!(!network.key_file("bob", "default").exists(), "a key was made");
    let seen = network.run("n1", "bob", "status", &[])?.json(3)?;
    ensure!(seen["neighbours"][0]["cluster"] == "invitation", "{seen}");
    drop(ada);
    Ok(())
}
