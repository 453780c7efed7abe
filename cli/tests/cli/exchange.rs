//! `run` on machines of a lab: the variables and addresses of the programs.

use crate::launch::{ends, network, network_of, start};
use crate::run::{Network, event};
use crate::unprivileged;
use anyhow::{Context, Result, ensure};
use potluck_harness::Child;
use potluck_harness::chance::{Chance, seed};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// Each rank sends its number to the master and to the next one in the ring, and prints the numbers
/// and the variables that it has got.
const EXCHANGE: &str = r#"
import json, os, socket, time

e = os.environ
rank, world = int(e["RANK"]), int(e["WORLD_SIZE"])
ring = [entry[0].rsplit(":", 1) for entry in json.load(open(e["MLX_HOSTFILE"]))]
here = socket.create_server((ring[rank][0], int(ring[rank][1])))
master = socket.create_server(("", int(e["MASTER_PORT"]))) if rank == 0 else None

def connected(host, port):
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=20)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)

def said(to, word):
    to.sendall(b"%d\n" % word)

def heard(of):
    return int(of.makefile().readline())

after = connected(*ring[(rank + 1) % world])
said(after, rank)
before = heard(here.accept()[0])
if master:
    others = [master.accept()[0] for _ in range(world - 1)]
    total = sum(heard(other) for other in others)
    [said(other, total) for other in others]
else:
    link = connected(e["MASTER_ADDR"], e["MASTER_PORT"])
    said(link, rank)
    total = heard(link)
names = [
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "MLX_RANK", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID",
    "JAX_NUM_PROCESSES", "TORCHELASTIC_RESTART_COUNT", "GLOO_SOCKET_IFNAME", "POTLUCK_GENERATION",
    "OMPI_MCA_btl_tcp_if_include",
]
told = {name: e.get(name) for name in names}
print(json.dumps({"sum": total, "before": before, "ring": ring, "told": told}), flush=True)
"#;

pub fn any_order() -> Result<()> {
    let network = network(3)?;
    for order in [["n3", "n1", "n2"], ["n2", "n3", "n1"]] {
        exchange(&network, start_in(&network, order)?, ON_A_SWITCH)?;
    }
    Ok(())
}

/// `POTLUCK_ROUNDS` orders, else three.
pub fn random_orders() -> Result<()> {
    let network = network(3)?;
    let command = command(&network, "python3")?;
    at_random(&network, "random start orders", |machine| {
        start(&network, machine, &OPTIONS, &strs(&command))
    })
}

/// The same, and each machine has the home of a user without privileges.
pub fn random_orders_unprivileged() -> Result<()> {
    let network = network(3)?;
    let python = unprivileged::python().context("a user without privileges runs no python3")?;
    let command = command(&network, python)?;
    for machine in network.lab.nodes() {
        unprivileged::give(&network.home(&machine))?;
    }
    at_random(&network, "random start orders, unprivileged", |machine| {
        let arguments = [&["run", "--json", "--name", machine], &OPTIONS[..], &["--"]].concat();
        let arguments = [arguments, strs(&command)].concat();
        Child::spawn(&mut unprivileged::command(&network, machine, &arguments))
    })
}

fn at_random(network: &Network, name: &str, start: impl Fn(&str) -> Result<Child>) -> Result<()> {
    let rounds = std::env::var("POTLUCK_ROUNDS").ok().map(|text| text.parse()).transpose()?;
    let mut chance = Chance::named(seed(name)?, name);
    for round in 0..rounds.unwrap_or(3) {
        let (mut rest, mut order) = (network.lab.nodes(), Vec::new());
        let mut children = Vec::new();
        while !rest.is_empty() {
            let machine = rest.remove(chance.below(rest.len()));
            children.push(start(&machine)?);
            order.push(machine);
            // Not a wait for anything: the command of the next machine is typed later.
            let pause = [0, chance.below(100), chance.below(2500)][chance.below(3)];
            std::thread::sleep(Duration::from_millis(pause as u64));
        }
        exchange(network, children, ON_A_SWITCH)
            .with_context(|| format!("round {round}: {order:?}"))?;
    }
    Ok(())
}

/// Each cable is a network of its own, so each machine has another address for each of the others.
pub fn without_a_switch() -> Result<()> {
    let network = network_of("direct3", 3)?;
    exchange(&network, start_in(&network, ["n1", "n2", "n3"])?, ON_CABLES)
}

/// The smallest networks with the addresses of three machines of `loop`, and of `direct3`.
const ON_A_SWITCH: &str = "10.77.0.0/30";
const ON_CABLES: &str = "10.78.0.0/22";

const OPTIONS: [&str; 2] = ["--members", "3"];

/// The words that run `EXCHANGE`.
fn command(network: &Network, python: &str) -> Result<[String; 2]> {
    let script = network.scratch.path().join("exchange.py");
    fs::write(&script, EXCHANGE)?;
    Ok([python.to_owned(), script.to_str().context("a path")?.to_owned()])
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The first ones wait until all are there.
fn start_in(network: &Network, order: [&str; 3]) -> Result<Vec<Child>> {
    let command = command(network, "python3")?;
    order.iter().map(|machine| start(network, machine, &OPTIONS, &strs(&command))).collect()
}

/// Waits for the end of `EXCHANGE` on all machines, and checks the output of each.
fn exchange(network: &Network, mut children: Vec<Child>, subnet: &str) -> Result<()> {
    let mut started = Vec::new();
    for child in &mut children {
        started.push(event(child, "started")?);
    }
    let mut ranks = BTreeSet::new();
    for (child, its) in children.iter_mut().zip(&started) {
        ends(child, 0)?;
        for same in ["generation", "machines", "world", "port"] {
            ensure!(its[same] == started[0][same], "{same}: {its} and {}", started[0]);
        }
        let result = child.stdout().iter().find_map(|line| printed(line));
        let rank = its["ranks"][0].as_u64().context("a rank")?;
        ensure!(ranks.insert(rank), "rank {rank} twice");
        check(network, &result.context("a result")?, rank, its, subnet)?;
    }
    ensure!(ranks == BTreeSet::from([0, 1, 2]), "{ranks:?}");
    Ok(())
}

/// The result of `EXCHANGE` in an event.
fn printed(line: &str) -> Option<Value> {
    let event: Value = serde_json::from_str(line).ok()?;
    serde_json::from_str(event["line"].as_str()?).ok()
}

fn check(
    network: &Network,
    printed: &Value,
    rank: u64,
    started: &Value,
    subnet: &str,
) -> Result<()> {
    ensure!(printed["sum"] == 3 && printed["before"] == (rank + 2) % 3, "{printed}");
    let machine = |rank: usize| started["machines"][rank % 3].as_str().unwrap_or_default();
    for (place, entry) in printed["ring"].as_array().context("a ring")?.iter().enumerate() {
        let address = network.lab.addr_from(machine(place), machine(place + 2)).to_string();
        ensure!(entry[0] == address, "{entry} is not {address} of {}", machine(place));
    }
    // As the second one sees it, also to the master itself.
    let from = machine(usize::try_from(rank)?.max(1));
    let master = network.lab.addr_from(machine(0), from).to_string();
    ensure!(started["master"] == master, "{started}");
    let text = rank.to_string();
    let jax = printed["told"]["JAX_COORDINATOR_ADDRESS"].as_str().unwrap_or_default();
    ensure!(jax.starts_with(&format!("{master}:")), "{jax}");
    let interface = printed["told"]["GLOO_SOCKET_IFNAME"].as_str().context("an interface")?;
    let path = format!("/sys/class/net/{interface}");
    network.lab.run(machine(usize::try_from(rank)?), &format!("test -e {path}"))?;
    let expected = json!({
        "RANK": text, "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": text, "GROUP_WORLD_SIZE": "3", "MASTER_ADDR": master,
        "MASTER_PORT": started["port"].to_string(), "MLX_RANK": text,
        "JAX_COORDINATOR_ADDRESS": jax, "JAX_PROCESS_ID": text, "JAX_NUM_PROCESSES": "3",
        "TORCHELASTIC_RESTART_COUNT": "0", "GLOO_SOCKET_IFNAME": interface,
        "POTLUCK_GENERATION": "1", "OMPI_MCA_btl_tcp_if_include": subnet,
    });
    ensure!(printed["told"] == expected, "{} is not {expected}", printed["told"]);
    Ok(())
}
