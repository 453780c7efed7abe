//! The count that stops bursts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the operations that this node begins, and the frames on all its data links, except those
/// of bursts. A small contribution travels inside a descriptor: its operation has no frames.
#[derive(Clone, Default)]
pub struct Traffic(Arc<AtomicU64>);

impl Traffic {
    pub(in crate::node) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::node) fn counted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
