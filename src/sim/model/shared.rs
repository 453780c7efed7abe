//! A value that many states share, with its hash computed once.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3Default;

/// A shared value and its hash; copied on write.
#[derive(Debug)]
pub(super) struct Shared<T> {
    value: Arc<T>,
    hash: u64,
}

impl<T: Hash + Clone> Shared<T> {
    pub(super) fn new(value: T) -> Shared<T> {
        let hash = hash(&value);
        Shared { value: Arc::new(value), hash }
    }

    /// Changes this copy and its hash.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(Arc::make_mut(&mut self.value));
        self.hash = hash(&*self.value);
        result
    }

    pub(super) fn hash_value(&self) -> u64 {
        self.hash
    }
}

pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = Xxh3Default::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared { value: Arc::clone(&self.value), hash: self.hash }
    }
}

/// Equal hashes count as equal values; the checker, too, identifies states by 64-bit hashes.
impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        self.hash == other.hash
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}
