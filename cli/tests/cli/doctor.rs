//! `doctor` on two machines of the lab, one fault in each: the findings of both.

use crate::keys::KEY;
use crate::run::{Network, Ran, SOON, event, told};
use crate::shape::is_as_listed;
use crate::terminal::Terminal;
use anyhow::{Context, Result, ensure};
use potluck::keys::ClusterKey;
use potluck_harness::Child;
use serde_json::Value;
use std::process::Command;
use std::thread;

/// A check, its verdict, and words of its text. All that warn or fail must be listed.
type Finding<'a> = (&'static str, &'static str, &'a str);

/// Two machines with the key. `up` runs on both unless a fault prevents it.
struct Pair {
    network: Network,
    ups: Vec<Child>,
}

const ADA: (&str, &str) = ("n1", "ada");
const BOB: (&str, &str) = ("n2", "bob");

impl Pair {
    fn of(keys: [&str; 2]) -> Result<Pair> {
        let network = Network::machines("loop", 2)?;
        for ((_, name), key) in [ADA, BOB].into_iter().zip(keys) {
            told(&network.home(name), &["join"], key)?;
        }
        Ok(Pair { network, ups: Vec::new() })
    }

    fn with_one_key() -> Result<Pair> {
        Pair::of([KEY, KEY])
    }

    /// Starts `up` on both machines.
    fn up(mut self, arguments: &[&str]) -> Result<Pair> {
        for (machine, name) in [ADA, BOB] {
            self.ups.push(self.network.up(machine, name, arguments)?);
        }
        for up in &mut self.ups {
            event(up, "status")?;
        }
        Ok(self)
    }

    /// Runs a command line on bob's machine.
    fn on_bob(&self, line: &str) -> Result<()> {
        self.network.lab.run(BOB.0, line)
    }

    fn doctor(&self, (machine, name): (&str, &str), arguments: &[&str]) -> Command {
        self.network.json(machine, name, "doctor", arguments)
    }

    /// Runs `doctor` on both machines at once, and compares its findings.
    fn finds(self, ada: &[Finding], bob: &[Finding]) -> Result<()> {
        let commands = [self.doctor(ADA, &[]), self.doctor(BOB, &[])];
        self.finds_by(commands, ada, bob)
    }

    fn finds_by(self, commands: [Command; 2], ada: &[Finding], bob: &[Finding]) -> Result<()> {
        let run = |mut command: Command| thread::spawn(move || crate::run::run(&mut command, ""));
        let [of_ada, of_bob] = commands.map(run);
        for (who, ran, findings) in [("ada", of_ada, ada), ("bob", of_bob, bob)] {
            let ran = ran.join().map_err(|_| anyhow::anyhow!("a panic"))??;
            found(&ran, findings).with_context(|| format!("{who}: {}{}", ran.out, ran.err))?;
        }
        for mut up in self.ups {
            up.terminate()?;
            up.wait(SOON)?;
        }
        Ok(())
    }
}

/// Compares the findings with all that is no pass and was not skipped.
fn found(ran: &Ran, findings: &[Finding]) -> Result<()> {
    let has_fault = findings.iter().any(|(_, verdict, _)| *verdict == "fail");
    let document = ran.json(if has_fault { 7 } else { 0 })?;
    ensure!(document["ok"] == !has_fault, "ok");
    let checks = document["checks"].as_array().context("a list")?;
    let text = |check: &Value, field: &str| check[field].as_str().unwrap_or_default().to_owned();
    let said: Vec<(String, String)> = checks
        .iter()
        .map(|check| (text(check, "check"), text(check, "verdict")))
        .filter(|(_, verdict)| verdict == "fail" || verdict == "warn")
        .collect();
    let is_fault = |verdict: &str| verdict == "fail" || verdict == "warn";
    let wanted = findings.iter().filter(|(_, verdict, _)| is_fault(verdict));
    let wanted = wanted.map(|(check, verdict, _)| ((*check).to_owned(), (*verdict).to_owned()));
    ensure!(said == wanted.collect::<Vec<_>>(), "found {said:?}");
    for (name, verdict, words) in findings {
        let check = checks.iter().find(|check| check["check"] == *name).context("a check")?;
        ensure!(text(check, "text").contains(words) && check["verdict"] == *verdict, "{check}");
        ensure!(check["command"].is_string() == is_fault(verdict), "the command: {check}");
    }
    Ok(())
}

pub fn healthy() -> Result<()> {
    Pair::with_one_key()?.up(&[])?.finds(&[], &[])
}

/// Without anything else of potluck on the machines.
pub fn two_doctors() -> Result<()> {
    Pair::with_one_key()?.finds(&[], &[])
}

/// Bob's machine has one name, that of `up`, though an observer runs there too.
pub fn multicast_dropped() -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.network.lab.deafen(BOB.0, "inet", "input", "udp dport 5353")?;
    let pair = pair.up(&[])?;
    let home = pair.network.home(BOB.1);
    let _top = Terminal::start(&pair.network.lab, BOB.0, &home, &["top"], (80, 24))?;
    pair.finds(
        &[("multicast out", "fail", "not heard by \"bob\": a firewall")],
        &[("multicast in", "fail", "a firewall of this machine drops multicast")],
    )
}

/// By the switch: then only a peer that is named is found.
pub fn multicast_dropped_everywhere() -> Result<()> {
    let pair = Pair::with_one_key()?;
    for (machine, _) in [ADA, BOB] {
        pair.network.lab.deafen(machine, "inet", "input", "udp dport 5353")?;
    }
    let [ada, bob] = [ADA, BOB].map(|(machine, _)| pair.network.lab.addr(machine).to_string());
    let both =
        [("multicast in", "fail", "others are here"), ("multicast out", "fail", "not heard by")];
    let pair = pair.up(&[])?;
    let commands = [pair.doctor(ADA, &["--peer", &bob]), pair.doctor(BOB, &["--peer", &ada])];
    pair.finds_by(commands, &both, &both)
}

pub fn inbound_closed_on_one_side() -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.network.lab.deafen(BOB.0, "inet", "input", "tcp flags & (syn | ack) == syn")?;
    pair.up(&[])?.finds(
        &[("reach out", "fail", "the firewall of \"bob\" drops connections")],
        &[("reach in", "fail", "cannot connect to this machine")],
    )
}

pub fn inbound_closed_on_both() -> Result<()> {
    let pair = Pair::with_one_key()?;
    for (machine, _) in [ADA, BOB] {
        pair.network.lab.deafen(machine, "inet", "input", "tcp flags & (syn | ack) == syn")?;
    }
    let both = [("reach out", "fail", "neither of the two machines reaches the other")];
    pair.up(&[])?.finds(&both, &both)
}

pub fn other_subnet() -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.on_bob("ip addr flush dev eth0")?;
    pair.on_bob("ip addr add 192.168.50.3/24 dev eth0")?;
    pair.up(&[])?.finds(
        &[("subnets", "fail", "(10.77.0.1/24)")],
        &[("subnets", "fail", "(192.168.50.3/24)")],
    )
}

/// As behind a router: each machine has the other's address, and multicast does not get through.
/// No firewall is accused.
pub fn behind_router() -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.on_bob("ip addr flush dev eth0")?;
    pair.on_bob("ip addr add 192.168.50.3/24 dev eth0")?;
    pair.on_bob("ip route add 10.77.0.0/24 dev eth0")?;
    pair.network.lab.run(ADA.0, "ip route add 192.168.50.0/24 dev eth0")?;
    for (machine, _) in [ADA, BOB] {
        pair.network.lab.deafen(machine, "inet", "input", "udp dport 5353")?;
    }
    let pair = pair.up(&[])?;
    let to_bob = pair.doctor(ADA, &["--peer", "192.168.50.3"]);
    let to_ada = pair.doctor(BOB, &["--peer", &pair.network.lab.addr(ADA.0).to_string()]);
    let both = |name| {
        [
            ("multicast in", "skipped", "does not cross the router"),
            ("multicast out", "skipped", "does not cross the router"),
            ("subnets", "pass", name),
        ]
    };
    let by = "found only by address: ";
    let (of_bob, of_ada) = (format!("{by}\"bob\""), format!("{by}\"ada\""));
    pair.finds_by([to_bob, to_ada], &both(&of_bob), &both(&of_ada))
}

pub fn other_key() -> Result<()> {
    let other = ClusterKey::generate()?.to_text();
    let both = [("clusters", "fail", "another cluster is here")];
    Pair::of([KEY, &other])?.up(&[])?.finds(&both, &both)
}

pub fn no_key() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    told(&network.home(ADA.1), &["join"], KEY)?;
    let mut up = network.up(ADA.0, ADA.1, &[])?;
    event(&mut up, "status")?;
    let pair = Pair { ups: vec![up], network };
    let warned = [("multicast in", "warn", "nobody is heard")];
    let bob = [("key", "fail", "a cluster is on this network")];
    // Bob only listens, so ada cannot know of him.
    pair.finds(&warned, &bob)
}

pub fn copied_identity() -> Result<()> {
    let pair = Pair::with_one_key()?;
    told(&pair.network.home(ADA.1), &["identity"], "")?;
    let [ada, bob] = [ADA, BOB].map(|(_, name)| pair.network.home(name));
    std::fs::remove_dir_all(&bob)?;
    ensure!(Command::new("cp").arg("-a").args([ada, bob]).status()?.success(), "cp");
    let both = [("identity", "fail", "two machines use one identity")];
    pair.up(&[])?.finds(&both, &both)
}

/// A clock that is an hour ahead.
pub fn clock() -> Result<()> {
    let mut pair = Pair::with_one_key()?;
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"]
        .map(|folder| format!("{folder}/faketime/libfaketime.so.1"))
        .into_iter()
        .find(|file| std::path::Path::new(file).exists())
        .context("libfaketime")?;
    let ahead = |mut command: Command| {
        command.env("LD_PRELOAD", &library).env("FAKETIME", "+3600s");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command
    };
    let up = |(machine, name)| pair.network.json(machine, name, "up", &["--name", name]);
    let mut ups = vec![Child::spawn(&mut up(ADA))?, Child::spawn(&mut ahead(up(BOB)))?];
    for up in &mut ups {
        event(up, "status")?;
    }
    let bob = ahead(pair.doctor(BOB, &[]));
    pair.ups = ups;
    let commands = [pair.doctor(ADA, &[]), bob];
    pair.finds_by(
        commands,
        &[("clocks", "warn", " s ahead of")],
        &[("clocks", "warn", " s behind")],
    )
}

/// No status of a node arrives, not even the shortest, of some 900 bytes.
pub fn narrow() -> Result<()> {
    full_packets_are_lost("800", "full size")
}

/// The first statuses do arrive; a question for a look back does not.
pub fn slightly_narrow() -> Result<()> {
    full_packets_are_lost("1480", "64 KiB")
}

fn full_packets_are_lost(bytes: &str, words: &str) -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.network.lab.tell(&["narrow", BOB.0, bytes])?;
    let both = [("full packets", "fail", words)];
    pair.up(&[])?.finds(&both, &both)
}

pub fn full_disk() -> Result<()> {
    let pair = Pair::with_one_key()?;
    let home = pair.network.home(BOB.1);
    let key = std::fs::read(home.join("cluster-default.key"))?;
    pair.network.lab.tell(&["disk", BOB.0, &home.display().to_string(), "full"])?;
    let write = format!("umask 077; cat > {}/cluster-default.key", home.display());
    let mut shell = pair.network.lab.command(BOB.0, "sh");
    let ran = crate::run::run(shell.args(["-c", &write]), &String::from_utf8(key)?)?;
    ensure!(ran.code == 0, "{ran:?}");
    let pair = pair.up(&[])?;
    pair.network.lab.tell(&["spoil", BOB.0])?;
    pair.finds(&[("disk", "fail", "\"bob\"")], &[("disk", "fail", "cannot be written")])
}

/// A node that announces another version of the protocol, in an mDNS answer.
const OTHER_VERSION: &str = r#"
import socket, struct, time

def name(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"

def record(owner, kind, data, flush=0x8001):
    return name(owner) + struct.pack("!HHIH", kind, flush, 120, len(data)) + data

service, host = "_potluck._tcp.local", "later.local"
instance = "later." + service
txt = b"".join(bytes([len(entry)]) + entry for entry in [b"v=200", b"b=00000000000000aa"])
address = socket.inet_aton("10.77.0.2")
answers = [
    record(service, 12, name(instance), 1),
    record(instance, 33, struct.pack("!HHH", 0, 0, 47474) + name(host)),
    record(instance, 16, txt),
    record(host, 1, address),
]
packet = struct.pack("!HHHHHH", 0, 0x8400, 0, len(answers), 0, 0) + b"".join(answers)
to = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
to.bind(("10.77.0.2", 5353))
to.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
to.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
print("ready", flush=True)
while True:
    to.sendto(packet, ("224.0.0.251", 5353))
    time.sleep(0.5)
"#;

pub fn other_version() -> Result<()> {
    let network = Network::machines("loop", 2)?;
    told(&network.home(ADA.1), &["join"], KEY)?;
    let mut later =
        Child::spawn(network.lab.command(BOB.0, "python3").args(["-c", OTHER_VERSION]))?;
    later.wait_for_line(|line| line == "ready", SOON)?;
    let ran = network.run(ADA.0, ADA.1, "doctor", &[])?;
    found(&ran, &[("versions", "fail", "speaks protocol 200")])?;
    is_as_listed("doctor", include_str!("../golden/json/doctor.txt"), &[ran.json(7)?])?;
    later.kill()
}

pub fn vpn() -> Result<()> {
    let pair = Pair::with_one_key()?;
    for line in [
        "ip tuntap add tun0 mode tun",
        "ip addr add 10.99.0.2 peer 10.99.0.1 dev tun0",
        "ip link set tun0 up",
        "ip route add 10.77.0.0/25 dev tun0",
        "ip route add 10.77.0.128/25 dev tun0",
    ] {
        pair.on_bob(line)?;
    }
    pair.up(&[])?.finds(
        &[
            ("vpn", "fail", "says of its machine: packets to 10.77.0.2/24 go over tun0"),
            ("reach out", "fail", "bob"),
            ("reach in", "fail", "bob"),
        ],
        &[
            ("vpn", "fail", "go over tun0"),
            ("reach out", "fail", "ada"),
            ("reach in", "fail", "ada"),
        ],
    )
}

pub fn no_address_yet() -> Result<()> {
    let pair = Pair::with_one_key()?;
    pair.on_bob("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")?;
    pair.on_bob("ip addr flush dev eth0")?;
    pair.up(&[])?.finds(
        &[("multicast in", "warn", "nobody is heard")],
        &[("network", "fail", "no interface is up with an address")],
    )
}
