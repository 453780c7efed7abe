//! Connections to the port without a key.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::PATIENCE;
use potluck_harness::peer::Start;
use potluck_harness::{Group, Suite};
use serde_json::{Value, json};

use crate::intruder::{Intruder, hex, junk, turned_away, unharmed};
use crate::{LAN, LO};

/// A key that differs from the tests' key.
const OTHER_KEY: [u8; 32] = [7; 32];

pub fn add(suite: &mut Suite) {
    suite.test_needing("another key: never a peer, and not one byte back", &LO, wrong_key);
    suite.test_needing("garbage, silence and dripping end soon and harm nobody", &LO, garbage);
    suite.test_needing("another version is counted as such", &LO, other_version);
    suite.serial("a thousand connections of junk do not disturb a collective", &LAN, flood);
    suite.serial("a recorded handshake, played again, gets no byte and no link", &LAN, replayed);
    suite.serial("a newcomer comes in past silent connections", &LAN, past_the_silent);
    suite.serial(
        "one neighbour on a network of IPv6 alone blocks nobody: a newcomer comes in past its \
         flood",
        &LAN,
        past_a_neighbour,
    );
}

pub fn port_of(status: &Value) -> Result<String> {
    Ok(status["port"].as_u64().context("no port")?.to_string())
}

fn counter(status: &Value, name: &str) -> u64 {
    status["counters"][name].as_u64().unwrap_or(0)
}

/// All members complete a sum in the same View as before.
pub fn undisturbed(group: &mut Group, view: &Value) -> Result<()> {
    group.sum(5001, 0)?;
    group.still_in(view)?;
    unharmed(group)
}

fn wrong_key() -> Result<()> {
    let mut group = Group::empty("lo", 1)?;
    let ours = group.start(0);
    let member = group.add(0, &ours)?;
    let port = member.ask(&json!({"do": "join"}), "joined", PATIENCE)?["port"].to_string();
    let mut capture =
        Intruder::on(&group.lab, "n1", &["capture", "00112233445566778899aabbccddeeff"])?;
    capture.event("capturing")?;

    let key = potluck::keys::ClusterKey::from_bytes(&OTHER_KEY).to_text().to_string();
    let home = group.start(0).home.with_extension("other");
    let mut theirs = Start { key: Some(key), home, name: "stranger".into(), ..group.start(0) };
    theirs.options.extend(["--peer".into(), format!("127.0.0.1:{port}")]);
    group.add(0, &theirs)?.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
    group.peers[0].status_where(|status| counter(status, "strangers") >= 2, PATIENCE)?;
    for peer in &mut group.peers {
        let error =
            peer.ask(&json!({"do": "context", "min": 2, "within_s": 1}), "error", PATIENCE)?;
        ensure!(error["code"] == "not-enough-peers", "{error}");
        let status = peer.status()?;
        ensure!(status["peers"] == json!([]) && counter(&status, "links") == 0, "{status}");
    }
    let seen = capture.captured()?;
    let (asked, answered): (Vec<_>, Vec<_>) = seen["payload_from"]
        .as_object()
        .into_iter()
        .flatten()
        .partition(|(from, _)| !from.ends_with(&format!(":{port}")));
    ensure!(!asked.is_empty() && answered.is_empty(), "a stranger was answered: {seen}");
    unharmed(&mut group)
}

fn garbage() -> Result<()> {
    let mut group = Group::up("lo", 2)?;
    let before = group.peers[0].status()?;
    let port = port_of(&before)?;
    let control: &[u8] = b"potl\x01\x10\0\0\0\0\0\0\0\0\0\0";
    let data: &[u8] = b"potl\x01\x11\x00\x01ABCDEFGH";
    let junk = junk();
    let openings = [
        junk.clone(),
        b"GET / HTTP/1.1\r\nHost: there\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(20),
        vec![0; 4096],
        vec![0xff; 4096],
        [control, &junk].concat(),
        [control, &[0; 64]].concat(),
        [data, &junk].concat(),
        control.to_vec(),
        control[..7].to_vec(),
    ];
    for bytes in &openings {
        let mut intruder =
            Intruder::on(&group.lab, "n1", &["send", "127.0.0.1", &port, &hex(bytes)])?;
        turned_away(&intruder.event("sent")?).with_context(|| format!("{bytes:?}"))?;
    }
    let mut intruder = Intruder::on(
        &group.lab,
        "n1",
        &["drip", "127.0.0.1", &port, &hex(&[control, &junk[..200]].concat())],
    )?;
    turned_away(&intruder.event("dripped")?)?;

    let mut intruder = Intruder::on(&group.lab, "n1", &["silent", "127.0.0.1", &port, "60"])?;
    intruder.event("connected")?;
    undisturbed(&mut group, &before["view"]["id"])?;
    let event = intruder.event("waited")?;
    ensure!(
        event["received"] == 0 && event["closed"] == 60 && event["ms"].as_f64() < Some(6000.0),
        "{event}"
    );

    let after = group.peers[0].status_where(|s| counter(s, "strangers") >= 7, PATIENCE)?;
    ensure!(counter(&after, "overloads") >= 3 && counter(&after, "misbehaviours") == 0, "{after}");
    undisturbed(&mut group, &before["view"]["id"])
}

fn other_version() -> Result<()> {
    let mut group = Group::up("lo", 2)?;
    let before = group.peers[0].status()?;
    let port = port_of(&before)?;
    for version in [0u8, 2, 255] {
        let opening = [&b"potl"[..], &[version, 0x10], &[0; 90]].concat();
        let mut intruder =
            Intruder::on(&group.lab, "n1", &["send", "127.0.0.1", &port, &hex(&opening)])?;
        let event = intruder.event("sent")?;
        ensure!(event["received"] == 0 && event["closed"] == true, "{event}");
    }
    group.peers[0].status_where(
        |s| counter(s, "other_versions") == 3 && counter(s, "strangers") == 0,
        PATIENCE,
    )?;
    undisturbed(&mut group, &before["view"]["id"])
}

/// Members on the first of four machines; the last machine is for the intruder.
pub fn members(size: usize) -> Result<Group> {
    Group::empty("gbe4", 4)?.filled(size, 2)
}

fn flood() -> Result<()> {
    let mut group = members(3)?;
    let before = group.peers[0].status()?;
    let (port, address) = (port_of(&before)?, group.lab.addr("n1").to_string());
    // The node's buffers have reached their size after the first calls.
    undisturbed(&mut group, &before["view"]["id"])?;
    let node = group.peers[0].process();
    let (memory, files) = (node.memory_kib("VmRSS")?, node.descriptors()?);

    let mut intruders = Vec::new();
    for seed in 0..4 {
        intruders.push(Intruder::on(
            &group.lab,
            "n4",
            &["flood", &address, &port, "250", &seed.to_string()],
        )?);
    }
    let mut calls = 0;
    while !intruders.iter().all(Intruder::has_spoken) {
        undisturbed(&mut group, &before["view"]["id"])?;
        calls += 1;
    }
    for mut intruder in intruders {
        let event = intruder.event("flooded")?;
        ensure!(event["received"] == 0, "strangers were answered: {event}");
    }
    undisturbed(&mut group, &before["view"]["id"])?;
    let after = group.peers[0].status()?;
    let counted: u64 =
        ["strangers", "other_versions", "overloads"].iter().map(|name| counter(&after, name)).sum();
    ensure!((600..=1010).contains(&counted), "{after}");
    let node = group.peers[0].process();
    let grown = node.memory_kib("VmRSS")?.saturating_sub(memory);
    let files_after = node.descriptors()?;
    println!(
        "measured: flood of 1000: {calls} calls meanwhile, {grown} KiB more memory, {files} files \
         open before and {files_after} after"
    );
    ensure!(
        grown < 32 * 1024 && files_after <= files + 70,
        "{grown} KiB, {files} and {files_after} files"
    );
    Ok(())
}

fn past_the_silent() -> Result<()> {
    let mut group = members(2)?;
    // The intruder only holds connections open; a new member must still be able to join.
    let before = group.peers[0].status()?;
    let (port, address) = (port_of(&before)?, group.lab.addr("n1").to_string());
    let mut silent = Intruder::on(&group.lab, "n4", &["silent", &address, &port, "200"])?;
    silent.event("connected")?;
    group.join(2)?;
    group.meet()?;
    let event = silent.event("waited")?;
    ensure!(event["received"] == 0 && event["closed"] == 200, "{event}");
    unharmed(&mut group)
}

/// The link-local IPv6 address of a machine, as another one on the same switch dials it.
pub fn link_local(group: &Group, machine: &str) -> Result<String> {
    let mut list = group.lab.command(machine, "ip");
    let shown = list.args(["-6", "-o", "addr", "show", "dev", "eth0", "scope", "link"]).output()?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let address = text.split_whitespace().skip_while(|word| *word != "inet6").nth(1);
    let address = address.and_then(|address| address.split('/').next());
    Ok(format!("{}%eth0", address.with_context(|| format!("{machine} has none: {text}"))?))
}

/// Leaves IPv6 alone on four machines.
pub fn without_ipv4(group: &Group) -> Result<()> {
    for machine in ["n1", "n2", "n3", "n4"] {
        group.lab.run(machine, "ip -4 addr flush dev eth0")?;
    }
    Ok(())
}

/// How long the neighbour connects, and the members should not notice it.
const SIEGE: Duration = Duration::from_secs(12);

/// On a network of IPv6 alone all addresses have one prefix. A neighbour that connects far above
/// its rate must not use up that of the others.
fn past_a_neighbour() -> Result<()> {
    let group = Group::empty("gbe4", 4)?;
    without_ipv4(&group)?;
    let mut group = group.filled(2, 2)?;
    let mut intruders = Vec::new();
    // The newcomer will have the same port on its machine.
    let port = port_of(&group.peers[0].status()?)?;
    for machine in ["n1", "n2", "n3"] {
        let address = link_local(&group, machine)?;
        let arguments = ["siege", &address, &port, &SIEGE.as_secs().to_string()];
        intruders.push(Intruder::on(&group.lab, "n4", &arguments)?);
    }
    let refused = |status: &Value| counter(status, "overloads") >= 20;
    group.peers[0].status_where(refused, PATIENCE)?;
    let began = Instant::now();
    group.join(2)?;
    ensure!(port_of(&group.peers[2].status()?)? == port, "the newcomer has another port");
    group.meet()?;
    group.sum(5001, 0)?;
    let took = began.elapsed();
    println!("measured: past a neighbour on IPv6: a sum of three after {} ms", took.as_millis());
    ensure!(took < SIEGE / 2, "{took:?}");
    for mut intruder in intruders {
        let event = intruder.event("besieged")?;
        ensure!(event["received"] == 0 && event["made"].as_u64() > Some(100), "{event}");
    }
    unharmed(&mut group)
}

/// A stranger replays the bytes that members have sent to a node, whole and in part.
fn replayed() -> Result<()> {
    let mut group = Group::empty("gbe4", 4)?;
    group.join(0)?;
    let port = port_of(&group.peers[0].status()?)?;
    let address = group.lab.addr("n1").to_string();
    let mut recorder = Intruder::on_the_switch(&group.lab, &["record", &address, &port])?;
    recorder.event("recording")?;
    for index in 1..3 {
        group.join(index)?;
    }
    let view = group.meet()?[0]["view"].clone();
    undisturbed(&mut group, &view)?;
    let recorded = recorder.recorded()?;
    let handshakes: Vec<&Vec<u8>> =
        recorded.iter().filter(|bytes| bytes.starts_with(b"potl") && bytes.len() > 64).collect();
    ensure!(!handshakes.is_empty(), "{} connections, and no handshake", recorded.len());
    let mut played = 0;
    // No more than the gate lets one address in.
    for bytes in handshakes.into_iter().take(4) {
        for length in [17, 64, bytes.len()] {
            let part = ["send", &address, &port, &hex(&bytes[..length])];
            let event = Intruder::on(&group.lab, "n4", &part)?.event("sent")?;
            ensure!(event["received"] == 0 && event["closed"] == true, "{length}: {event}");
            played += 1;
        }
    }
    println!("measured: {played} parts of recorded handshakes played again");
    let status = group.peers[0].status()?;
    ensure!(status["peers"].as_array().is_some_and(|peers| peers.len() == 2), "{status}");
    undisturbed(&mut group, &view)
}
