//! Sends events to their subscribers.

use super::Node;
use super::report::peer_at;
use crate::election::Notice;
use crate::identity::{MemberId, Name, NodeId};
use crate::protocol::View;
use crate::report::{Event, NodeInfo};
use crate::trace;
use std::time::Duration;

/// Number of names kept, also of nodes that are gone.
const NAMES_MAX: usize = 256;

impl Node {
    /// Sends an event. Without subscribers it is lost, and a slow subscriber loses the oldest
    /// events.
    pub(super) fn announce_event(&mut self, event: Event) {
        trace::debug!(%event, "happened");
        let _ = self.happened.send(event);
    }

    pub(super) fn tell_notices(&mut self) {
        for notice in self.election.take_notices() {
            let event = match notice {
                Notice::Joined(id) => Event::Joined(self.who(id.node)),
                Notice::Merged(ids) => {
                    Event::Merged(ids.into_iter().map(|id: MemberId| self.who(id.node)).collect())
                }
                Notice::Left(id) => Event::Left(self.who(id.node)),
                Notice::Lost(id, why) => Event::Lost { peer: self.who(id.node), why },
                Notice::Quarantined(node, ms) => {
                    Event::Quarantined { peer: self.who(node), lasts: Duration::from_millis(ms) }
                }
                Notice::Woke => Event::Woke,
                Notice::Twin(node) => Event::Duplicate(self.who(node)),
                Notice::OneWay(id) => Event::OneWay(self.who(id.node)),
            };
            self.announce_event(event);
        }
    }

    pub(super) fn tell_installed(&mut self, view: &View) {
        let members = view.ranks().filter_map(|rank| peer_at(view, rank)).collect();
        self.announce_event(Event::Installed { view: view.id(), members, in_sync: view.in_sync() });
    }

    pub(super) fn who(&self, node: NodeId) -> NodeInfo {
        NodeInfo { node, name: self.name_of(node) }
    }

    pub(super) fn learn_name(&mut self, node: NodeId, name: Name) {
        if self.names.len() >= NAMES_MAX && !self.names.contains_key(&node) {
            // Any one: names are for people, and a home has fewer nodes.
            self.names.pop_first();
        }
        self.names.insert(node, name);
    }

    /// The name of a node, if it is known.
    pub(super) fn name_of(&self, node: NodeId) -> Option<Name> {
        if node == self.me.node {
            Some(self.config.local.hello.name.clone())
        } else {
            self.names.get(&node).cloned()
        }
    }
}
