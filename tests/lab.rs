//! Tests of the lab: each profile gives the promised network, and nothing remains afterwards.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Lab, Need, Suite, Way};

const PROFILES: [&str; 9] =
    ["gbe4", "mixed4", "slow1", "direct3", "chain4", "ring4", "wifi4", "loop", "lo"];

fn main() {
    let mut suite = Suite::new();
    for profile in PROFILES {
        let name = format!("{profile}: everybody reaches and hears everybody");
        suite.test_needing(&name, &[Need::Lab, tap_devices()], move || reaches_and_hears(profile));
    }
    for profile in ["gbe4", "direct3"] {
        let name =
            format!("{profile}: a pulled cable stops one machine, and only until it is back");
        suite.test_needing(&name, &[Need::Lab], move || cut_and_join(profile));
        let name = format!("{profile}: two machines lose each other and nobody else");
        let needs = [Need::Lab, Need::Command("nft")];
        suite.test_needing(&name, &needs, move || cut_between(profile));
    }
    suite.test_needing(
        "chain4: machines without a cable between them do not reach each other",
        &[Need::Lab],
        chain,
    );
    suite.test_needing("a machine plugged in again has another address", &[Need::Lab], readdress);
    suite.test_needing("an armed change waits for its moment", &[Need::Lab], armed);
    let tools = [Need::Lab, Need::Command("nft"), Need::Command("ethtool")];
    suite.test_needing("losing every frame loses everything", &tools, loss);
    suite.serial("a line rate is kept", &[Need::Lab], line_rate);
    suite.serial("stations share one medium", &[Need::Lab, tap_devices()], radio);
    suite.test_needing("a machine has its own name and hosts", &[Need::Lab], names);
    suite.test_needing("nodes are as many as asked for", &[Need::Lab], node_counts);
    suite.test_needing("labs side by side do not meet", &[Need::Lab], side_by_side);
    suite.test_needing("down leaves nothing", &[Need::Lab], down_leaves_nothing);
    suite.run();
}

fn reaches_and_hears(profile: &str) -> Result<()> {
    let lab = Lab::up(profile)?;
    lab.tell(&["ping"])?;
    lab.tell(&["mcast"])?;
    Ok(())
}

fn cut_and_join(profile: &str) -> Result<()> {
    let lab = Lab::up(profile)?;
    lab.cut("n1")?;
    ensure!(lab.tell(&["ping", "n2", "n1"]).is_err(), "n2 reaches n1 without a cable");
    lab.tell(&["ping", "n2", "n3"])?;
    lab.join("n1")?;
    lab.tell(&["ping"])?;
    lab.tell(&["mcast"])?;
    Ok(())
}

fn cut_between(profile: &str) -> Result<()> {
    let lab = Lab::up(profile)?;
    lab.cut_between("n1", "n2")?;
    ensure!(lab.tell(&["ping", "n1", "n2"]).is_err(), "n1 reaches n2 all the same");
    lab.tell(&["ping", "n1", "n3"])?;
    lab.tell(&["ping", "n3", "n2"])?;
    lab.join_between("n2", "n1")?;
    lab.tell(&["ping"])?;
    Ok(())
}

fn chain() -> Result<()> {
    let lab = Lab::up("chain4")?;
    for (from, to) in [("n1", "n3"), ("n1", "n4"), ("n4", "n2")] {
        ensure!(lab.tell(&["ping", from, to]).is_err(), "{from} reaches {to}");
    }
    Ok(())
}

fn readdress() -> Result<()> {
    let lab = Lab::up_with("loop", 3)?;
    let old = lab.addr("n2");
    for _ in 0..2 {
        lab.tell(&["readdress", "n2", "20"])?;
        lab.tell(&["ping"])?;
        lab.tell(&["mcast"])?;
    }
    let state: serde_json::Value = serde_json::from_str(&lab.tell(&["json"])?)?;
    ensure!(state["nodes"]["n2"]["addr"] != old.to_string(), "still at {old}");
    let addresses = lab.command("n2", "ip").args(["-brief", "address", "show", "eth0"]).output()?;
    let addresses = String::from_utf8_lossy(&addresses.stdout).into_owned();
    ensure!(
        !addresses.contains(&format!("{old}/")) && addresses.contains("fe80::77:ff:fe00"),
        "{addresses}"
    );
    Ok(())
}

fn armed() -> Result<()> {
    let lab = Lab::up_with("loop", 2)?;
    let mut cut = lab.armed(&["cut", "n1"])?;
    lab.tell(&["ping"])?;
    cut.fire()?;
    cut.made()?;
    ensure!(lab.tell(&["ping", "n2", "n1"]).is_err(), "n2 reaches n1 without a cable");
    // A prepared change that is dropped never happens.
    drop(lab.armed(&["cut", "n2"])?);
    lab.join("n1")?;
    lab.tell(&["ping"])?;
    Ok(())
}

fn loss() -> Result<()> {
    let lab = Lab::up_with("gbe4", 3)?;
    for way in [Way::Up, Way::Down] {
        lab.loss("n1", 100.0, way)?;
        ensure!(lab.tell(&["ping", "n1", "n2"]).is_err(), "{way:?}: an echo came through");
        lab.tell(&["ping", "n2", "n3"])?;
        lab.loss("n1", 0.0, Way::Both)?;
        lab.tell(&["ping", "n1", "n2"])?;
    }
    Ok(())
}

fn line_rate() -> Result<()> {
    // Slow enough for any machine, with a wide margin: this tests the shaping, not the processor's
    // load.
    let lab = Lab::up_with("gbe4", 2)?;
    for node in lab.nodes() {
        lab.rate(&node, 20, 20)?;
    }
    lab.tell(&["verify", "0.5", "25"])?;
    Ok(())
}

/// The device that the radio simulation needs.
fn tap_devices() -> Need {
    if Path::new("/dev/net/tun").exists() {
        Need::Lab
    } else {
        Need::Missing("the radio profile needs /dev/net/tun")
    }
}

fn radio() -> Result<()> {
    let lab = Lab::up_with("wifi4", 3)?;
    // On a busy processor less than the medium's rate is carried. One good measurement of three is
    // enough.
    let verify = || lab.tell(&["verify", "1"]);
    println!("{}", verify().or_else(|_| verify()).or_else(|_| verify())?);
    ensure!(
        lab.rate("n2", 10, 10).is_err() && lab.cut("n2").is_err(),
        "there is no cable to be changed"
    );
    let state: serde_json::Value = serde_json::from_str(&lab.tell(&["json"])?)?;
    // A zombie process has no executable, even before it is reaped.
    let air = format!("/proc/{}/exe", state["air"].as_u64().context("a process")?);
    ensure!(std::fs::read_link(&air).is_ok());
    drop(lab);
    ensure!(std::fs::read_link(&air).is_err(), "the access point is left");
    Ok(())
}

fn names() -> Result<()> {
    let lab = Lab::up("direct3")?;
    let mut shell = lab.command("n2", "sh");
    shell.args(["-c", "hostname; cat /etc/hosts; echo end"]);
    let mut child = Child::spawn(&mut shell)?;
    child.wait_for_line(|line| line == "end", Duration::from_secs(10))?;
    let said = child.stdout();
    ensure!(said[0] == "n2", "host name is {}", said[0]);
    for (node, address) in [("n1", lab.addr_from("n1", "n2")), ("n3", lab.addr_from("n3", "n2"))] {
        let line = format!("{address} {node}");
        ensure!(said.contains(&line), "no {line:?} in the hosts file: {said:?}");
    }
    Ok(())
}

fn node_counts() -> Result<()> {
    for (profile, nodes) in [("mixed4", 2), ("loop", 6), ("direct3", 4), ("lo", 1)] {
        let lab = Lab::up_with(profile, nodes)?;
        ensure!(lab.nodes().len() == nodes, "{profile}: {:?}", lab.nodes());
        lab.tell(&["ping"])?;
    }
    ensure!(Lab::up_with("gbe4", 17).is_err(), "more machines than a group may have");
    Ok(())
}

fn side_by_side() -> Result<()> {
    // The labs have the same addresses on separate cables: a cut in one does not affect the other.
    let (one, other) = (Lab::up_with("loop", 2)?, Lab::up_with("loop", 2)?);
    ensure!(one.addr("n1") == other.addr("n1"));
    one.cut("n1")?;
    other.tell(&["ping"])?;
    ensure!(one.tell(&["ping"]).is_err(), "the cut cable still carries");
    Ok(())
}

fn down_leaves_nothing() -> Result<()> {
    let lab = Lab::up_with("lo", 1)?;
    let name = lab.name().to_string();
    let mut shell = lab.command("n1", "sh");
    let mut sleeper = Child::spawn(shell.args(["-c", "echo here; exec sleep 60"]))?;
    sleeper.wait_for_line(|line| line == "here", Duration::from_secs(10))?;
    drop(lab);
    let end = sleeper.wait(Duration::from_secs(5))?;
    ensure!(!end.success(), "what ran in the lab was ended, not finished");
    let left = Command::new("ip").args(["netns", "list"]).output()?;
    let left = String::from_utf8_lossy(&left.stdout).into_owned();
    ensure!(!left.contains(&name), "namespaces are left: {left}");
    for ending in ["json", "hosts"] {
        let state = format!("/run/potluck-lab/{name}.{ending}");
        ensure!(!Path::new(&state).exists(), "{state} is left");
    }
    Ok(())
}
