//! The traffic with each peer.

use crate::os::AtomicU64;
use crate::protocol::Rank;
use crate::report::Traffic;
use std::sync::atomic::Ordering;

/// Traffic in bytes by rank, over all links and with descriptors.
pub struct Carried(Vec<Counts>);

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Carried {
    /// No traffic with `size` ranks.
    pub fn new(size: usize) -> Carried {
        Carried(std::iter::repeat_with(Counts::default).take(size).collect())
    }

    /// Counts bytes sent.
    pub fn sent(&self, to: Rank, bytes: u32) {
        self.0[to.index()].sent.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// Counts bytes received.
    pub fn received(&self, from: Rank, bytes: u32) {
        self.0[from.index()].received.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// The traffic with all ranks.
    pub fn all(&self) -> Traffic {
        self.0.iter().map(Counts::traffic).fold(Traffic::default(), Traffic::and)
    }

    /// The traffic with one rank.
    pub fn with(&self, peer: Rank) -> Traffic {
        self.0.get(peer.index()).map(Counts::traffic).unwrap_or_default()
    }
}

impl Counts {
    fn traffic(&self) -> Traffic {
        Traffic {
            sent_bytes: self.sent.load(Ordering::Relaxed),
            received_bytes: self.received.load(Ordering::Relaxed),
        }
    }
}
