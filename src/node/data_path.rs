//! The path of one data link, and the one to which it may be moved.

use super::data_link::{Addresses, Bursts, EstablishedLink, Moves};
use crate::discovery::is_same_interface;
use std::time::Duration;
use tokio::time::Instant;

/// The path of a data link of the View.
pub(super) struct DataPath {
    moves: Moves,
    at: Addresses,
    since: Instant,
    /// Another path with an established data link.
    offered: Option<Offer>,
}

struct Offer {
    /// The end that made it, which moves first.
    by: By,
    at: Addresses,
    bursts: Bursts,
}

/// An end of a data link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Me,
    Peer,
}

/// The change that a move of a data link has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// The connection, and with it the keys.
    InPlace,
    /// The path.
    Elsewhere,
}

impl DataPath {
    /// Of a data link that is established now.
    pub(super) fn new(moves: Moves, at: Addresses) -> DataPath {
        DataPath { moves, at, since: Instant::now(), offered: None }
    }

    pub(super) fn at(&self) -> Addresses {
        self.at
    }

    /// How long the present connection has stood.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether a link over this path may take over. One over an unproven path only replaces another
    /// one there.
    pub(super) fn may_move_over(&self, at: &Addresses) -> bool {
        let is_same = !self.at.path.is_proven() && is_same_interface(self.at.theirs, at.theirs);
        at.path.is_proven() || is_same
    }

    /// Offers another path. Returns whether the link may move there.
    pub(super) fn offer(&mut self, by: By, established: EstablishedLink) -> bool {
        let EstablishedLink { link, at } = established;
        let Some(bursts) = self.moves.offer(link) else { return false };
        self.offered = Some(Offer { by, at, bursts });
        true
    }

    /// Whether this end made the present offer.
    pub(super) fn is_offered(&self, by: By) -> bool {
        self.offered.as_ref().is_some_and(|offer| offer.by == by)
    }

    /// Whether the peer made the present offer, so that it may be moving there.
    pub(super) fn may_be_moving(&self) -> bool {
        self.is_offered(By::Peer) && self.moves.is_offered()
    }

    /// Whether the peer sends over the path that it offered, and this node does not follow.
    pub(super) fn is_left(&self) -> bool {
        self.is_offered(By::Peer) && self.moves.has_arrived()
    }

    /// The bursts over the offered path.
    pub(super) fn offered_bursts(&self) -> Option<&Bursts> {
        self.offered.as_ref().map(|offer| &offer.bursts)
    }

    /// Withdraws an offer of this node. An offer of the peer stands: the peer may be moving there.
    pub(super) fn withdraw(&mut self) {
        if self.offered.take_if(|offer| offer.by == By::Me).is_some() {
            self.moves.withdraw();
        }
    }

    /// Moves this node's direction to the offered path. Returns the bursts over it.
    pub(super) fn follow(&mut self) -> Option<(Bursts, Moved)> {
        let Offer { at, bursts, .. } = self.offered.take()?;
        if !self.moves.go() {
            return None;
        }
        let ip = |at: Addresses| at.ours.map(|ours| ours.ip());
        let stays = ip(at) == ip(self.at) && is_same_interface(at.theirs, self.at.theirs);
        (self.at, self.since) = (at, Instant::now());
        Some((bursts, if stays { Moved::InPlace } else { Moved::Elsewhere }))
    }
}
