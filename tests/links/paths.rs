//! Two machines with several paths between them: the fast path is used, another one when it breaks,
//! and the fast one again when it is restored.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use potluck_harness::group::{MEASURED, PATIENCE};
use potluck_harness::lab::ran;
use potluck_harness::outcome::{answered_after, one_outcome};
use potluck_harness::peer::{Start, now_ms};
use potluck_harness::{Group, Lag, Need, Suite};
use serde_json::{Value, json};

use crate::LAN;

pub fn add(suite: &mut Suite) {
    suite.serial(
        "of two cables the fast one is taken; pulled, work goes on over the slow one; back, it is \
         taken again",
        &LAN,
        || fast_and_slow(pulled),
    );
}

/// Tests that do not depend on the engine.
pub fn add_once(suite: &mut Suite) {
    let needs = [Need::Lab, Need::Command("nft")];
    suite.serial(
        "a cable on which nothing gets through any more is left for another one",
        &needs,
        || fast_and_slow(dead),
    );
    suite.serial(
        "a cable that was not there when the nodes started is found",
        &LAN,
        plugged_in_later,
    );
    suite.test_needing(
        "bridges of containers, tunnels and a host name that means this host do not mislead",
        &LAN,
        traps,
    );
    let kinds: [(&str, Prepare); 4] = [
        ("IPv4 alone", ipv4_alone),
        ("IPv6 of the link alone", ipv6_alone),
        ("both", |_, _| Ok(())),
        ("broken IPv6", ipv6_broken),
    ];
    for (name, prepare) in kinds {
        suite.test_needing(
            &format!("machines with {name} meet within three seconds"),
            &needs,
            move || meet_soon(prepare),
        );
    }
}

/// 8 MiB of f32.
const LEN: usize = 2 << 20;
const BYTES: f64 = 4.0 * LEN as f64;

fn call() -> Value {
    json!({"do": "all_reduce", "len": LEN, "seed": 7})
}

/// A preparation of a machine before its node starts.
type Prepare = fn(&Group, &str) -> Result<()>;

/// A change of the fast cable, or its reversal.
type Change = fn(&Group, Cable) -> Result<()>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cable {
    Away,
    Back,
}

/// The carrier is lost at both ends.
fn pulled(group: &Group, cable: Cable) -> Result<()> {
    let way = if cable == Cable::Away { "down" } else { "up" };
    group.lab.run("n2", &format!("ip link set eth0 {way}"))
}

/// As if a switch on the path had died: neither end notices anything.
fn dead(group: &Group, cable: Cable) -> Result<()> {
    let rules: &[&str] = match cable {
        Cable::Back => &["nft delete table netdev deaf"],
        Cable::Away => &[
            "nft add table netdev deaf",
            "nft add chain netdev deaf in { type filter hook ingress device eth0 priority 0 ; \
             policy drop ; }",
        ],
    };
    for machine in ["n1", "n2"] {
        for rule in rules {
            group.lab.run(machine, rule)?;
        }
    }
    Ok(())
}

fn fast_and_slow(change: Change) -> Result<()> {
    let mut group = Group::up("twin2", 2)?;
    on_the_fast_one(&mut group)?;
    let view = view_of(&mut group)?;
    ensure!(share_of_the_fast_one(&mut group, 5)? >= 0.95);

    // In the middle of a call.
    group.remember()?;
    group.on_the_way(0, &json!({"do": "all_reduce", "len": 24 * LEN, "seed": 7}), 0.3)?;
    let since = now_ms();
    change(&group, Cable::Away)?;
    let answers = group.events(|_| true, "done", PATIENCE)?;
    println!(
        "measured: answered {:.0} ms after the fast cable broke: {}",
        answered_after(&answers, since),
        answers[0]["message"]
    );
    one_outcome(&answers).inspect_err(|_| println!("logs in {}", kept(&group)))?;
    // Retries like a program. The loss of a cable may be noticed a moment later.
    while !goes_through(&mut group)? {
        ensure!(
            now_ms() - since < PATIENCE.as_secs_f64() * 1e3,
            "nothing goes through: {}",
            kept(&group)
        );
    }
    println!("measured: work goes on over the slow cable after {:.0} ms", now_ms() - since);
    ensure!(share_of_the_fast_one(&mut group, 1)? <= 0.05);
    let slow_view = view_of(&mut group)?;
    ensure!(slow_view != view, "what was on its way is lost, and a View must say so");

    let since = now_ms();
    change(&group, Cable::Back)?;
    on_the_fast_one(&mut group)?;
    println!("measured: back on the fast cable after {:.0} ms", now_ms() - since);
    ensure!(view_of(&mut group)? == slow_view, "nobody notices a better path");
    ensure!(share_of_the_fast_one(&mut group, 5)? >= 0.95);
    Ok(())
}

fn plugged_in_later() -> Result<()> {
    let mut group = Group::empty("twin2", 2)?;
    pulled(&group, Cable::Away)?;
    start_all(&mut group)?;
    let view = view_of(&mut group)?;
    ensure!(share_of_the_fast_one(&mut group, 1)? <= 0.05);
    let since = now_ms();
    pulled(&group, Cable::Back)?;
    on_the_fast_one(&mut group)?;
    println!("measured: found after {:.0} ms", now_ms() - since);
    ensure!(view_of(&mut group)? == view, "nobody notices a better path");
    ensure!(share_of_the_fast_one(&mut group, 5)? >= 0.95);
    Ok(())
}

/// Whether the next call succeeds; otherwise it is aborted on both nodes.
fn goes_through(group: &mut Group) -> Result<bool> {
    group.meet()?;
    let answers = group.all(&call(), "done")?;
    one_outcome(&answers).inspect_err(|_| println!("logs in {}", kept(group)))?;
    Ok(answers[0]["ok"] == true)
}

fn kept(group: &Group) -> String {
    group.keep_logs(&format!("paths-{}", std::process::id()))
}

fn view_of(group: &mut Group) -> Result<Value> {
    Ok(group.peers[0].status()?["view"]["id"].clone())
}

/// Waits until both nodes report that their path to the other one is a fast one.
fn on_the_fast_one(group: &mut Group) -> Result<()> {
    let is_fast = |path: &Value| path["rate_kbps"].as_u64() > Some(300_000);
    let all_fast = |status: &Value| {
        let paths = status["view"]["paths"].as_array();
        paths.is_some_and(|paths| paths.len() == 2 && paths.iter().all(is_fast))
    };
    let found = group.all_show(all_fast, MEASURED).map(drop);
    found.inspect_err(|_| println!("logs in {}", kept(group)))
}

/// The share of the bytes of some calls that goes over the fast cable.
fn share_of_the_fast_one(group: &mut Group, calls: usize) -> Result<f64> {
    let sent =
        |group: &Group, device| -> Result<f64> { Ok(group.lab.bytes_out("n1", device)? as f64) };
    let before = (sent(group, "eth0")?, sent(group, "eth1")?);
    for _ in 0..calls {
        group.exact(&call()).inspect_err(|_| println!("logs in {}", kept(group)))?;
    }
    let (fast, slow) = (sent(group, "eth0")? - before.0, sent(group, "eth1")? - before.1);
    let share = fast / (fast + slow);
    println!("measured: {:.1} % of the bytes went over the fast cable", 100.0 * share);
    ensure!(
        fast + slow >= BYTES * calls as f64,
        "{fast} + {slow} bytes are less than the calls have"
    );
    Ok(share)
}

/// Two machines with typical clutter: containers, a tunnel, a host name that resolves to the
/// machine itself. No options.
fn traps() -> Result<()> {
    let mut group = Group::empty("gbe4", 2)?;
    for (machine, tunnel) in [("n1", "10.66.0.1/24"), ("n2", "10.66.0.2/24")] {
        for line in [
            "link add docker0 type bridge",
            "addr add 172.17.0.1/16 dev docker0",
            "link add veth0a type veth peer name veth0b",
            "link set veth0b master docker0",
            "link set veth0a up",
            "link set veth0b up",
            "link set docker0 up",
            "tuntap add dev wg0 mode tun",
            &format!("addr add {tunnel} dev wg0"),
            "link set wg0 up",
        ] {
            group.lab.run(machine, &format!("ip {line}"))?;
        }
        let hosts = format!("printf '127.0.0.1 localhost\\n127.0.1.1 {machine}\\n' > /etc/hosts");
        ran(group.lab.command(machine, "sh").args(["-c", &hosts]))?;
    }
    let began = Instant::now();
    start_all(&mut group)?;
    println!("measured: met {} ms after the first start", began.elapsed().as_millis());
    group.exact(&call())?;
    for peer in &mut group.peers {
        let status = peer.status()?.to_string();
        for trap in ["172.17.", "10.66.", "127.0."] {
            ensure!(!status.contains(trap), "{trap} in {status}");
        }
    }
    let told = told_by_the_command(&group)?;
    for trap in ["172.17.", "10.66.", "127.0."] {
        ensure!(!told.contains(trap), "{trap} in {told}");
    }
    Ok(())
}

/// The output of `potluck status` on the first machine.
fn told_by_the_command(group: &Group) -> Result<String> {
    let start = group.start(0);
    let mut status = group.lab.command("n1", potluck_harness::program::command_line()?);
    status.args(["status", "--json"]).env("POTLUCK_HOME", start.home.with_extension("status"));
    let told = status.env("POTLUCK_KEY", start.key.context("a key")?).output()?;
    // Whether a node runs in that home directory does not matter here.
    let told = String::from_utf8(told.stdout)?;
    ensure!(told.contains("10.77.0.2"), "the other machine is not seen: {told}");
    Ok(told)
}

/// Without any option: with the interfaces that a node finds itself.
fn start_all(group: &mut Group) -> Result<()> {
    let join = json!({"do": "join"});
    group.found(2, &join, |_, usual| Start { options: Vec::new(), ..usual }).map(drop)
}

fn ipv4_alone(group: &Group, machine: &str) -> Result<()> {
    let disable = "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6";
    ran(group.lab.command(machine, "sh").args(["-c", disable]))
}

fn ipv6_alone(group: &Group, machine: &str) -> Result<()> {
    group.lab.run(machine, "ip -4 addr flush dev eth0")
}

/// The interface has IPv6 addresses, and all packets to them are dropped.
fn ipv6_broken(group: &Group, machine: &str) -> Result<()> {
    group.lab.deafen(machine, "ip6", "input", "meta l4proto tcp")
}

fn meet_soon(prepare: Prepare) -> Result<()> {
    let mut group = Group::empty("loop", 2)?;
    for machine in ["n1", "n2"] {
        prepare(&group, machine)?;
    }
    let (began, lag) = (Instant::now(), Lag::begin());
    start_all(&mut group)?;
    let (took, late) = (began.elapsed(), lag.ms());
    println!("measured: met {} ms after the first start", took.as_millis());
    let most = Duration::from_secs(3) + Duration::from_secs_f64(late / 1e3);
    ensure!(took < most, "met after {took:?}, and the machine was {late:.0} ms late");
    group.exact(&call())
}
