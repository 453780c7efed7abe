//! The count of frames that stops bursts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the frames on all data links of this node, except those of bursts.
#[derive(Clone, Default)]
pub struct Traffic(Arc<AtomicU64>);

impl Traffic {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
