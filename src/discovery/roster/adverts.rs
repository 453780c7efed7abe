//! The adverts that a roster knows, in bounded tables.

use super::super::sighting::Advert;
use crate::identity::Boot;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Adverts by instance. An instance is in one of the two tables at most.
#[derive(Default)]
pub(super) struct Adverts {
    /// Those of our job in our namespace.
    ours: BTreeMap<String, Seen>,
    /// Those of other namespaces and versions.
    others: BTreeMap<String, Seen>,
}

/// An advert with the time of its last sighting.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) advert: Advert,
    pub(super) seen_ms: u64,
    /// Whether it is of an observer, and this node is none.
    pub(super) observes: bool,
}

impl Adverts {
    /// Adds an advert of our job; returns the one that it replaces.
    pub(super) fn insert(&mut self, seen: Seen) -> Option<Advert> {
        self.others.remove(&seen.advert.instance);
        let before = self.ours.insert(seen.advert.instance.clone(), seen);
        before.map(|seen| seen.advert)
    }

    /// Adds an advert of another namespace or version, and keeps at most so many of them. Returns
    /// the advert of our job that it replaces.
    pub(super) fn insert_other(&mut self, seen: Seen, others_max: usize) -> Option<Advert> {
        let before = self.ours.remove(&seen.advert.instance);
        self.others.insert(seen.advert.instance.clone(), seen);
        while self.others.len() > others_max {
            remove_oldest(&mut self.others, |_| true);
        }
        before.map(|seen| seen.advert)
    }

    /// Removes an instance; returns its advert if it is of our job.
    pub(super) fn remove(&mut self, instance: &str) -> Option<Advert> {
        self.others.remove(instance);
        self.ours.remove(instance).map(|seen| seen.advert)
    }

    /// Removes the oldest advert of this boot, if it has more than so many.
    pub(super) fn remove_surplus_of(&mut self, boot: Boot, most: usize) -> Option<Advert> {
        let is_theirs = |seen: &Seen| seen.advert.boot == boot;
        let is_surplus = self.ours.values().filter(|seen| is_theirs(seen)).count() > most;
        is_surplus.then(|| remove_oldest(&mut self.ours, is_theirs))?
    }

    /// Removes the oldest advert of our job, if there are more than so many. Those of boots that
    /// are `kept` go last.
    pub(super) fn remove_surplus(
        &mut self,
        most: usize,
        is_kept: impl Fn(Boot) -> bool,
    ) -> Option<Advert> {
        if self.ours.len() <= most {
            return None;
        }
        remove_oldest(&mut self.ours, |seen| !is_kept(seen.advert.boot))
            .or_else(|| remove_oldest(&mut self.ours, |_| true))
    }

    /// Removes an address from the adverts of all boots but this one.
    pub(super) fn withdraw_from_others(&mut self, to: SocketAddr, boot: Boot) {
        for seen in self.ours.values_mut().filter(|seen| seen.advert.boot != boot) {
            seen.advert.addresses.retain(|address| *address != to);
        }
    }

    /// The adverts of our job.
    pub(super) fn ours(&self) -> impl Iterator<Item = &Seen> {
        self.ours.values()
    }

    /// The adverts of other namespaces and versions.
    pub(super) fn others(&self) -> impl Iterator<Item = &Advert> {
        self.others.values().map(|seen| &seen.advert)
    }

    /// All adverts.
    pub(super) fn all(&self) -> impl Iterator<Item = &Advert> {
        self.ours().map(|seen| &seen.advert).chain(self.others())
    }

    /// Whether an advert of this boot, of our job, lists this address.
    pub(super) fn list(&self, boot: Boot, to: SocketAddr) -> bool {
        self.ours().any(|seen| seen.advert.boot == boot && seen.advert.addresses.contains(&to))
    }

    /// Whether this boot observes, and this node does not.
    pub(super) fn observes(&self, boot: Boot) -> bool {
        self.ours().any(|seen| seen.observes && seen.advert.boot == boot)
    }
}

fn remove_oldest(
    table: &mut BTreeMap<String, Seen>,
    which: impl Fn(&Seen) -> bool,
) -> Option<Advert> {
    let oldest = table
        .iter()
        .filter(|(_, seen)| which(seen))
        .min_by_key(|(_, seen)| seen.seen_ms)?
        .0
        .clone();
    table.remove(&oldest).map(|seen| seen.advert)
}
