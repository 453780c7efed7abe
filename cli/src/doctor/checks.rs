//! The checks, in the order in which a newcomer would make them: this machine first.

use super::check::Check;
use super::facts::Facts;
use super::firewall::{Ports, for_ufw, opened};
use crate::document::hex;
use potluck::report::{Activity, InterfaceReport, Membership, Sight, Unlinked, UnlinkedReason};
use std::collections::BTreeSet;
use std::io;

/// Clocks that differ by less are the same for people.
const CLOCK_MS: i64 = 2000;

const NOBODY_LOOKED: &str = "nobody has looked back";

/// A program there must be named: discovery does not find it.
const BEHIND_ROUTER: &str = "multicast does not cross the router to the others";

/// All checks.
pub fn all(facts: &Facts) -> Vec<Check> {
    let one: [fn(&Facts) -> Check; 16] = [
        key, home, identity, network, vpn, heard, hears_here, subnets, reaches, reached, full_size,
        others_key, versions, jobs, clocks, gloo,
    ];
    one.iter().map(|check| check(facts)).collect()
}

fn key(facts: &Facts) -> Check {
    match facts.key {
        Some(place) => Check::pass("key", format!("the cluster key is here ({place})")),
        None if facts.neighbours.iter().any(|of| of.membership == Membership::Other) => {
            Check::fail("key", "this machine has no cluster key, and a cluster is on this network")
                .with(format!("potluck join CODE{}", facts.flag))
        }
        None => Check::fail("key", "this machine has no cluster key")
            .with(format!("potluck up{}", facts.flag)),
    }
}

fn home(facts: &Facts) -> Check {
    const NAME: &str = "disk";
    if let Some(fault) = &facts.faults.disk {
        let folder = &facts.folder;
        return Check::fail(NAME, fault).with(format!("df -h {folder}; ls -ld {folder}"));
    }
    match told_by_others(facts, "cannot be written") {
        Some(told) => Check::fail(NAME, told).with("df -h    # there"),
        None => Check::pass(NAME, format!("{} can be written", facts.folder)),
    }
}

fn identity(facts: &Facts) -> Check {
    // Every node that has met two processes of one identity names it, not only those two.
    let all = || facts.here.iter().chain(&facts.nodes);
    let copied: BTreeSet<&String> =
        all().flat_map(|node| &node.duplicates).chain(&facts.duplicates).collect();
    let named = |id: &&String| match all().find(|node| node.node == **id) {
        Some(node) => quoted(&node.name),
        None => facts.names.get(*id).map_or_else(|| id.chars().take(8).collect(), |n| quoted(n)),
    };
    match list(copied.iter().map(named)) {
        None if !facts.is_duplicate => Check::pass("identity", "no other process uses it"),
        of => Check::fail(
            "identity",
            format!(
                "two machines use one identity ({}): potluck's files were copied. On the machine \
                 with the copy, move away the file that this names, and start again",
                of.unwrap_or_else(|| "this machine's".to_owned())
            ),
        )
        .with(format!("potluck identity{}", facts.flag)),
    }
}

fn network(facts: &Facts) -> Check {
    let used = facts.interfaces.iter().filter(|on| is_used(on));
    let used: Vec<String> = used.map(|on| on.interface.clone()).collect();
    if used.is_empty() {
        return Check::fail(
            "network",
            "no interface is up with an address: no cable, no Wi-Fi, or the router has given no \
             address yet",
        )
        .with("ip address");
    }
    Check::pass("network", format!("in use: {}", used.join(", ")))
}

fn vpn(facts: &Facts) -> Check {
    const NAME: &str = "vpn";
    if let Some(taken) = facts.faults.routes.first() {
        let address = taken.subnet.split('/').next().unwrap_or_default();
        return Check::fail(
            NAME,
            format!("{taken}. Let it leave the local network alone, or end it"),
        )
        .with(format!("ip route show table all | grep {}; ip addr show to {address}", taken.over));
    }
    match told_by_others(facts, "a VPN is in the way") {
        Some(told) => Check::fail(NAME, told).with("ip route    # there"),
        None => Check::pass(NAME, "none takes the local network"),
    }
}

fn heard(facts: &Facts) -> Check {
    const NAME: &str = "multicast in";
    let counts = facts.interfaces.iter().filter_map(|on| match on.activity {
        Activity::Active { adverts, .. } => Some((&on.interface, adverts)),
        _ => None,
    });
    let counts: Vec<_> = counts.collect();
    let heard = counts.iter().filter(|(_, adverts)| *adverts > 0);
    let heard: Vec<&str> = heard.map(|(name, _)| name.as_str()).collect();
    if counts.is_empty() {
        Check::skipped(NAME, "there is no network")
    } else if !heard.is_empty() {
        Check::pass(NAME, format!("others are heard on {}", heard.join(", ")))
    } else if facts.nodes.is_empty() {
        Check::warn(
            NAME,
            "nobody is heard: nothing of potluck runs on another machine, or multicast does not \
             get through. Let `potluck up` run there, or name that machine here",
        )
        .with("potluck doctor --peer ADDRESS")
    } else if facts.nodes.iter().all(|node| facts.routed.contains(&node.node)) {
        Check::skipped(NAME, BEHIND_ROUTER)
    } else {
        Check::fail(
            NAME,
            "others are here and are not heard: a firewall of this machine drops multicast DNS, or \
             the switch or access point does",
        )
        .with(opened(Ports::Multicast))
    }
}

fn hears_here(facts: &Facts) -> Check {
    const NAME: &str = "multicast out";
    let mut sights = sights(facts);
    if sights.is_empty() {
        return Check::skipped(NAME, NOBODY_LOOKED);
    }
    sights.retain(|(node, _)| !facts.routed.contains(node));
    if sights.is_empty() {
        return Check::skipped(NAME, BEHIND_ROUTER);
    }
    let deaf = sights.iter().filter(|(_, sight)| !sight.hears);
    match list(deaf.map(|(node, _)| name_of(facts, node))) {
        None => Check::pass(NAME, "all others hear this machine"),
        Some(deaf) => {
            Check::fail(NAME, format!("not heard by {deaf}: a firewall there drops multicast DNS"))
                .with(format!("{}    # on {deaf}", for_ufw(Ports::Multicast)))
        }
    }
}

fn subnets(facts: &Facts) -> Check {
    const NAME: &str = "subnets";
    let is_far = |of: &&Unlinked| matches!(of.why, UnlinkedReason::OtherNetwork { .. });
    match facts.unlinked.iter().find(is_far) {
        Some(far) => Check::fail(NAME, far.to_string()).with("ip address"),
        None if facts.nodes.is_empty() => Check::skipped(NAME, "no other machine is known"),
        None if !facts.routed.is_empty() => {
            let names = list(facts.routed.iter().map(|node| name_of(facts, node)));
            let names = names.unwrap_or_default();
            Check::pass(NAME, format!("behind a router, and found only by address: {names}"))
        }
        None => Check::pass(NAME, "all others are in a subnet of this machine"),
    }
}

fn reaches(facts: &Facts) -> Check {
    const NAME: &str = "reach out";
    let is_closed = |of: &&Unlinked| {
        use UnlinkedReason as R;
        matches!(of.why, R::Announced { .. } | R::ByHand { .. } | R::NotAdmitted { .. })
    };
    if let Some(closed) = facts.unlinked.iter().find(is_closed) {
        use UnlinkedReason as R;
        let refused = io::ErrorKind::ConnectionRefused;
        let command = match closed.why {
            R::NotAdmitted { .. } => "potluck deny    # there: it lists whom it denies".to_owned(),
            R::ByHand { error } if error == refused => "potluck up    # there".to_owned(),
            _ => for_ufw(Ports::Nodes),
        };
        return Check::fail(NAME, closed.to_string()).with(command);
    }
    let closed = facts.dials.iter().find_map(|dial| Some((dial, dial.error.as_ref()?)));
    match closed {
        Some((dial, error)) => {
            let name = quoted(&dial.name);
            let at = dial.to.first().map(ToString::to_string).unwrap_or_default();
            Check::fail(
                NAME,
                format!(
                    "{name} reaches this machine, and does not answer at {at} ({error}): the \
                     firewall of {name} drops connections"
                ),
            )
            .with(format!("{}    # on {name}", for_ufw(Ports::Nodes)))
        }
        None if facts.dials.is_empty() => Check::skipped(NAME, "no other machine is known"),
        None => Check::pass(NAME, "this machine reaches all others"),
    }
}

fn reached(facts: &Facts) -> Check {
    const NAME: &str = "reach in";
    let mut sights = sights(facts);
    if sights.is_empty() {
        return Check::skipped(NAME, NOBODY_LOOKED);
    }
    sights.retain(|(_, sight)| {
        !sight.dials.is_empty() && sight.dials.iter().all(|dial| dial.error.is_some())
    });
    match list(sights.iter().map(|(node, _)| name_of(facts, node))) {
        None => Check::pass(NAME, "all others reach this machine"),
        Some(names) => {
            let error = sights.first().and_then(|(_, sight)| sight.dials.first()?.error.clone());
            Check::fail(
                NAME,
                format!(
                    "{names} cannot connect to this machine ({}): its firewall drops connections",
                    error.unwrap_or_default()
                ),
            )
            .with(opened(Ports::Nodes))
        }
    }
}

fn full_size(facts: &Facts) -> Check {
    const NAME: &str = "full packets";
    let is_silent = |of: &&Unlinked| matches!(of.why, UnlinkedReason::Silent { .. });
    if let Some(silent) = facts.unlinked.iter().find(is_silent) {
        return Check::fail(NAME, silent.to_string()).with("ip link    # compare the MTU");
    }
    let missing = facts.looked.iter().filter(|of| of.sight.is_none());
    match list(missing.map(|of| name_of(facts, &hex(of.peer.node)))) {
        Some(names) => Check::fail(
            NAME,
            format!(
                "a question of 64 KiB to {names} was not answered, and the link stands: packets of \
                 full size are lost on the way"
            ),
        )
        .with("ip link    # compare the MTU"),
        None if facts.looked.is_empty() => Check::skipped(NAME, NOBODY_LOOKED),
        None => Check::pass(NAME, "they get through in both directions"),
    }
}

fn others_key(facts: &Facts) -> Check {
    const NAME: &str = "clusters";
    let is_other = |of: &&Unlinked| {
        of.why == UnlinkedReason::OtherCluster
            || matches!(&of.why, UnlinkedReason::Refused(why) if why.contains("cluster key"))
    };
    let other = facts.unlinked.iter().find(is_other);
    match other {
        None if facts.key.is_none() => Check::skipped(NAME, "this machine has no key to compare"),
        None => Check::pass(NAME, "all that is heard has the same key"),
        Some(other) if facts.nodes.is_empty() => {
            Check::fail(NAME, other.to_string()).with(format!("potluck join CODE{}", facts.flag))
        }
        Some(other) => Check::warn(NAME, other.to_string()),
    }
}

fn versions(facts: &Facts) -> Check {
    const NAME: &str = "versions";
    let is_other = |of: &&Unlinked| {
        matches!(of.why, UnlinkedReason::OtherVersion { .. })
            || matches!(&of.why, UnlinkedReason::Refused(why) if why.contains("version"))
    };
    let of_neighbours = facts.neighbours.iter().any(|of| of.membership == Membership::OtherVersion);
    match facts.unlinked.iter().find(is_other) {
        Some(other) => Check::fail(NAME, other.to_string()).with("potluck --version"),
        None if of_neighbours => {
            Check::fail(NAME, "a node with another version of the protocol is on this network")
                .with("potluck --version")
        }
        None if facts.silent > 0 => Check::warn(
            NAME,
            "a program on this machine does not answer: it is stopped, or of another version",
        ),
        None => Check::pass(NAME, "all that is heard speaks this version of the protocol"),
    }
}

fn jobs(facts: &Facts) -> Check {
    const NAME: &str = "jobs";
    let programs = || facts.here.iter().chain(&facts.nodes).filter(|node| !node.observer);
    let alone: BTreeSet<&str> = programs()
        .filter(|node| node.view.as_ref().is_none_or(|view| view.members.len() < 2))
        .map(|node| node.job.as_str())
        .collect();
    let jobs: BTreeSet<&str> = programs().map(|node| node.job.as_str()).collect();
    if programs().next().is_none() {
        return Check::skipped(NAME, "no program runs");
    }
    let listed = jobs.iter().copied().collect::<Vec<_>>().join(", ");
    if alone.len() > 1 {
        return Check::warn(
            NAME,
            format!("programs of different jobs wait, each alone: {listed}. One job is one group"),
        );
    }
    Check::pass(NAME, format!("running: {listed}"))
}

fn clocks(facts: &Facts) -> Check {
    const NAME: &str = "clocks";
    let sights = sights(facts);
    if sights.is_empty() {
        return Check::skipped(NAME, NOBODY_LOOKED);
    }
    let far = sights.iter().max_by_key(|(_, sight)| sight.clock_ahead_ms.unsigned_abs());
    match far {
        Some((node, sight)) if sight.clock_ahead_ms.abs() > CLOCK_MS => {
            let name = name_of(facts, node);
            let seconds = sight.clock_ahead_ms.unsigned_abs() / 1000;
            let side = if sight.clock_ahead_ms > 0 { "ahead of" } else { "behind" };
            Check::warn(
                NAME,
                format!(
                    "the clock of {name} is {seconds} s {side} this machine's. Nothing of potluck \
                     needs it, but logs are hard to compare"
                ),
            )
            .with("timedatectl set-ntp true")
        }
        _ => Check::pass(NAME, "they agree within two seconds"),
    }
}

fn gloo(facts: &Facts) -> Check {
    const NAME: &str = "gloo";
    let own = potluck::gloo_version();
    let lacking = facts.nodes.iter().filter(|node| node.gloo.is_none() && !node.observer);
    match (own, list(lacking.map(|node| quoted(&node.name)))) {
        (Some(version), Some(names)) => Check::warn(
            NAME,
            format!(
                "this build has {version}, and there is no Gloo on {names}: sums run on the native \
                 engine"
            ),
        ),
        (Some(version), None) => Check::pass(NAME, version),
        (None, _) => Check::skipped(NAME, "this build has no Gloo: sums run on the native engine"),
    }
}

fn is_used(on: &InterfaceReport) -> bool {
    matches!(on.activity, Activity::Active { .. })
}

/// The first fault with these words that another machine tells of itself, with its name.
fn told_by_others(facts: &Facts, words: &str) -> Option<String> {
    sights(facts).into_iter().find_map(|(node, sight)| {
        let fault = sight.faults.iter().find(|fault| fault.contains(words))?;
        Some(format!("{} says of its machine: {fault}", name_of(facts, &node)))
    })
}

/// The nodes that have looked back, by key, with their answers.
fn sights(facts: &Facts) -> Vec<(String, &Sight)> {
    let answered = facts.looked.iter();
    answered.filter_map(|of| Some((hex(of.peer.node), of.sight.as_ref()?))).collect()
}

/// The name of the node with this key, in quotes.
fn name_of(facts: &Facts, node: &str) -> String {
    quoted(facts.names.get(node).map_or(node, String::as_str))
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// These names, each once; `None` of nothing.
fn list(names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect::<BTreeSet<String>>().into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}
