//! The machines of a group, and the addresses by which one of its members reaches them.

use crate::address::for_programs;
use crate::exit::{Exit, Stop};
use anyhow::Result;
use potluck::report::document::{GraphLink, InterfaceDocument, PeerDocument, StatusDocument};
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A machine of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The lowest rank of its members.
    pub rank: usize,
    /// The name of that member.
    pub name: String,
    /// Its public key.
    pub node: String,
    /// Its address.
    pub address: IpAddr,
    /// How many members it has.
    pub slots: usize,
}

/// The machines of a group in the order of their ranks, as the first of these members reaches them.
///
/// # Errors
/// It has no direct path to one of them.
pub fn of(group: &[&StatusDocument]) -> Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    let Some(reporter) = group.first() else { return Ok(hosts) };
    let own = own_address(reporter, group);
    for member in reporter.view.iter().flat_map(|view| &view.members) {
        let address = if member.node == reporter.node {
            Some(own)
        } else {
            // Another member on the same machine.
            address(reporter, &member.node, group).map(|ip| if ip.is_loopback() { own } else { ip })
        };
        let Some(address) = address else {
            let sentence = format!(
                "\"{}\" has no direct path to \"{}\" with an address that other programs can use",
                reporter.name, member.name
            );
            return Err(Stop::with(Exit::Failed, "no-path", sentence));
        };
        match hosts.iter_mut().find(|host| host.address == address) {
            Some(host) => host.slots += 1,
            None => hosts.push(Host {
                rank: member.rank,
                name: member.name.clone(),
                node: member.node.clone(),
                address,
                slots: 1,
            }),
        }
    }
    Ok(hosts)
}

/// A sentence, if the machines of a group are not on one network.
pub fn warning(group: &[&StatusDocument]) -> Option<String> {
    let reporter = group.first()?;
    let interfaces: BTreeSet<&String> =
        links(reporter).filter_map(|link| link.path.as_ref()?.interface.as_ref()).collect();
    (interfaces.len() > 1).then(|| {
        let names: Vec<&str> = interfaces.iter().map(|name| name.as_str()).collect();
        format!(
            "no network is common to all: \"{}\" reaches the others over {}, and these addresses \
             are its own view",
            reporter.name,
            names.join(", ")
        )
    })
}

/// The address at which a node reaches another one directly. If that is link-local, the other one
/// must have told its addresses.
fn address(from: &StatusDocument, node: &str, group: &[&StatusDocument]) -> Option<IpAddr> {
    let is_direct =
        |peer: &&PeerDocument| peer.node == node && peer.through.is_empty() && !peer.forwarded;
    let address: SocketAddr = from.peers.iter().find(is_direct)?.address.parse().ok()?;
    let networks = group.iter().find(|document| document.node == node).map(|own| networks(own));
    for_programs(address.ip(), &networks.unwrap_or_default())
}

/// The address of the node itself: as another one reaches it, else that of its fastest link.
fn own_address(reporter: &StatusDocument, group: &[&StatusDocument]) -> IpAddr {
    let as_reached = group.iter().find_map(|other| address(other, &reporter.node, group));
    let fastest = || {
        let link = links(reporter).max_by_key(|link| link.rate_bps())?;
        for_programs(link.path.as_ref()?.local?.ip(), &networks(reporter))
    };
    as_reached.or_else(fastest).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The addresses of a node, by network.
fn networks(node: &StatusDocument) -> Vec<Vec<IpAddr>> {
    let addresses = |interface: &InterfaceDocument| {
        interface.addresses.iter().filter_map(|address| address.parse().ok()).collect()
    };
    node.interfaces.iter().map(addresses).collect()
}

/// The links of a node that end at itself.
fn links(node: &StatusDocument) -> impl Iterator<Item = &GraphLink> {
    let graph = node.topology.iter();
    graph.flat_map(|graph| &graph.links).filter(|link| link.path.is_some())
}
