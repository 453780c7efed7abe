//! The addresses that members have told of themselves.

use super::super::sighting::Advert;
use super::direct_links::DirectLinks;
use crate::identity::Boot;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// The own addresses of members, without scopes.
#[derive(Default)]
pub(super) struct ToldAddresses {
    by_boot: BTreeMap<Boot, BTreeSet<(IpAddr, u16)>>,
}

impl ToldAddresses {
    /// Replaces the addresses of a boot. If there is no room, those of boots without a link go.
    pub(super) fn set(&mut self, boot: Boot, addresses: &[SocketAddr], links: &DirectLinks) {
        if self.by_boot.len() >= TOLD_MAX {
            self.by_boot.retain(|boot, _| links.has(*boot));
        }
        if self.by_boot.len() < TOLD_MAX || self.by_boot.contains_key(&boot) {
            let plain = addresses.iter().take(Advert::ADDRESSES_MAX).map(|to| plain(*to));
            self.by_boot.insert(boot, plain.collect());
        }
    }

    /// Forgets the addresses of a boot.
    pub(super) fn forget(&mut self, boot: Boot) {
        self.by_boot.remove(&boot);
    }

    /// The addresses that a boot has told.
    pub(super) fn of(&self, boot: Boot) -> impl Iterator<Item = SocketAddr> {
        let told = self.by_boot.get(&boot).into_iter().flatten();
        told.map(|(ip, port)| SocketAddr::new(*ip, *port))
    }

    /// The number of boots whose addresses are kept.
    #[cfg(test)]
    pub(super) fn boots(&self) -> usize {
        self.by_boot.len()
    }

    /// Whether a boot has told this address.
    pub(super) fn has(&self, boot: Boot, to: SocketAddr) -> bool {
        self.by_boot.get(&boot).is_some_and(|told| told.contains(&plain(to)))
    }

    /// Whether a member with a link over a proven path has told this address.
    pub(super) fn are_of_linked(&self, to: SocketAddr, links: &DirectLinks) -> bool {
        let mut linked = self.by_boot.iter().filter(|(boot, _)| links.is_proven(**boot));
        linked.any(|(_, told)| told.contains(&plain(to)))
    }
}

/// An address without its scope, which is a number of one machine.
fn plain(to: SocketAddr) -> (IpAddr, u16) {
    (to.ip().to_canonical(), to.port())
}

/// Members whose own addresses are kept: more than may have links at a time.
pub(super) const TOLD_MAX: usize = 64;
