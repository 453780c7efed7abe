//! Reacts to changes of this machine's network interfaces.

use super::Node;
use crate::discovery::Discovery;
use crate::os::{Interface, InterfaceSet};
use crate::trace;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl Node {
    /// Looks at the network interfaces. If they have changed, updates discovery, the address policy
    /// and the trusted addresses, makes paths due for a trial, and redials links whose interface is
    /// gone.
    pub(super) fn look_at_interfaces(&mut self, now: Instant, discovery: &mut dyn Discovery) {
        if now < self.interfaces_at {
            return;
        }
        self.interfaces_at = now + LOOK;
        let Some(interface_set) = self.interface_source.look().filter(|interface_set| *interface_set != self.interface_set) else {
            return;
        };
        let names =
            |chosen: &[Interface]| chosen.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
        let chosen = names(&interface_set.chosen);
        trace::info!(before = ?names(&self.interface_set.chosen), now = ?chosen, "the network of this \
            machine has changed");
        self.config.local.set_trusted(interface_set.trusted.clone());
        self.roster.set_policy(interface_set.policy.clone(), self.now());
        discovery.follow(&chosen);
        let places = |interface_set: &InterfaceSet| {
            interface_set.chosen.iter().map(|i| (i.name.clone(), i.addresses.clone())).collect::<Vec<_>>()
        };
        let has_moved = places(&interface_set) != places(&self.interface_set);
        self.interface_set = interface_set;
        if has_moved {
            self.ways.network_changed();
            self.tell_places_to_all();
        }
        self.watch_paths();
    }
}
