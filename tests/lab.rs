//! Tests of the lab: each profile gives the promised network, and nothing remains afterwards.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use potluck_harness::{Child, Halt, Lab, Need, Scratch, Suite};

const PROFILES: [&str; 16] = [
    "gbe4",
    "mixed4",
    "slow1",
    "split4",
    "split8",
    "power4",
    "backhaul4",
    "hosts2x4",
    "direct3",
    "chain4",
    "ring4",
    "twin2",
    "twin2e",
    "wifi4",
    "loop",
    "lo",
];

fn main() {
    let mut suite = Suite::new();
    for profile in PROFILES {
        let name = format!("{profile}: everybody reaches and hears everybody");
        let needs = [Need::Lab, Need::Radio, Need::Command("nft")];
        suite.test_needing(&name, &needs, move || reaches_and_hears(profile));
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
    let nft = [Need::Lab, Need::Command("nft")];
    suite.test_needing("large packets are dropped, and small ones pass", &nft, narrow);
    suite.test_needing("one connection is swallowed, and nobody hears of it", &nft, swallow);
    suite.test_needing(
        "one connection is ended at both ends",
        &[Need::Lab, Need::Command("ss")],
        sever,
    );
    for (kind, needs) in [("full", vec![Need::Lab]), ("dead", vec![Need::Lab, Need::DyingDisk])] {
        let name = format!("a disk that is {kind} refuses what is written, until it is mended");
        suite.test_needing(&name, &needs, move || disk(kind));
    }
    suite.test_needing("one thread stops, and goes on", &[Need::Root], halt);
    suite.serial("a line rate is kept", &[Need::Lab], line_rate);
    suite.serial("the cable between two switches carries its rate each way", &[Need::Lab], trunk);
    suite.serial("a half-duplex segment carries its rate in both directions together", &nft, half);
    suite.test_needing("the last or every second machine is at a second switch", &nft, sides);
    suite.serial("stations share one medium", &[Need::Lab, Need::Radio], radio);
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
    for way in ["up", "down"] {
        lab.tell(&["loss", "n1", "100", way])?;
        ensure!(lab.tell(&["ping", "n1", "n2"]).is_err(), "{way}: an echo came through");
        lab.tell(&["ping", "n2", "n3"])?;
        lab.tell(&["loss", "n1", "0", "both"])?;
        lab.tell(&["ping", "n1", "n2"])?;
    }
    Ok(())
}

/// A connection from port 7001 of n1 to port 7000 of n2, where everything is sent back.
struct Talk {
    client: Child,
    server: Child,
}

impl Talk {
    fn between(lab: &Lab) -> Result<Talk> {
        const SERVER: &str = "
import socket
s = socket.create_server(('', 7000))
print('up', flush=True)
c, _ = s.accept()
while d := c.recv(65536): c.sendall(d)
";
        const CLIENT: &str = "
import socket, sys
s = socket.create_connection(('n2', 7000), source_address=('', 7001))
s.settimeout(1)
for line in sys.stdin:
    left, end = int(line), 'back'
    try:
        s.sendall(bytes(left))
        while left:
            d = s.recv(left)
            if not d: raise ConnectionError
            left -= len(d)
    except TimeoutError: end = 'lost'
    except OSError: end = 'ended'
    print(end, flush=True)
";
        let mut server = Child::spawn_told(lab.command("n2", "python3").args(["-c", SERVER]))?;
        server.wait_for_line(|line| line == "up", SOON)?;
        let client = Child::spawn_told(lab.command("n1", "python3").args(["-c", CLIENT]))?;
        Ok(Talk { client, server })
    }

    /// Sends so many bytes. Returns their fate: `back`, `lost` for a second, or `ended`.
    fn of(&mut self, bytes: usize) -> Result<String> {
        self.client.tell(&bytes.to_string())?;
        self.client.wait_for_line(|_| true, SOON)
    }

    /// Whether what was lost comes through after all: TCP repeats it.
    fn goes_on(&mut self) -> Result<bool> {
        for _ in 0..20 {
            if self.of(1)? == "back" {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

const SOON: Duration = Duration::from_secs(30);

fn narrow() -> Result<()> {
    let lab = Lab::up_with("loop", 2)?;
    let mut talk = Talk::between(&lab)?;
    ensure!(talk.of(4000)? == "back");
    lab.tell(&["narrow", "n1", "1000"])?;
    ensure!(talk.of(500)? == "back", "small packets are lost too");
    ensure!(talk.of(4000)? == "lost", "large packets pass");
    lab.tell(&["narrow", "n1", "0"])?;
    ensure!(talk.goes_on()?, "the connection does not go on");
    Ok(())
}

fn swallow() -> Result<()> {
    for way in ["up", "down", "both"] {
        let lab = Lab::up_with("loop", 2)?;
        let mut talk = Talk::between(&lab)?;
        ensure!(talk.of(10)? == "back");
        lab.tell(&["swallow", "n1", "7001", "7000", way])?;
        ensure!(talk.of(10)? == "lost", "{way}: it goes on");
        lab.tell(&["ping"])?;
        lab.tell(&["swallow", "n1", "0", "0"])?;
        ensure!(talk.goes_on()?, "{way}: it does not go on");
    }
    Ok(())
}

fn sever() -> Result<()> {
    let lab = Lab::up_with("loop", 2)?;
    let mut talk = Talk::between(&lab)?;
    ensure!(talk.of(10)? == "back");
    lab.tell(&["sever", "n1", "7001", "7000"])?;
    ensure!(talk.of(10)? == "ended");
    talk.server.wait(SOON)?;
    Ok(())
}

fn disk(kind: &str) -> Result<()> {
    const WRITES: &str =
        r#"while read -r name; do echo x >"$1/$name" && echo kept || echo failed; done"#;
    let (scratch, lab) = (Scratch::new()?, Lab::up_with("loop", 1)?);
    let folder = scratch.path().join("disk");
    let folder = folder.to_str().context("a path")?;
    lab.tell(&["disk", "n1", folder, kind])?;
    let command = &mut lab.command("n1", "sh");
    let mut writer = Child::spawn_told(command.args(["-c", WRITES, "writer", folder]))?;
    let mut writes = |name: &str| {
        writer.tell(name)?;
        writer.wait_for_line(|_| true, SOON)
    };
    ensure!(writes("before")? == "kept");
    lab.tell(&["spoil", "n1"])?;
    ensure!(writes("meanwhile")? == "failed");
    lab.tell(&["mend", "n1"])?;
    ensure!(writes("after")? == "kept");
    let kept = |name: &str| std::fs::read_to_string(Path::new(folder).join(name)).is_ok();
    ensure!(kept("before") && kept("after"), "what was written is not there");
    drop(lab);
    let mounts = std::fs::read_to_string("/proc/mounts")?;
    ensure!(!mounts.contains(folder), "still mounted: {mounts}");
    Ok(())
}

fn halt() -> Result<()> {
    const COUNTS: &str = "while :; do echo on; sleep 0.01; done";
    let mut child = Child::spawn(Command::new("sh").args(["-c", COUNTS]))?;
    child.wait_for_line(|_| true, SOON)?;
    let mut halt = Halt::ready(&child, "sh")?;
    halt.fire()?;
    halt.made()?;
    // First read the lines that were written before.
    while child.wait_for_line(|_| true, Duration::from_millis(500)).is_ok() {}
    drop(halt);
    child.wait_for_line(|_| true, SOON)?;
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

/// Fails if the directions of the cable shared its rate.
fn trunk() -> Result<()> {
    // One machine at each switch: only what is between these is verified.
    let lab = Lab::up_with("split4", 2)?;
    println!("{}", lab.tell(&["verify", "0.5", "25"])?);
    Ok(())
}

/// Fails if each direction had the rate for itself: then both carry twice as much.
fn half() -> Result<()> {
    for profile in ["power4", "backhaul4"] {
        let lab = Lab::up_with(profile, 2)?;
        let state: serde_json::Value = serde_json::from_str(&lab.tell(&["json"])?)?;
        ensure!(state["half"] == true, "{profile} has a cable");
        println!("{}", lab.tell(&["verify", "0.5", "25"])?);
    }
    Ok(())
}

fn sides() -> Result<()> {
    for (profile, far) in [
        ("split4", vec!["n2", "n4"]),
        ("split8", vec!["n2", "n4", "n6", "n8"]),
        ("power4", vec!["n4"]),
        ("backhaul4", vec!["n2", "n4"]),
    ] {
        let lab = Lab::up(profile)?;
        let before = lab.bytes_between_switches()?;
        let state: serde_json::Value = serde_json::from_str(&lab.tell(&["json"])?)?;
        let nodes = lab.nodes();
        let is_far = |x: &&String| state["nodes"][x.as_str()]["at"] == 1;
        let at_second: Vec<&String> = nodes.iter().filter(is_far).collect();
        ensure!(at_second == far, "{profile}: {at_second:?} at the second switch");
        lab.tell(&["ping", "n1", far[0]])?;
        ensure!(lab.bytes_between_switches()? > before, "{profile}: nothing has crossed");
    }
    Ok(())
}

fn radio() -> Result<()> {
    let lab = Lab::up_with("wifi4", 3)?;
    println!("{}", lab.tell(&["verify", "1"])?);
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
    let shell = lab.command("n2", "sh").args(["-c", "hostname; cat /etc/hosts"]).output()?;
    let said = String::from_utf8(shell.stdout)?;
    let said: Vec<&str> = said.lines().collect();
    ensure!(said[0] == "n2", "host name is {}", said[0]);
    for (node, address) in [("n1", lab.addr_from("n1", "n2")), ("n3", lab.addr_from("n3", "n2"))] {
        let line = format!("{address} {node}");
        ensure!(said.contains(&line.as_str()), "no {line:?} in the hosts file: {said:?}");
    }
    Ok(())
}

fn node_counts() -> Result<()> {
    for (profile, nodes) in [("mixed4", 2), ("loop", 6), ("direct3", 4), ("lo", 1)] {
        let lab = Lab::up_with(profile, nodes)?;
        ensure!(lab.nodes().len() == nodes, "{profile}: {:?}", lab.nodes());
        lab.tell(&["ping"])?;
    }
    ensure!(Lab::up_with("gbe4", 33).is_err(), "more machines than a group may have");
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
