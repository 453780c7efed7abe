//! `up` and `status` in a network namespace that has only a loopback interface.

use crate::keys::KEY;
use crate::run::{Network, SOON, clean, event, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::peer::Start;
use potluck_harness::{Child, Peer, Scratch};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

/// After Ctrl-C the exit code is 130.
fn interrupted(mut child: Child) -> Result<()> {
    child.interrupt()?;
    has_left(child, 130)
}

fn terminated(mut child: Child) -> Result<()> {
    child.terminate()?;
    has_left(child, 0)
}

fn has_left(mut child: Child, code: i32) -> Result<()> {
    event(&mut child, "left")?;
    let status = child.wait(SOON)?;
    ensure!(status.code() == Some(code), "it ended with {status}, not with {code}");
    for line in child.stdout() {
        serde_json::from_str::<Value>(&line).with_context(|| format!("not JSON: {line}"))?;
    }
    Ok(())
}

fn key_of(home: &Path) -> Result<String> {
    Ok(told(home, &["key", "--show"], "")?.out)
}

pub fn first_machine() -> Result<()> {
    let network = Network::loopback()?;
    let mut ada = network.up("n1", "ada", &[])?;
    let made = event(&mut ada, "key-made")?;
    ensure!(made["file"].as_str().is_some_and(|f| f.ends_with("cluster-default.key")), "{made}");
    let status = event(&mut ada, "status")?;
    ensure!(
        status["state"] == "alone" && status["observer"] == true && status["name"] == "ada",
        "{status}"
    );
    let alone = event(&mut ada, "alone")?;
    let reasons: Vec<&str> =
        alone["reasons"].as_array().context("a list")?.iter().filter_map(Value::as_str).collect();
    ensure!(
        reasons
            .iter()
            .any(|r| r.starts_with("lo: ") && r.contains("queries sent, 0 heard: nobody is heard")),
        "{reasons:?}"
    );
    ensure!(reasons.iter().any(|r| r.contains("--peer")), "{reasons:?}");
    let key = key_of(&network.home("ada"))?;
    ensure!(key.starts_with("plk1"), "{key}");
    ensure!(
        !ada.stdout().concat().contains(key.trim()) && !ada.stderr().concat().contains(key.trim()),
        "it shows the key"
    );
    let said = ada.stderr().concat();
    ensure!(said.contains("potluck join") && said.contains("potluck key --show"), "{said}");
    terminated(ada)?;
    let again = run(&mut network.command("n1", "ada", &["up", "--loopback", "--new"]), "")?;
    ensure!(again.complaint(2)?.contains("has a cluster key already"), "{again:?}");
    Ok(())
}

pub fn stopped_early() -> Result<()> {
    let network = Network::loopback()?;
    let home = network.home("ada");
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let arguments = [&["up", "--loopback"], arguments].concat();
        let ran = run(&mut network.command("n1", "ada", &arguments), "")?;
        ensure!(ran.complaint(code)?.contains(words) && ran.out.is_empty(), "{ran:?}");
        anyhow::Ok(())
    };
    told(&home, &["join"], KEY)?;
    refused(&["--peer", "no port:x"], 2, "a peer")?;
    std::fs::write(home.join("identity.key"), "")?;
    std::fs::set_permissions(home.join("identity.key"), Permissions::from_mode(0o600))?;
    refused(&[], 1, "this file is empty")?;
    std::fs::set_permissions(home.join("cluster-default.key"), Permissions::from_mode(0o644))?;
    refused(&[], 1, "chmod 600")
}

pub fn beside_another_cluster() -> Result<()> {
    let network = Network::loopback()?;
    told(&network.home("ada"), &["join"], KEY)?;
    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "status")?;
    let refused = network.run("n1", "bob", "up", &[])?.json(6)?;
    ensure!(refused["code"] == "cluster-here", "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains("potluck join") && message.contains("potluck up --new"), "{message}");
    ensure!(!network.home("bob").join("cluster-default.key").exists(), "a key was made");

    let mut bob = network.up("n1", "bob", &["--new"])?;
    event(&mut bob, "key-made")?;
    let is_told = |s: &Value| s["reasons"].to_string().contains("another cluster is here");
    bob.wait_for_event("status", is_told, SOON)?;
    ensure!(key_of(&network.home("bob"))?.trim() != KEY);
    interrupted(bob)?;
    terminated(ada)
}

/// Without multicast, by a name that has no address when the node starts.
pub fn named_later() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    for (machine, name) in [("n1", "ada"), ("n2", "bob")] {
        network.lab.deafen(machine, "inet", "input", "udp dport 5353")?;
        told(&network.home(name), &["join"], KEY)?;
    }
    let mut bob = network.up("n2", "bob", &[])?;
    event(&mut bob, "status")?;
    let mut ada = network.up("n1", "ada", &["--peer", "later"])?;
    let unlinked = |s: &Value| s["unlinked"][0].clone();
    let told = ada.wait_for_event("status", |s| unlinked(s)["why"] == "no-address", SOON)?;
    ensure!(
        unlinked(&told)["text"].to_string().contains("the peer later has no address"),
        "{told}"
    );
    let entry = format!("echo {} later >> /etc/hosts", network.lab.addr("n2"));
    let mut shell = network.lab.command("n1", "sh");
    ensure!(shell.args(["-c", &entry]).status()?.success());
    ada.wait_for_event("status", |s| s["observed"][0]["name"] == "bob", SOON)?;
    terminated(ada)?;
    terminated(bob)
}

/// A machine that refuses at once on all ports but one, where it does not answer. Nothing is said
/// of it before all of them have been tried.
pub fn one_silent_port() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    network.lab.deafen("n2", "inet", "input", "tcp dport 47480")?;
    told(&network.home("ada"), &["join"], KEY)?;
    let host = network.lab.addr("n2").to_string();
    let mut ada = network.up("n1", "ada", &["--peer", &host])?;
    let told = ada.wait_for_event("status", |s| s["unlinked"] != json!([]), SOON)?;
    let at: Vec<String> = (47474..47490).map(|port| format!("{host}:{port}")).collect();
    ensure!(told["unlinked"][0]["addresses"] == json!(at), "{told}");
    terminated(ada)
}

pub fn two_meet() -> Result<()> {
    let network = Network::loopback()?;
    for name in ["ada", "bob"] {
        told(&network.home(name), &["join"], KEY)?;
    }
    let mut ada = network.up("n1", "ada", &[])?;
    ada.wait_for_event("status", |s| s["observed"] == json!([]), SOON)?;
    let mut bob = network.up("n1", "bob", &[])?;
    let sees = |name: &'static str| {
        move |status: &Value| {
            status["observed"][0]["name"] == name && status["observed"][1].is_null()
        }
    };
    ada.wait_for_event("status", sees("bob"), SOON)?;
    bob.wait_for_event("status", sees("ada"), SOON)?;
    terminated(bob)?;
    ada.wait_for_event("status", |s| s["observed"] == json!([]), SOON)?;
    interrupted(ada)
}

pub fn status() -> Result<()> {
    let network = Network::loopback()?;
    let status = |name: &str| network.run("n1", name, "status", &[]);
    told(&network.home("ada"), &["join"], KEY)?;
    let nobody = status("ada")?.json(3)?;
    ensure!(
        nobody["running"] == false && nobody["neighbours"] == serde_json::json!([]),
        "{nobody}"
    );
    ensure!(nobody["interfaces"][0]["interface"] == "lo", "{nobody}");

    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "status")?;
    let running = status("ada")?.json(0)?;
    ensure!(
        running["running"] == true && running["name"] == "ada" && running["state"] == "alone",
        "{running}"
    );
    let socket = network.home("ada").join("status-default.potluck.sock");
    let mode = std::fs::metadata(&socket)?.permissions().mode();
    ensure!(mode & 0o777 == 0o600, "mode {mode:o}");
    // Another home directory on the same network has no node of its own, and asks this one.
    told(&network.home("bob"), &["join"], KEY)?;
    let asked = status("bob")?.json(0)?;
    ensure!(asked["running"] == false && asked["name"] == "ada", "{asked}");
    ensure!(asked["here"] == json!([]) && asked["cluster"][0]["name"] == "ada", "{asked}");
    ensure!(asked["neighbours"][0]["cluster"] == "ours", "{asked}");
    ensure!(status("eve")?.json(3)?["neighbours"][0]["cluster"] == "other");

    // A killed node leaves its socket file behind; that must not hinder the next one.
    ada.kill()?;
    ada.wait(SOON)?;
    ensure!(socket.exists() && status("ada")?.json(3)?["running"] == false);
    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "status")?;
    ensure!(status("ada")?.json(0)?["running"] == true);
    terminated(ada)?;
    ensure!(!socket.exists(), "the socket is left");
    Ok(())
}

pub fn status_of_programs() -> Result<()> {
    let network = Network::loopback()?;
    let status = |flags: &[&str]| network.run("n1", "ada", "status", flags);
    told(&network.home("ada"), &["join"], KEY)?;
    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "status")?;
    // Two programs of one job, in the home of that `up`.
    let start = |name: &str, job: &str| {
        let start = Start {
            key: None,
            home: network.home("ada"),
            name: name.to_owned(),
            engine: None,
            program: None,
            options: vec!["--loopback".to_owned()],
            variables: vec![("POTLUCK_JOB", job.into())],
        };
        Peer::start(&network.lab, "n1", &start)
    };
    let mut train = [start("bob", "train")?, start("cyd", "train")?];
    for peer in &mut train {
        peer.ask(&json!({"do": "join"}), "joined", SOON)?;
    }
    for peer in &mut train {
        peer.status_where(|status| status["view"].is_object(), SOON)?;
    }
    let told = status(&[])?.json(0)?;
    ensure!(told["job"] == "train" && told["topology"]["members"][1].is_object(), "{told}");
    let here = |told: &Value| -> Vec<(String, String)> {
        let here = told["here"].as_array().into_iter().flatten();
        here.map(|node| (node["job"].to_string(), node["name"].to_string())).collect()
    };
    let jobs: Vec<String> = here(&told).into_iter().map(|(job, _)| job).collect();
    ensure!(jobs == ["\"potluck\"", "\"train\"", "\"train\""], "{told}");
    let of_up = status(&["--job", "potluck"])?.json(0)?;
    ensure!(
        of_up["name"] == "ada" && of_up["view"].is_null() && here(&of_up).len() == 1,
        "{of_up}"
    );
    // The only group here is the one that is drawn.
    let text = |flags: &[&str]| {
        let arguments = [&["status", "--loopback"], flags].concat();
        run(&mut network.command("n1", "ada", &arguments), "")
    };
    ensure!(text(&["--dot"])?.out.starts_with("graph potluck {"));
    let all = text(&[])?;
    ensure!(all.code == 0 && all.out.matches("job train").count() == 2, "{all:?}");
    ensure!(all.out.contains("\"ada\"") && all.out.contains("job potluck"), "{all:?}");
    // A second group: which one is meant must be said, or all are drawn.
    let mut other = [start("dan", "other")?, start("eve", "other")?];
    for peer in &mut other {
        peer.ask(&json!({"do": "join"}), "joined", SOON)?;
    }
    for peer in &mut other {
        peer.status_where(|status| status["view"].is_object(), SOON)?;
    }
    ensure!(text(&["--dot"])?.complaint(2)?.contains("--job: other, potluck, train"));
    ensure!(text(&["--dot", "--job", "other"])?.out.contains("dan"));
    ensure!(text(&["--graph"])?.out.matches("2 members").count() == 2);
    // One that is stopped is named and does not hold up the others.
    other[0].process().stop()?;
    let told = text(&[])?;
    ensure!(told.code == 0 && told.err.contains("does not answer"), "{told:?}");
    ensure!(told.out.matches("job train").count() == 2, "{told:?}");
    other[0].process().resume()?;
    terminated(ada)
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
    let network = Network::loopback()?;
    let mut command = network.lab.command("n1", "sh");
    command.args(["-c", WITH_DUMPS, env!("CARGO_BIN_EXE_potluck")]);
    command.args(["up", "--loopback", "--json", "--name", "n1"]);
    command.current_dir(network.scratch.path());
    clean(&mut command, &network.home("n1"));
    let mut child = Child::spawn(&mut command)?;
    child.wait_for_line(|line| line.contains("event"), SOON)?;
    child.abort()?;
    let status = child.wait(SOON)?;
    ensure!(status.signal() == Some(Signal::ABORT.as_raw()), "it ended with {status}");
    ensure!(
        !status.core_dumped(),
        "the keys are in a file in {}",
        network.scratch.path().display()
    );
    Ok(())
}
