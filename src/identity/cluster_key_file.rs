//! Finds the cluster key: in the environment, else in the key file of the namespace. While the key
//! is being changed, the next one stands in the second line.

use super::cluster_key::{ClusterKey, KeyTextError};
use super::cluster_keys::ClusterKeys;
use super::home::{Home, make_private_dir};
use super::keystore::random_seed;
use super::namespace::{NamespaceName, NamespaceNameError};
use super::private_file;
use super::problem::{FileAction, FileContent, IdentityProblem};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use zeroize::Zeroizing;

/// The environment variable that holds a cluster key.
pub const KEY_VARIABLE: &str = "POTLUCK_KEY";

/// The environment variable that names the namespace.
pub const NAMESPACE_VARIABLE: &str = "POTLUCK_NAMESPACE";

/// The action if another key is stored under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Keep it and fail.
    Keep,
    /// Replace it: this machine leaves the other cluster for good.
    Replace,
}

/// The namespace named by `POTLUCK_NAMESPACE`, else `default`. An empty variable counts as unset.
pub fn namespace_name(
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<NamespaceName, NamespaceNameError> {
    match lookup(NAMESPACE_VARIABLE).filter(|value| !value.is_empty()) {
        // Invalid text becomes the replacement character, which no name may contain.
        Some(value) => NamespaceName::parse(&value.to_string_lossy()),
        None => Ok(NamespaceName::default()),
    }
}

/// The keys of the namespace: those of `POTLUCK_KEY`, else those of its key file, else `None`. A
/// variable or file that exists but holds no valid key is an error; the search does not continue.
pub fn find_cluster_keys(
    name: &NamespaceName,
    home: &Home,
    lookup: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<ClusterKeys>, IdentityProblem> {
    match lookup(KEY_VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => keys_of_variable(value).map(Some),
        None => stored_cluster_keys(name, home),
    }
}

/// The keys in the key file of the namespace, if it exists.
pub fn stored_cluster_keys(
    name: &NamespaceName,
    home: &Home,
) -> Result<Option<ClusterKeys>, IdentityProblem> {
    load(&home.cluster_key_path(name))
}

/// Creates a key from the operating system's randomness and stores it. Fails if any key is stored
/// under the name.
pub fn create_cluster_key(
    name: &NamespaceName,
    home: &Home,
) -> Result<ClusterKey, IdentityProblem> {
    let key = random_cluster_key()?;
    store_cluster_key(name, home, &key, Stored::Keep)?;
    Ok(key)
}

/// A new key from the operating system's randomness, not stored anywhere.
pub fn random_cluster_key() -> Result<ClusterKey, IdentityProblem> {
    Ok(ClusterKey::from_bytes(&*random_seed()?))
}

/// Stores a key. Storing the stored key again changes nothing; with [`Stored::Keep`], neither does
/// storing the next one.
///
/// With [`Stored::Keep`], a different key or an unreadable file is kept and is an error.
pub fn store_cluster_key(
    name: &NamespaceName,
    home: &Home,
    key: &ClusterKey,
    stored: Stored,
) -> Result<(), IdentityProblem> {
    make_private_dir(home.config_dir())?;
    let path = home.cluster_key_path(name);
    let _lock = private_file::lock(&path)?;
    let text = ClusterKeys::only(key.clone()).to_text();
    let written = match stored {
        Stored::Keep => private_file::create(&path, text.as_bytes()),
        Stored::Replace => private_file::replace(&path, text.as_bytes()),
    };
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => keep_if_same(&path, key),
        Err(error) => Err(private_file::refused(&path, FileAction::Write, &error)),
    }
}

/// Stores the next key of a namespace beside its current one, in place of any other next key.
/// Changes nothing if it is the current one already. Returns false if no key is stored.
pub fn store_next_key(
    name: &NamespaceName,
    home: &Home,
    next: &ClusterKey,
) -> Result<bool, IdentityProblem> {
    let before = change_keys(name, home, |keys| {
        let is_there = keys.iter().any(|key| key == next);
        (!is_there).then(|| ClusterKeys { next: Some(next.clone()), ..keys.clone() })
    })?;
    Ok(before.is_some())
}

/// The next key of a namespace: the one that is stored, else a new one, which is now stored beside
/// the current key. Returns `None` if no key is stored.
pub fn rotate_cluster_key(
    name: &NamespaceName,
    home: &Home,
) -> Result<Option<ClusterKey>, IdentityProblem> {
    let fresh = random_cluster_key()?;
    let before = change_keys(name, home, |keys| {
        let next = Some(fresh.clone());
        keys.next.is_none().then(|| ClusterKeys { next, ..keys.clone() })
    })?;
    Ok(before.map(|keys| keys.next.unwrap_or(fresh)))
}

/// Makes the next key of a namespace its only one. Returns whether there was a next key, and `None`
/// if no key is stored.
pub fn finish_cluster_key(
    name: &NamespaceName,
    home: &Home,
) -> Result<Option<bool>, IdentityProblem> {
    let before = change_keys(name, home, |keys| keys.next.clone().map(ClusterKeys::only))?;
    Ok(before.map(|keys| keys.next.is_some()))
}

/// Stores the keys that `change` makes of the stored ones, while no other process changes them.
/// Where it makes none, nothing is locked or written. Returns the keys before; `None` if no key is
/// stored.
fn change_keys(
    name: &NamespaceName,
    home: &Home,
    change: impl Fn(&ClusterKeys) -> Option<ClusterKeys>,
) -> Result<Option<ClusterKeys>, IdentityProblem> {
    let before = stored_cluster_keys(name, home)?;
    if before.as_ref().and_then(&change).is_none() {
        return Ok(before);
    }
    let path = home.cluster_key_path(name);
    let _lock = private_file::lock(&path)?;
    // Another process may have changed them just before.
    let before = stored_cluster_keys(name, home)?;
    if let Some(changed) = before.as_ref().and_then(&change) {
        replace(&path, &changed)?;
    }
    Ok(before)
}

fn replace(path: &Path, keys: &ClusterKeys) -> Result<(), IdentityProblem> {
    private_file::replace(path, keys.to_text().as_bytes())
        .map_err(|error| private_file::refused(path, FileAction::Write, &error))
}

fn keep_if_same(path: &Path, key: &ClusterKey) -> Result<(), IdentityProblem> {
    match load(path)? {
        Some(there) if there.iter().any(|kept| kept == key) => Ok(()),
        _ => Err(IdentityProblem::OtherKeyStored { path: path.to_owned() }),
    }
}

fn keys_of_variable(value: OsString) -> Result<ClusterKeys, IdentityProblem> {
    let bad = |reason| IdentityProblem::NotAKeyVariable { variable: KEY_VARIABLE, reason };
    let text = Zeroizing::new(value.into_string().map_err(|_| bad(KeyTextError::NotText))?);
    ClusterKeys::parse(&text).map_err(bad)
}

fn load(path: &Path) -> Result<Option<ClusterKeys>, IdentityProblem> {
    let Some(bytes) = private_file::read(path, FileContent::ClusterKey, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| KeyTextError::NotText);
    let keys = text.and_then(ClusterKeys::parse);
    keys.map(Some).map_err(|reason| IdentityProblem::NotAKey { path: path.to_owned(), reason })
}

// Two keys have 120 characters; the user may have added white space.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests;
