//! The contribution of a machine to the next generation.

use anyhow::{Result, ensure};
use potluck::report::{Activity, InterfaceReport, PeerStatus};
use potluck::{Peer, Status};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The contribution of a machine: numbers and addresses only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// How many processes it starts.
    pub processes: u8,
    /// Its free ports: one for the master of torch, one for the coordinator of JAX, and one for
    /// each process.
    pub ports: Vec<u16>,
    /// By rank in the View: the address at which this machine reaches that one directly. None for
    /// itself, or without a direct path.
    pub paths: Vec<Option<IpAddr>>,
    /// Its own addresses, by network.
    pub networks: Vec<Vec<IpAddr>>,
    /// A digest of its command.
    pub command: u64,
}

impl Offer {
    /// Whether it can be one of a machine in a group of `size`.
    pub fn check(&self, size: usize) -> Result<()> {
        let Offer { processes, ports, paths, networks, .. } = self;
        ensure!((1..=PROCESSES_MAX).contains(processes), "{processes} processes on one machine");
        ensure!(ports.len() == Offer::ports_of(*processes), "{} ports", ports.len());
        ensure!(!ports.contains(&0), "port 0");
        ensure!(paths.len() == size, "{} addresses for {size} machines", paths.len());
        let are_few = networks.iter().all(|network| network.len() <= ADDRESSES_MAX);
        ensure!(networks.len() <= ADDRESSES_MAX && are_few, "more addresses than a machine has");
        Ok(())
    }

    /// The port on which the master of torch listens, if it is this machine.
    pub fn master_port(&self) -> u16 {
        self.ports.first().copied().unwrap_or_default()
    }

    /// The port on which the coordinator of JAX listens, if it is this machine.
    pub fn coordinator_port(&self) -> u16 {
        self.ports.get(1).copied().unwrap_or_default()
    }

    /// The port of a process for its neighbour in the ring.
    pub fn ring_port(&self, process: usize) -> u16 {
        self.ports.get(2 + process).copied().unwrap_or_default()
    }

    /// How many ports a machine with this many processes offers.
    pub fn ports_of(processes: u8) -> usize {
        2 + usize::from(processes)
    }
}

/// The addresses at which this machine reaches the others, by their rank.
pub fn paths(status: &Status, members: &[Peer]) -> Vec<Option<IpAddr>> {
    members.iter().map(|member| link_to(status, member).map(|link| link.address.ip())).collect()
}

/// The interface over which this machine reaches another one.
pub fn interface(status: &Status, member: &Peer) -> Option<String> {
    link_to(status, member).and_then(|link| link.interface.clone())
}

/// The link to a member, if it is direct and ends at an address of its own.
fn link_to<'s>(status: &'s Status, member: &Peer) -> Option<&'s PeerStatus> {
    let is_direct =
        |link: &&PeerStatus| link.node == member.node && link.through.is_empty() && !link.forwarded;
    status.peers.iter().find(is_direct)
}

/// The addresses of this machine, by network.
pub fn networks(status: &Status) -> Vec<Vec<IpAddr>> {
    let addresses = |report: &InterfaceReport| match &report.activity {
        Activity::Active { addresses, .. } => {
            Some(addresses.iter().map(|at| at.ip).take(ADDRESSES_MAX).collect())
        }
        _ => None,
    };
    status.interfaces.iter().filter_map(addresses).take(ADDRESSES_MAX).collect()
}

/// More addresses than that are not told.
const ADDRESSES_MAX: usize = 8;

/// More processes than that on a home computer are a mistake.
pub const PROCESSES_MAX: u8 = 64;
