//! `status --graph`, `--svg`, `--dot` and `--json` for a group of three machines.

use crate::group::{Group, SOON};
use crate::keys::KEY;
use crate::run::{Network, run, told};
use crate::shape::is_as_listed;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The name of the second node. It contains special characters of every picture format.
const NASTY: &str = "b</text>'&amp;\\N];";

pub fn three_machines() -> Result<()> {
    let group = Group::up(["ada", NASTY, "cyd"])?;
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
    // The result is there all the same, and then the error.
    let nowhere = group.status("n1", &["--json", "--svg", "/nowhere/group.svg"])?;
    ensure!(nowhere.code == 1 && nowhere.out.lines().count() == 2, "{nowhere:?}");
    group.end()
}

/// Fields may be added to the list, never removed.
pub fn schema() -> Result<()> {
    let group = Group::up(["ada", NASTY, "cyd"])?;
    let status = group.measured("n2")?;
    is_as_listed("status", include_str!("../golden/json/status.txt"), &[status])?;
    group.end()
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
