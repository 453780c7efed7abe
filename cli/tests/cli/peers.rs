//! `peers` for a group of three machines, seen from a member, an observer and outside.

use crate::group::{Group, SOON};
use crate::keys::KEY;
use crate::run::{Network, event, told};
use crate::shape::is_as_listed;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

fn named<'a>(document: &'a Value, name: &str) -> Result<&'a Value> {
    let peers = document["peers"].as_array().context("a list")?;
    peers.iter().find(|peer| peer["name"] == name).with_context(|| format!("{name}: {document}"))
}

pub fn of_a_group() -> Result<()> {
    let group = Group::up(["ada", "bob", "cyd"])?;
    group.measured("n1")?;
    // A member knows its own links.
    let member = group.run("n1", &["peers", "--json"])?.json(0)?;
    let (ada, cyd) = (named(&member, "ada")?, named(&member, "cyd")?);
    ensure!(member["running"] == true && member["peers"][3].is_null(), "{member}");
    ensure!(ada["here"] == true && ada["link"].is_null() && ada["state"] == "in", "{ada}");
    ensure!(cyd["here"] == false && cyd["link"]["from"] == ada["node"], "{cyd}");
    ensure!(cyd["link"]["kind"] == "ethernet" && cyd["link"]["interface"] == "eth0", "{cyd}");
    ensure!(cyd["link"]["rtt_us"].is_u64() && cyd["link"]["rate_bps"].is_u64(), "{cyd}");
    ensure!(cyd["view"]["members"] == 3 && cyd["view"]["id"] == ada["view"]["id"], "{cyd}");
    ensure!(cyd["job"] == "test" && cyd["addresses"][0].is_string(), "{cyd}");

    // With an observer on this machine, all nodes tell of themselves.
    let mut up = group.network.up("n1", "n1", &[])?;
    up.wait_for_event("status", |s| s["observed"][2]["state"] == "in", SOON)?;
    let observed = group.run("n1", &["peers", "--json", "--wait", "3"])?.json(0)?;
    ensure!(named(&observed, "n1")?["observer"] == true, "{observed}");
    ensure!(named(&observed, "bob")?["state"] == "in", "{observed}");
    ensure!(named(&observed, "bob")?["process"].is_u64(), "{observed}");
    let few = group.run("n1", &["peers", "--json", "--wait", "9", "--within", "1"])?.json(3)?;
    ensure!(few["code"] == "too-few", "{few}");
    let text = group.run("n1", &["peers"])?;
    println!("{}", text.out);
    ensure!(text.code == 0 && !text.out.contains('\u{1b}'), "{text:?}");
    for name in ["\"ada\"", "\"bob\"", "\"cyd\""] {
        let line = text.out.lines().find(|line| line.starts_with(name)).context("a line")?;
        ensure!(
            line.contains("bit/s") && line.contains(" ms") && line.contains("10.77.0."),
            "{line}"
        );
    }
    let other = group.run("n1", &["peers", "--json", "--job", "potluck"])?.json(0)?;
    ensure!(other["peers"][0]["name"] == "n1" && other["peers"][1].is_null(), "{other}");

    // Without a node of its own it observes the cluster itself.
    told(&group.network.home("guest"), &["join"], KEY)?;
    let guest = group.network.run("n2", "guest", "peers", &["--job", "test"])?.json(0)?;
    ensure!(guest["running"] == false, "{guest}");
    let cyd = named(&guest, "cyd")?;
    ensure!(cyd["link"].is_null() && cyd["here"] == false && cyd["state"] == "in", "{cyd}");
    ensure!(cyd["port"]["kind"] == "ethernet" && cyd["port"]["rate_bps"].is_u64(), "{cyd}");
    let all = [member, observed, guest];
    is_as_listed("peers", include_str!("../golden/json/peers.txt"), &all)?;
    up.terminate()?;
    up.wait(SOON)?;
    group.end()
}

pub fn of_others() -> Result<()> {
    let network = Network::loopback()?;
    told(&network.home("ada"), &["join"], KEY)?;
    let nobody = network.run("n1", "ada", "peers", &[])?.json(3)?;
    ensure!(nobody["peers"] == serde_json::json!([]) && nobody["running"] == false, "{nobody}");
    let mut ada = network.up("n1", "ada", &[])?;
    event(&mut ada, "status")?;
    // A node of another cluster is no peer, but its announcement is listed.
    let eve = network.run("n1", "eve", "peers", &[])?.json(3)?;
    ensure!(eve["peers"] == serde_json::json!([]), "{eve}");
    ensure!(eve["neighbours"][0]["cluster"] == "other", "{eve}");
    ada.terminate()?;
    ensure!(ada.wait(SOON)?.success());
    Ok(())
}
