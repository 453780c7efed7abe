//! The peers that the user has given by host name, and the addresses of these names.
//!
//! A name may have no address yet when the node starts, and another one later: machines get their
//! addresses from a router, and are announced by their own name service when they run.

use super::event::Event;
use crate::discovery::FixedPeer;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Between two lookups of a name that has no address.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(5);

/// Between two lookups of a name at whose addresses no node has a link.
const UNLINKED_AGAIN: Duration = Duration::from_secs(30);

/// The names, and the state of their lookups.
pub(super) struct NameLookups {
    names: Vec<Named>,
    events: mpsc::Sender<Event>,
}

struct Named {
    peer: FixedPeer,
    /// Those of the last lookup that has found any.
    addresses: Vec<SocketAddr>,
    is_found: bool,
    /// When to look it up; `None` while that is under way.
    look_at: Option<Instant>,
    /// Whether a lookup has ended.
    was_looked_up: bool,
}

/// The difference that a lookup makes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NameChange {
    /// Addresses that the name has no longer.
    pub(super) gone: Vec<SocketAddr>,
    /// Addresses that it has now.
    pub(super) come: Vec<SocketAddr>,
}

impl NameLookups {
    pub(super) fn new(peers: Vec<FixedPeer>, events: mpsc::Sender<Event>) -> NameLookups {
        let named = |peer| Named {
            peer,
            addresses: Vec::new(),
            is_found: false,
            look_at: Some(Instant::now()),
            was_looked_up: false,
        };
        NameLookups { names: peers.into_iter().map(named).collect(), events }
    }

    /// Looks up the names that are due. One at whose addresses a node `has_link` is left alone.
    pub(super) fn look(&mut self, now: Instant, has_link: impl Fn(&SocketAddr) -> bool) {
        for (number, name) in self.names.iter_mut().enumerate() {
            let is_due = name.look_at.is_some_and(|at| at <= now);
            if !is_due || name.addresses.iter().any(&has_link) {
                continue;
            }
            name.look_at = None;
            let (peer, events) = (name.peer.clone(), self.events.clone());
            tokio::spawn(async move {
                let found = peer.resolve().await.unwrap_or_default();
                // An error means that the node has ended.
                let _ = events.send(Event::LookedUp { number, found }).await;
            });
        }
    }

    /// A lookup has found these addresses. If it has found none, those of an earlier one stay.
    pub(super) fn found(
        &mut self,
        now: Instant,
        number: usize,
        found: Vec<SocketAddr>,
    ) -> NameChange {
        let Some(name) = self.names.get_mut(number) else { return NameChange::default() };
        name.was_looked_up = true;
        name.is_found = !found.is_empty();
        name.look_at = Some(now + if name.is_found { UNLINKED_AGAIN } else { UNKNOWN_AGAIN });
        if found.is_empty() {
            return NameChange::default();
        }
        let before = std::mem::replace(&mut name.addresses, found.clone());
        let is_used = |at: &SocketAddr| self.names.iter().any(|name| name.addresses.contains(at));
        NameChange {
            gone: before.iter().copied().filter(|at| !is_used(at)).collect(),
            come: found.into_iter().filter(|at| !before.contains(at)).collect(),
        }
    }

    /// The names that had no address at the last lookup.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        let unknown = self.names.iter().filter(|name| name.was_looked_up && !name.is_found);
        unknown.map(|name| name.peer.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn names(hosts: &[&str]) -> (NameLookups, mpsc::Receiver<Event>) {
        let (events, heard) = mpsc::channel(8);
        let peers = hosts.iter().map(|host| host.parse().expect("a peer")).collect();
        (NameLookups::new(peers, events), heard)
    }

    #[tokio::test]
    async fn a_name_is_looked_up_at_once_and_again_until_a_node_is_there() {
        let (mut lookups, mut heard) = names(&["localhost:5000"]);
        let now = Instant::now();
        lookups.look(now, |_| false);
        let Some(Event::LookedUp { number: 0, found }) = heard.recv().await else {
            panic!("a lookup");
        };
        assert!(found.contains(&at("127.0.0.1:5000")), "{found:?}");
        lookups.look(now + UNLINKED_AGAIN, |_| false);
        assert!(heard.try_recv().is_err(), "it is under way until its result is taken");
        assert_eq!(lookups.found(now, 0, found.clone()).come, found);
        let later = now + UNLINKED_AGAIN;
        lookups.look(later, |_| true);
        assert!(lookups.names[0].look_at.is_some(), "a node is there");
        lookups.look(later, |_| false);
        assert!(lookups.names[0].look_at.is_none());
    }

    #[tokio::test]
    async fn what_a_name_has_no_longer_is_told_once_unless_another_one_has_it() {
        let (mut lookups, _heard) = names(&["a", "b"]);
        let now = Instant::now();
        assert_eq!(lookups.unknown().count(), 0, "nothing is known yet");
        let [one, two] = [at("10.0.0.1:1"), at("10.0.0.2:1")];
        assert_eq!(lookups.found(now, 0, vec![one, two]).come, [one, two]);
        lookups.found(now, 1, vec![two]);
        assert_eq!(lookups.found(now, 0, Vec::new()), NameChange::default());
        assert_eq!(lookups.unknown().collect::<Vec<_>>(), ["a"]);
        let three = at("10.0.0.3:1");
        let changed = lookups.found(now, 0, vec![three]);
        assert_eq!(changed, NameChange { gone: vec![one], come: vec![three] });
        assert_eq!(lookups.unknown().count(), 0);
        assert_eq!(lookups.found(now, 9, vec![one]), NameChange::default());
    }
}
