//! The network interfaces of this machine, filtered by the configuration.

use super::config::{Config, Network};
use super::environment::interface_filter;
use crate::os::{
    AddressPolicy, Interface, InterfaceFilter, InterfaceKind, InterfaceSet, InterfaceSource,
    inventory,
};
use crate::report::Result;
use std::net::IpAddr;

/// Lists the interfaces of this machine and applies a configuration to them.
pub(crate) struct MachineInterfaces {
    network: Network,
    filter: Option<InterfaceFilter>,
    trusted_links: Vec<String>,
}

impl MachineInterfaces {
    /// # Errors
    /// The configuration's interface filter cannot be parsed.
    pub(crate) fn of(config: &Config) -> Result<MachineInterfaces> {
        let filter = interface_filter(config)?;
        Ok(MachineInterfaces {
            network: config.network,
            filter,
            trusted_links: config.trusted_links.clone(),
        })
    }

    /// Selects from all interfaces those that the configuration uses.
    pub(crate) fn chosen(&self, all: &[Interface]) -> Vec<Interface> {
        let picks = |i: &&Interface| {
            self.filter.as_ref().map_or_else(|| i.usable(), |filter| filter.picks(i))
        };
        all.iter().filter(picks).cloned().collect()
    }

    /// Selects from all interfaces those that the configuration uses, the addresses that it accepts
    /// and the addresses of trusted links.
    pub(crate) fn interface_set(&self, all: Vec<Interface>) -> InterfaceSet {
        let chosen = self.chosen(&all);
        let policy = match self.network {
            Network::Loopback => AddressPolicy::Loopback,
            _ => AddressPolicy::Lan(chosen.iter().flat_map(|i| &i.addresses).copied().collect()),
        };
        let trusted = self.trusted_links.iter().flat_map(|name| addresses_of(name, &all)).collect();
        InterfaceSet { all, chosen, policy, trusted }
    }
}

impl InterfaceSource for MachineInterfaces {
    fn look(&mut self) -> Option<InterfaceSet> {
        Some(self.interface_set(inventory().ok()?))
    }
}

fn addresses_of(name: &str, interfaces: &[Interface]) -> Vec<IpAddr> {
    let named = interfaces
        .iter()
        .filter(|i| i.name == name || name == "lo" && i.kind == InterfaceKind::Loopback);
    named.flat_map(|i| i.addresses.iter().map(|a| a.ip)).collect()
}
