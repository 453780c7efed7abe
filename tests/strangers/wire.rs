//! The traffic that an eavesdropper sees at the sockets and on the switch.

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::Start;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::LAN;
use crate::intruder::{Intruder, hex};

/// The contents of a marked input, see `harness/peer/src/numbers.rs`.
const MARK: &[u8; 16] = b"potluck:marked!\x3e";

pub fn add(suite: &mut Suite) {
    suite.test_needing("one TCP listener, and UDP 5353, and nothing else", &LAN, sockets);
    suite.serial("no identity and no name of a member is on the wire", &LAN, anonymous);
    suite.serial("nothing of a tensor is on the wire", &LAN, || encrypted(&[]));
    suite.serial("a trusted interface is the exception, and only then", &LAN, || {
        encrypted(&["--trusted", "eth0"])
    });
}

/// The lines of a `/proc/net` table of a machine, split into words.
fn table(group: &Group, machine: &str, name: &str) -> Result<Vec<Vec<String>>> {
    let cat = group.lab.command(machine, "cat").arg(format!("/proc/net/{name}")).output()?;
    let told = String::from_utf8(cat.stdout)?;
    let rows = told.lines().skip(1);
    Ok(rows.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect())
}

fn sockets() -> Result<()> {
    let mut group = Group::up("gbe4", 2)?;
    group.sum(100_001, 0)?;
    let port = group.peers[0].status()?["port"].as_u64().context("no port")?;
    let mut listeners = Vec::new();
    let mut datagrams = Vec::new();
    for (name, open) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        for row in table(&group, "n1", name)? {
            let (address, at) = row[1].split_once(':').context("no port in it")?;
            let at = u64::from_str_radix(at, 16)?;
            // 127.x.x.x and ::1 in the kernel's format on a little-endian machine.
            let from_here_only = address.len() == 8 && address.ends_with("7F")
                || address == "00000000000000000000000001000000";
            if row[3] == open && !from_here_only {
                if name.starts_with("tcp") { &mut listeners } else { &mut datagrams }
                    .push((name, at));
            }
        }
    }
    ensure!(
        listeners.len() == 1 && listeners[0].1 == port,
        "listeners {listeners:?}, the port is {port}"
    );
    ensure!(!datagrams.is_empty() && datagrams.iter().all(|(_, at)| *at == 5353), "{datagrams:?}");
    Ok(())
}

fn encrypted(options: &[&str]) -> Result<()> {
    let mut group = Group::empty("gbe4", 3)?;
    let mut capture = Intruder::on_the_switch(&group.lab, &["capture", &hex(MARK)])?;
    capture.event("capturing")?;
    group.found(3, &json!({"do": "join"}), |_, mut start| {
        start.options.extend(options.iter().map(|word| (*word).to_owned()));
        start
    })?;
    let contexts = group.meet()?;
    for len in [16, 1000, 250_000] {
        group.exact(&json!({"do": "all_reduce", "len": len, "marked": true}))?;
    }
    group.all(&json!({"do": "leave"}), "left")?;
    let seen = capture.captured()?;
    let carried = seen["bytes"].as_u64() > Some(2_000_000);
    let said =
        |context: &Value| context["security"].as_array().is_some_and(|said| !said.is_empty());
    println!(
        "measured: {} frames, {} bytes, {} marks with {options:?}",
        seen["frames"], seen["bytes"], seen["hits"]
    );
    if options.is_empty() {
        ensure!(
            carried && seen["hits"] == 0 && !contexts.iter().any(said),
            "{} marks in {} bytes",
            seen["hits"],
            seen["bytes"]
        );
    } else {
        // The counter-check: the capture detects the mark.
        ensure!(
            seen["hits"].as_u64() > Some(10_000) && contexts.iter().all(said),
            "{} marks",
            seen["hits"]
        );
    }
    Ok(())
}

fn anonymous() -> Result<()> {
    const NAME: &str = "a-name-that-nobody-has";
    let mut group = Group::empty("gbe4", 3)?;
    let start = Start { name: NAME.to_owned(), ..group.start(0) };
    group.add(0, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    let node = group.peers[0].status()?["node"].as_str().context("no id")?.to_owned();
    let secrets = [&node[..32], &hex(node.as_bytes())[..32], &hex(NAME.as_bytes())];
    let arguments = [&["capture"], &secrets[..]].concat();
    let mut capture = Intruder::on_the_switch(&group.lab, &arguments)?;
    capture.event("capturing")?;
    for index in 1..3 {
        group.join(index)?;
    }
    group.meet()?;
    group.sum(100_001, 0)?;
    let seen = capture.captured()?;
    ensure!(seen["bytes"].as_u64() > Some(400_000) && seen["hits"] == 0, "{seen}");
    Ok(())
}
