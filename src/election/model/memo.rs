//! Layer: Core.
//!
//! What came of every step that a node has taken: most states of a group differ in the other nodes.

use super::shared::{self, Shared};
use super::state::{Node, Step};
use super::turn::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const SHARDS: usize = 64;

/// Entries of a shard; more are forgotten, or memory would go to what is cheap to find out again.
const SHARD_MAX: usize = 8_000;

/// Results by the hashes of the node and of the step.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    shards: Arc<[Shard]>,
}

type Shard = Mutex<HashMap<(u64, u64), Arc<Result>>>;

impl Default for Memo {
    fn default() -> Memo {
        Memo { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Memo {
    pub(super) fn recall(&self, node: &Shared<Node>, step: &Step<'_>, take: impl FnOnce() -> Result) -> Arc<Result> {
        let step = if let Step::Hear(packet) = step { packet.hash_value() } else { shared::hash(step) };
        let key = (node.hash_value(), step);
        let shard = &self.shards[(key.0 ^ key.1) as usize % SHARDS];
        let known = shard.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        known.unwrap_or_else(|| {
            let result = Arc::new(take());
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            if shard.len() >= SHARD_MAX {
                shard.clear();
            }
            shard.insert(key, Arc::clone(&result));
            result
        })
    }
}
