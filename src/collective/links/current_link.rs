//! The link in use to one peer.

use crate::link::Shutdown;
use std::sync::Arc;

/// Identifies one link among the successive links to a peer.
pub type Generation = u64;

/// The link in use to one peer, or none. A method that ends the use of a link returns its handle:
/// the caller shuts the link down, without a lock.
#[derive(Default)]
pub struct CurrentLink {
    used: Option<(Generation, Arc<dyn Shutdown>)>,
    /// The number of links used so far.
    made: Generation,
    closed: bool,
}

impl CurrentLink {
    /// Starts to use a link. `None` if one is in use, and after [`close`](CurrentLink::close).
    pub fn connect(&mut self, end: &Arc<dyn Shutdown>) -> Option<Generation> {
        if self.closed || self.used.is_some() {
            return None;
        }
        self.made += 1;
        self.used = Some((self.made, Arc::clone(end)));
        Some(self.made)
    }

    /// The generation of the link in use.
    pub fn generation(&self) -> Option<Generation> {
        self.used.as_ref().map(|(generation, _)| *generation)
    }

    /// Ends the use of the link `generation`, if it is the one in use.
    pub fn disconnect(&mut self, generation: Generation) -> Option<Arc<dyn Shutdown>> {
        self.used.take_if(|(used, _)| *used == generation).map(|(_, end)| end)
    }

    /// Ends the use of the link, and accepts no other.
    pub fn close(&mut self) -> Option<Arc<dyn Shutdown>> {
        self.closed = true;
        self.used.take().map(|(_, end)| end)
    }
}
