//! The address of a machine to which its data is sent.

use anyhow::{Context, Result, ensure};
use potluck_harness::{Group, Lab, Need, Suite};
use serde_json::json;

use crate::{LAN, all_exact};

pub fn add(suite: &mut Suite) {
    suite.test_needing(
        "data goes by IPv4 where a wire has both, whatever the control links took",
        &LAN,
        by_ipv4,
    );
    suite.test_needing(
        "IPv4 that leads nowhere does not keep data back",
        &[Need::Lab, Need::Command("nft")],
        by_ipv6_alone,
    );
}

const BYTES: u64 = 8 << 20;

fn sum(group: &mut Group) -> Result<()> {
    all_exact(&group.all(&json!({"do": "all_reduce", "len": BYTES / 4}), "done")?)
}

fn by_ipv4() -> Result<()> {
    // The control links use the address that answers first, which varies.
    for _ in 0..3 {
        let mut group = Group::up("gbe4", 2)?;
        let before = ipv6_bytes_out(&group.lab, "n1")?;
        sum(&mut group)?;
        let by_ipv6 = ipv6_bytes_out(&group.lab, "n1")? - before;
        ensure!(by_ipv6 < BYTES / 10, "{by_ipv6} bytes went by IPv6");
    }
    Ok(())
}

fn by_ipv6_alone() -> Result<()> {
    let mut group = Group::empty("gbe4", 2)?;
    for machine in ["n1", "n2"] {
        // Silently dropped packets take longest to detect.
        for rule in [
            "add table ip deaf",
            "add chain ip deaf in { type filter hook input priority 0 ; }",
            "add rule ip deaf in ip protocol tcp drop",
        ] {
            let done = group.lab.command(machine, "nft").args(rule.split(' ')).status()?;
            ensure!(done.success(), "nft {rule}");
        }
    }
    for index in 0..2 {
        let start = group.start(index);
        group.add(index, &start)?.order(&json!({"do": "join", "min": 2}))?;
    }
    group.meet()?;
    let before = ipv6_bytes_out(&group.lab, "n1")?;
    sum(&mut group)?;
    let by_ipv6 = ipv6_bytes_out(&group.lab, "n1")? - before;
    ensure!(by_ipv6 >= BYTES / 2, "{by_ipv6} bytes went by IPv6, and nothing else works");
    Ok(())
}

/// The bytes that `machine` has sent over IPv6 so far.
fn ipv6_bytes_out(lab: &Lab, machine: &str) -> Result<u64> {
    let told = lab.command(machine, "cat").arg("/proc/net/snmp6").output()?;
    let told = String::from_utf8(told.stdout)?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("Ip6OutOctets"))
        .context("no Ip6OutOctets")?;
    Ok(line.trim().parse()?)
}
