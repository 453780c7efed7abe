//! The addresses at which this node and the members answer: the addresses that members report of
//! themselves and of each other, and those that are stored.
//!
//! Only a direct link over a proven path shows that an address is the member's. A link over an
//! unproven one stands as long as there is no other, and its address goes nowhere: it is not
//! remembered, not told to others, and no link moves to it.

use super::super::name_lookups::NameChange;
use super::super::network::Rewired;
use super::super::peers::Link;
use super::ControlPlane;
use crate::discovery::{Discovery, Origin};
use crate::identity::MemberId;
use crate::link::PathProof;
use crate::protocol::{Message, PeerAddress};
use crate::trace;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use tokio::time::Instant;

impl ControlPlane {
    /// A direct link with this member stands now.
    pub(super) fn address_of_link(&mut self, id: MemberId, address: SocketAddr, path: PathProof) {
        match path {
            PathProof::Proven => {
                self.roster.link_up(id);
                self.roster.add(address, Origin::Remembered, self.clock.now());
                self.paths.answers(id, address);
            }
            PathProof::Unproven => {
                trace::info!(peer = %id, %address, "something forwards the connection with a \
                    member; a path of its own is sought");
                self.roster.detour_up(id);
            }
        }
    }

    /// Tells a new member the addresses of the others.
    pub(super) fn introduce_others(&mut self, to: MemberId) {
        let others = self.peers.iter().filter(|(other, link)| **other != to && link.is_proven());
        let told = others.filter(|(_, link)| means_something_elsewhere(link.address));
        let known =
            told.map(|(other, link)| PeerAddress { id: *other, address: link.address }).collect();
        self.peers.send(to, Message::Peers(known));
    }

    /// Tells a member the addresses of this node.
    pub(super) fn tell_addresses(&self, to: MemberId) {
        let own = self.network.own_addresses().into_iter();
        let own: Vec<PeerAddress> =
            own.map(|address| PeerAddress { id: self.me, address }).collect();
        if !own.is_empty() {
            self.peers.send(to, Message::Peers(own));
        }
    }

    /// Looks at the network interfaces. If they have changed, updates discovery, the address policy
    /// and the trusted addresses, makes paths due for a trial, and redials links whose interface is
    /// gone.
    pub(super) fn look_at_interfaces(&mut self, now: Instant, discovery: &mut dyn Discovery) {
        let Some(Rewired { chosen, has_moved }) = self.network.look(now) else { return };
        let interface_set = self.network.interface_set();
        self.handshakes.local().set_trusted(interface_set.trusted.clone());
        self.roster.set_policy(interface_set.policy.clone(), self.clock.now());
        discovery.follow(&chosen);
        if has_moved {
            self.paths.network_changed();
            self.tell_addresses_to_all();
        }
        self.watch_paths();
    }

    /// Looks up the peers that the user has given by name.
    pub(super) fn look_up_names(&mut self, now: Instant) {
        let Self { names, roster, .. } = self;
        names.look(now, |to| roster.has_link_at(*to));
    }

    /// The addresses of such a peer.
    pub(super) fn on_looked_up(&mut self, number: usize, found: Vec<SocketAddr>) {
        let NameChange { gone, come } = self.names.found(Instant::now(), number, found);
        gone.into_iter().for_each(|to| self.roster.is_no_longer_named(to));
        let now = self.clock.now();
        come.into_iter().for_each(|to| self.roster.add(to, Origin::Fixed, now));
    }

    /// Tells all members the addresses of this node, because they have changed.
    fn tell_addresses_to_all(&self) {
        let linked: Vec<MemberId> = self.peers.iter().map(|(id, _)| *id).collect();
        linked.into_iter().for_each(|id| self.tell_addresses(id));
    }

    /// A member tells its own addresses, or those of others.
    pub(super) fn on_peers(&mut self, from: MemberId, known: &[PeerAddress]) {
        let now = self.clock.now();
        let (own, others): (Vec<&PeerAddress>, Vec<&PeerAddress>) =
            known.iter().partition(|known| known.id == from);
        if !own.is_empty() && self.peers.get(from).is_some() {
            let own: Vec<SocketAddr> = own.iter().map(|known| known.address).collect();
            self.roster.tells(from, &own, now);
        }
        let others = others.iter().filter(|known| known.id.node != self.me.node);
        others.for_each(|known| self.roster.add(known.address, Origin::Gossip, now));
    }

    /// Stores the addresses of all members, for the next start.
    pub(super) fn remember_peers(&mut self) {
        let proven = self.peers.iter().filter(|(_, link)| link.is_proven());
        let addresses: BTreeSet<SocketAddr> = proven.map(|(_, link)| link.address).collect();
        self.store.remember(addresses.into_iter().collect());
    }

    pub(super) fn has_proven_link(&self, id: MemberId) -> bool {
        self.peers.get(id).is_some_and(Link::is_proven)
    }
}

/// Whether other machines can use this address. A link-local IPv6 address is valid only with an
/// interface of the machine that uses it.
fn means_something_elsewhere(address: SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}
