//! The address of a machine to which its data is sent.

use anyhow::{Context, Result, ensure};
use potluck_harness::{Group, Lab, Need, Suite};

use crate::LAN;

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

/// The bytes of a sum.
const BYTES: u64 = 8 << 20;

fn by_ipv4() -> Result<()> {
    // The control links use the address that answers first, which varies.
    for _ in 0..3 {
        let mut group = Group::up("gbe4", 2)?;
        let before = ipv6_bytes_out(&group.lab, "n1")?;
        group.sum(BYTES as usize / 4, 0)?;
        let by_ipv6 = ipv6_bytes_out(&group.lab, "n1")? - before;
        ensure!(by_ipv6 < BYTES / 10, "{by_ipv6} bytes went by IPv6");
    }
    Ok(())
}

fn by_ipv6_alone() -> Result<()> {
    let group = Group::empty("gbe4", 2)?;
    for machine in ["n1", "n2"] {
        // Silently dropped packets take longest to detect.
        group.lab.deafen(machine, "ip", "input", "ip protocol tcp")?;
    }
    let mut group = group.filled(2, 2)?;
    let before = ipv6_bytes_out(&group.lab, "n1")?;
    group.sum(BYTES as usize / 4, 0)?;
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
