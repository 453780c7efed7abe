//! Reacts to changes of this machine's network interfaces.

use super::Node;
use crate::discovery::Discovery;
use crate::os::{Interface, Wiring};
use crate::trace;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(500);

impl Node {
    /// Looks at the network interfaces. If they have changed, updates discovery, the address policy
    /// and the trusted addresses, makes paths due for a trial, and redials links whose interface is
    /// gone.
    pub(super) fn look_at_wires(&mut self, now: Instant, discovery: &mut dyn Discovery) {
        if now < self.wires_at {
            return;
        }
        self.wires_at = now + LOOK;
        let Some(wiring) = self.wires.look().filter(|wiring| *wiring != self.wiring) else {
            return;
        };
        let names =
            |chosen: &[Interface]| chosen.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
        let chosen = names(&wiring.chosen);
        trace::info!(before = ?names(&self.wiring.chosen), now = ?chosen, "the network of this \
            machine has changed");
        self.config.local.set_trusted(wiring.trusted.clone());
        self.roster.set_policy(wiring.policy.clone(), self.now());
        discovery.follow(&chosen);
        let places = |wiring: &Wiring| {
            wiring.chosen.iter().map(|i| (i.name.clone(), i.addresses.clone())).collect::<Vec<_>>()
        };
        let has_moved = places(&wiring) != places(&self.wiring);
        self.wiring = wiring;
        if has_moved {
            self.ways.network_changed();
            self.tell_places_to_all();
        }
        self.watch_paths();
    }
}
