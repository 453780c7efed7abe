//! `status --graph`, `--svg`, `--dot` and `--json` for a group of three machines.

use crate::keys::KEY;
use crate::run::{Network, Ran, run, told};
use anyhow::{Context, Result, ensure};
use potluck_harness::Peer;
use potluck_harness::peer::Start;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// The name of the second node. It contains special characters of every picture format.
const NASTY: &str = "b</text>'&amp;\\N];";

/// Three machines with one node each; the last machine has a slow cable.
struct Group {
    nodes: Vec<Peer>,
    network: Network,
}

impl Group {
    fn up() -> Result<Group> {
        let mut group = Group { nodes: Vec::new(), network: Network::machines("slow1", 3)? };
        for (machine, name) in [("n1", "ada"), ("n2", NASTY), ("n3", "cyd")] {
            told(&group.network.home(machine), &["join"], KEY)?;
            let start = Start {
                key: None,
                home: group.network.home(machine),
                name: name.to_owned(),
                engine: None,
                program: None,
                options: Vec::new(),
                variables: vec![("POTLUCK_MEMBERS", "3".into())],
            };
            let mut node = Peer::start(&group.network.lab, machine, &start)?;
            node.ask(&json!({"do": "join"}), "joined", SOON)?;
            group.nodes.push(node);
        }
        for node in &mut group.nodes {
            node.status_where(|status| status["state"] == "in", SOON)?;
        }
        Ok(group)
    }

    fn status(&self, machine: &str, flags: &[&str]) -> Result<Ran> {
        run(&mut self.network.command(machine, machine, &[&["status"], flags].concat()), "")
    }

    /// The status once all links are measured and the plan uses the measurements.
    fn measured(&self, machine: &str) -> Result<Value> {
        let began = Instant::now();
        loop {
            let status = self.status(machine, &["--json"])?.json(0)?;
            let rates = |link: &Value| {
                link["there"]["rate_bps"].is_u64() && link["back"]["rate_bps"].is_u64()
            };
            let links = status["topology"]["links"]
                .as_array()
                .map_or(0, |links| links.iter().filter(|link| rates(link)).count());
            // With Gloo the group starts on Gloo and then switches to the native engine.
            let is_fitting = status["topology"]["plan"]
                .as_str()
                .is_some_and(|plan| plan.contains("whose links differ"));
            if links == 3 && is_fitting {
                return Ok(status);
            }
            ensure!(began.elapsed() < SOON, "not measured: {status}");
            // Polls: no event reports the end of the measurement.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn end(self) -> Result<()> {
        for mut node in self.nodes {
            node.process().terminate()?;
            ensure!(node.process().wait(SOON)?.success());
        }
        Ok(())
    }
}

pub fn three_machines() -> Result<()> {
    let group = Group::up()?;
    let status = group.measured("n1")?;
    let topology = &status["topology"];
    let of_machine = |name: &str| {
        let members = topology["members"].as_array().context("a list")?;
        members
            .iter()
            .find(|member| member["name"] == name)
            .with_context(|| format!("no {name} in {topology}"))
    };
    let (slow, nasty) = (of_machine("cyd")?, of_machine(NASTY)?);
    ensure!(
        topology["slowest"] == slow["rank"] && topology["me"] == of_machine("ada")?["rank"],
        "{topology}"
    );
    let slow_mbps = slow["rate_bps"].as_u64().context("a rate")? / 1_000_000;
    // At most the cable's rate; less if the processors have no time to send.
    ensure!((20..200).contains(&slow_mbps), "a cable of 200 Mbit/s carries {slow_mbps}");

    let graph = group.status("n1", &["--graph"])?;
    ensure!(graph.code == 0 && !graph.out.contains('\u{1b}'), "colours in a pipe: {graph:?}");
    println!("{}", graph.out);
    for part in [
        "3 members",
        "\"ada\"",
        "\"cyd\" is the slow one",
        "this node",
        "ethernet (eth0)",
        "plan: 3 members whose links differ",
    ] {
        ensure!(graph.out.contains(part), "no {part} in {}", graph.out);
    }
    ensure!(graph.out.contains(&format!("{} \"{NASTY}\"", nasty["rank"])), "{}", graph.out);
    // A path may be measured again in between, so only the identities are compared.
    let ids = |topology: &Value| -> Vec<Value> {
        let members = topology["members"].as_array().into_iter().flatten();
        members.map(|member| member["node"].clone()).collect()
    };
    let also_drawn = group.status("n1", &["--graph", "--json"])?.json(0)?;
    ensure!(
        ids(&also_drawn["topology"]) == ids(topology) && ids(topology).len() == 3,
        "{also_drawn}"
    );

    let dot = group.status("n1", &["--dot"])?;
    ensure!(
        dot.code == 0
            && dot.out.starts_with("graph potluck {")
            && dot.out.trim_end().ends_with('}'),
        "{dot:?}"
    );
    ensure!(dot.out.lines().filter(|line| line.contains(" -- ")).count() == 3, "{}", dot.out);
    ensure!(dot.out.contains("b</text>'&amp;amp;\\\\N];"), "{}", dot.out);
    ensure!(
        group.status("n1", &["--dot", "--json"])?.code == 2
            && group.status("n1", &["--dot", "--graph"])?.code == 2
    );

    let file = group.network.scratch.path().join("group.svg");
    let svg = group.status("n1", &["--svg", file.to_str().context("a path")?])?;
    ensure!(svg.code == 0 && svg.out.is_empty() && svg.err.contains("group.svg"), "{svg:?}");
    let picture = std::fs::read_to_string(&file)?;
    ensure!(picture.starts_with("<svg ") && picture.matches("<line ").count() == 3, "{picture}");
    ensure!(
        picture.contains("b&lt;/text&gt;&#39;&amp;amp;\\N];") && !picture.contains(NASTY),
        "{picture}"
    );
    let nowhere = group.status("n1", &["--svg", "/nowhere/group.svg"])?;
    ensure!(nowhere.complaint(1)?.contains("cannot write /nowhere/group.svg"), "{nowhere:?}");
    group.end()
}

/// Fields may be added to this list, never removed.
const FIELDS: &str = "\
    alone cluster.job cluster.name cluster.node cluster.process cluster.state \
    counters.committed counters.links counters.misbehaviours counters.other_versions \
    counters.overloads counters.strangers counters.views duplicates gloo here.job here.name \
    here.node here.process here.state interfaces.addresses interfaces.dropped interfaces.heard \
    interfaces.interface interfaces.queries interfaces.skipped interfaces.text job name \
    namespace node observed observer ok open other_jobs peers.address peers.forwarded peers.name \
    peers.node peers.rtt_us peers.through port process quarantined reasons running \
    sizes.max_members sizes.members sizes.min_members state state_text topology.engine \
    topology.forecasts.bytes topology.forecasts.us topology.links.a topology.links.b \
    topology.links.back.kind topology.links.back.medium topology.links.there.medium \
    topology.links.back.rate_bps topology.links.back.rtt_us topology.links.back.share_ppm \
    topology.links.path topology.links.path.interface topology.links.path.local \
    topology.links.path.remote topology.links.there.kind topology.links.there.rate_bps \
    topology.links.there.rtt_us topology.links.there.share_ppm topology.me \
    topology.members.name topology.members.node topology.members.rank \
    topology.members.rate_bps topology.plan topology.plan_revision topology.slowest \
    topology.view view.begun view.committed view.engine view.engine_reason view.id \
    view.in_sync view.members.name view.members.node view.members.rank \
    view.members.sizes.max_members view.members.sizes.members view.members.sizes.min_members \
    view.plan";

pub fn schema() -> Result<()> {
    let group = Group::up()?;
    let mut fields = std::collections::BTreeSet::new();
    collect(&group.measured("n2")?, "", &mut fields);
    let wanted: std::collections::BTreeSet<String> =
        FIELDS.split_whitespace().map(str::to_owned).collect();
    let [gone, new] = [&wanted - &fields, &fields - &wanted];
    ensure!(fields == wanted, "gone: {gone:?}, new: {new:?}");
    group.end()
}

/// Collects the paths of all values that are neither objects nor non-empty lists.
fn collect(value: &Value, at: &str, fields: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let join =
                |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
            map.iter().for_each(|(name, value)| collect(value, &join(name), fields));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().for_each(|value| collect(value, at, fields));
        }
        _ => drop(fields.insert(at.to_owned())),
    }
}

pub fn nothing_to_draw() -> Result<()> {
    let network = Network::loopback()?;
    let status = |flags: &[&str]| {
        let arguments = [&["status", "--loopback"], flags].concat();
        run(&mut network.command("n1", "ada", &arguments), "")
    };
    let file = network.scratch.path().join("group.svg");
    let svg = ["--svg", file.to_str().context("a path")?];
    for flags in [&["--graph"][..], &["--dot"], &svg] {
        let ran = status(flags)?;
        ensure!(
            ran.err.contains("nothing to draw: start your program")
                && ran.code == 3
                && ran.out.is_empty(),
            "{ran:?}"
        );
    }
    told(&network.home("ada"), &["join"], KEY)?;
    let mut alone = network.up("n1", "ada", &[])?;
    alone.wait_for_line(|line| line.contains("\"state\":\"alone\""), SOON)?;
    let ran = status(&["--dot"])?;
    ensure!(ran.complaint(3)?.contains("no group to draw yet: alone") && !file.exists(), "{ran:?}");
    let ran = status(&["--graph"])?;
    ensure!(ran.code == 0 && ran.out.contains("alone"), "{ran:?}");
    alone.terminate()?;
    ensure!(alone.wait(SOON)?.success());
    Ok(())
}
