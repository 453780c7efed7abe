//! `keys`, `join --next` and `deny`, on one machine and on several that run.

use crate::keys::KEY;
use crate::pairing::{code_of, ended};
use crate::run::{Network, SOON, event, run, told};
use anyhow::{Result, ensure};
use potluck_harness::{Child, Scratch};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

pub fn steps() -> Result<()> {
    let home = Scratch::new()?;
    let keys = |arguments: &[&str]| told(home.path(), &[&["--json"], arguments].concat(), "");
    ensure!(keys(&["keys", "rotate"])?.json(6)?["code"] == "no-cluster-key");
    told(home.path(), &["join"], KEY)?;
    ensure!(keys(&["keys", "finish"])?.json(0)?["finished"] == false);
    ensure!(keys(&["key"])?.json(0)?["changing"] == false);
    ensure!(keys(&["keys", "rotate"])?.json(0)?["next"] == "new");
    ensure!(keys(&["keys", "rotate"])?.json(0)?["next"] == "there");
    let file = home.path().join("cluster-default.key");
    let both = fs::read_to_string(&file)?;
    ensure!(both.lines().count() == 2 && both.starts_with(KEY), "not two keys");
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600);
    // The next one is shown, to be carried to the others.
    let shown = keys(&["key", "--show"])?.json(0)?;
    let next = shown["key"].as_str().unwrap_or_default();
    ensure!(shown["changing"] == true && both.ends_with(&format!("{next}\n")), "{shown}");
    let other = Scratch::new()?;
    told(other.path(), &["join"], KEY)?;
    let refused = told(other.path(), &["join", "--json"], next)?;
    ensure!(refused.json(6)?["code"] == "other-key-stored", "{refused:?}");
    ensure!(refused.err.contains("--next"), "{refused:?}");
    for stored in ["next", "same"] {
        let followed = told(other.path(), &["join", "--next", "--json"], next)?.json(0)?;
        ensure!(followed["stored"] == stored, "{followed}");
    }
    ensure!(fs::read_to_string(other.path().join("cluster-default.key"))? == both);
    ensure!(keys(&["keys", "finish"])?.json(0)?["finished"] == true);
    ensure!(fs::read_to_string(&file)? == format!("{next}\n"), "the old key is still there");
    Ok(())
}

pub fn denied() -> Result<()> {
    let home = Scratch::new()?;
    let deny =
        |arguments: &[&str]| told(home.path(), &[&["deny", "--json"], arguments].concat(), "");
    let node = "ab".repeat(32);
    ensure!(deny(&[])?.json(0)?["denied"] == Value::Array(Vec::new()));
    for changed in [true, false] {
        let document = deny(&[&node])?.json(0)?;
        ensure!(document["changed"] == changed, "{document}");
        ensure!(document["denied"][0]["node"] == node.as_str(), "{document}");
    }
    for unknown in ["bob", &node[1..]] {
        ensure!(deny(&[unknown])?.json(2)?["code"] == "usage", "{unknown}");
    }
    for changed in [true, false] {
        let document = deny(&[&node, "--undo"])?.json(0)?;
        ensure!(document["changed"] == changed, "{document}");
    }
    // A text that is no node id admits no node.
    fs::write(home.path().join("denied.toml"), "bob")?;
    let refused = deny(&[])?;
    ensure!(refused.json(1)?["code"] == "identity", "{refused:?}");
    Ok(())
}

/// The names of the observer and of those that it observes, in an event.
fn seen(line: &str) -> Vec<String> {
    let event: Value = serde_json::from_str(line).unwrap_or_default();
    let observed = event["observed"].as_array().into_iter().flatten();
    let names = observed.chain([&event]).filter_map(|node| Some(node["name"].as_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Runs `up` as each of the names on the first machines, all of which hold the key; waits until
/// they observe each other.
fn all_up(network: &Network, names: &[&str], trust: &str) -> Result<Vec<Child>> {
    let mut nodes = Vec::new();
    for (machine, name) in MACHINES.into_iter().zip(names) {
        nodes.push(network.up(machine, name, &["--trust", trust])?);
    }
    all_in(&mut nodes, names)?;
    Ok(nodes)
}

/// Waits until each observes exactly these.
fn all_in(nodes: &mut [Child], names: &[&str]) -> Result<()> {
    nodes
        .iter_mut()
        .try_for_each(|node| node.wait_for_line(|line| seen(line) == *names, SOON).map(drop))
}

const MACHINES: [&str; 3] = ["n1", "n2", "n3"];
const NAMES: [&str; 3] = ["ada", "bob", "eve"];
const BOTH: [&str; 2] = ["ada", "bob"];

/// Three machines that have the key.
fn three() -> Result<Network> {
    let network = Network::machines("loop", 3)?;
    for name in NAMES {
        told(&network.home(name), &["join"], KEY)?;
    }
    Ok(network)
}

/// Three that run, of whom two change the key: these two never part, and the third is out.
pub fn while_nodes_run() -> Result<()> {
    let network = three()?;
    let mut nodes = all_up(&network, &NAMES, "key")?;
    let on = |machine: &str, name: &str, arguments: &[&str]| {
        run(&mut network.command(machine, name, &[&["--json"], arguments].concat()), "")
    };
    on("n1", "ada", &["keys", "rotate"])?.json(0)?;
    // The invitation hands on the next key.
    let mut invitation = Child::spawn(&mut network.command("n1", "ada", &["invite", "--json"]))?;
    let code = code_of(&event(&mut invitation, "invited")?)?;
    let followed = on("n2", "bob", &["join", "--next", &code])?.json(0)?;
    ensure!(followed["stored"] == "next", "{followed}");
    ended(invitation, "used", 0)?;
    for (machine, name) in MACHINES.into_iter().zip(BOTH) {
        ensure!(on(machine, name, &["keys", "finish"])?.json(0)?["finished"] == true);
    }
    all_in(&mut nodes[..2], &BOTH)?;
    for node in &nodes[..2] {
        let all = node.stdout();
        let met = all.iter().position(|line| seen(line) == NAMES).unwrap_or(0);
        let is_apart = |line: &&String| seen(line).len() == 1;
        let apart: Vec<&String> = all[met..].iter().filter(is_apart).collect();
        ensure!(apart.is_empty(), "they have parted: {apart:?}");
    }
    Ok(())
}

/// The key changes twice while an invitation stands: each machine gets the one that lasts then.
pub fn while_inviting() -> Result<()> {
    let network = Network::loopback()?;
    for name in BOTH {
        told(&network.home(name), &["join"], KEY)?;
    }
    let invite = ["--name", "ada", "--machines", "2"];
    let mut ada = Child::spawn(&mut network.json("n1", "ada", "invite", &invite))?;
    let code = code_of(&event(&mut ada, "invited")?)?;
    let file = |name: &str| fs::read_to_string(network.home(name).join("cluster-default.key"));
    told(&network.home("ada"), &["keys", "rotate"], "")?;
    let followed = network.run("n1", "bob", "join", &["--next", &code])?.json(0)?;
    ensure!(followed["stored"] == "next", "{followed}");
    ensure!(file("ada")? == file("bob")?, "another key");
    told(&network.home("ada"), &["keys", "finish"], "")?;
    let joined = network.run("n1", "eve", "join", &[&code])?.json(0)?;
    ensure!(joined["stored"] == "new" && file("eve")? == file("ada")?, "{joined}");
    ended(ada, "used", 0)
}

/// A node that both other machines deny is out, and returns when they allow it again.
pub fn denied_while_nodes_run() -> Result<()> {
    let network = three()?;
    let mut nodes = all_up(&network, &NAMES, "key")?;
    let eve = told(&network.home("eve"), &["identity", "--json"], "")?.json(0)?;
    let eve = eve["node"].as_str().unwrap_or_default();
    for (machine, name, whom) in [("n1", "ada", "eve"), ("n2", "bob", eve)] {
        let document = network.run(machine, name, "deny", &[whom])?.json(0)?;
        ensure!(document["denied"][0]["node"] == eve, "{document}");
        ensure!(document["denied"][0]["name"] == "eve", "{document}");
    }
    all_in(&mut nodes[..2], &BOTH)?;
    for (machine, name) in MACHINES.into_iter().zip(BOTH) {
        network.run(machine, name, "deny", &["--undo", "eve"])?.json(0)?;
    }
    all_in(&mut nodes[..2], &NAMES)
}

/// Two machines record each other, and then admit no other holder of the key.
pub fn known_and_pinned() -> Result<()> {
    let network = three()?;
    let nodes = all_up(&network, &BOTH, "tofu")?;
    for mut node in nodes {
        ensure!(node.stderr().iter().any(|line| line.contains("for the first time")), "not told");
        node.terminate()?;
        ensure!(node.wait(SOON)?.success());
    }
    for (name, other) in [("ada", "bob"), ("bob", "ada")] {
        let known = told(&network.home(name), &["known", "--json"], "")?.json(0)?;
        let listed = known["known"].as_array().map_or(0, Vec::len);
        ensure!(listed == 1 && known["known"][0]["name"] == other, "{known}");
    }
    let nodes = all_up(&network, &BOTH, "pinned")?;
    let mut eve = network.up("n3", "eve", &[])?;
    // Refused again and again, and never in.
    let alone = event(&mut eve, "alone")?;
    ensure!(alone["reasons"].to_string().contains("does not admit this node"), "{alone}");
    let has_met = |node: &Child| node.stdout().iter().any(|line| seen(line).len() > 2);
    ensure!(!nodes.iter().any(has_met), "a thief of the key was admitted");
    let forget = told(&network.home("ada"), &["known", "--json", "--forget", "bob"], "")?;
    ensure!(forget.json(0)?["changed"] == true, "{forget:?}");
    Ok(())
}
