//! Cache of step results: most states of a group differ in the other nodes only.

use super::super::claims::{Act, History};
use super::shared;
use super::shared::Shared;
use super::state::{Node, Step};
use super::turn::Result;
use crate::identity::MemberId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

const SHARDS: usize = 64;

/// Most entries of a shard; a full shard is emptied, because a result is cheap to compute again.
const SHARD_MAX: usize = 1_000;

/// Step results by the hashes of the node and of the step.
#[derive(Clone, Debug)]
pub(super) struct Memo {
    shards: Arc<[Shard]>,
}

/// Hash of the start value and hash of the change.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Shard {
    results: Mutex<HashMap<Key, Arc<Result>>>,
    histories: Mutex<HashMap<Key, Shared<History>>>,
}

impl Default for Memo {
    fn default() -> Memo {
        Memo { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Memo {
    pub(super) fn recall(
        &self,
        node: &Shared<Node>,
        step: &Step<'_>,
        take: impl FnOnce() -> Result,
    ) -> Arc<Result> {
        let step =
            if let Step::Hear(packet) = step { packet.hash_value() } else { shared::hash(step) };
        let key = (node.hash_value(), step);
        known(&self.shard(key).results, key, || Arc::new(take()))
    }

    /// The history after these acts; states that share it share one copy.
    pub(super) fn history(
        &self,
        before: &Shared<History>,
        who: MemberId,
        acts: &[Act],
    ) -> Shared<History> {
        let key = (before.hash_value(), shared::hash(&(who, acts)));
        known(&self.shard(key).histories, key, || {
            let mut history = before.clone();
            history.change(|history| acts.iter().for_each(|act| history.note(who, act)));
            history
        })
    }

    fn shard(&self, key: Key) -> &Shard {
        &self.shards[(key.0 ^ key.1) as usize % SHARDS]
    }
}

fn known<T: Clone>(table: &Mutex<HashMap<Key, T>>, key: Key, find: impl FnOnce() -> T) -> T {
    let locked = || table.lock().unwrap_or_else(PoisonError::into_inner);
    let known = locked().get(&key).cloned();
    known.unwrap_or_else(|| {
        let found = find();
        let mut table = locked();
        if table.len() >= SHARD_MAX {
            table.clear();
        }
        table.insert(key, found.clone());
        found
    })
}
