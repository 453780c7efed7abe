//! Access to this machine's key files for programs that manage them without running a node.

use super::config::Config;
use super::environment::{home_of, lookup, namespace_of};
use super::start::name_of;
use crate::identity::{
    ClusterKey, Home, IdentitySlot, KEY_VARIABLE, Name, NamespaceName, NodeId, NodesFile, Stored,
    create_cluster_key, find_cluster_keys, finish_cluster_key, first_identity, random_cluster_key,
    rotate_cluster_key, store_cluster_key, store_next_key, stored_cluster_keys,
};
use crate::report::{ConfigProblem, Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The key files of one namespace in one home directory. Creating this value reads and writes
/// nothing; no lock is held between calls.
#[derive(Clone, Debug)]
pub struct Keys {
    home: Home,
    namespace: NamespaceName,
    name: Name,
}

/// This machine's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineIdentity {
    /// The public key.
    pub node: NodeId,
    /// Its display name.
    pub name: Name,
    /// The file that holds the key pair.
    pub file: PathBuf,
    /// The index of this identity in the home directory. A single process uses 0; concurrent
    /// processes create and use further ones.
    pub slot: u8,
}

/// Where a cluster key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredKey {
    /// In the environment variable `POTLUCK_KEY`, which takes precedence over the file.
    Environment(ClusterKey),
    /// In the key file of the namespace.
    File(ClusterKey),
}

impl StoredKey {
    /// The key, wherever it was found.
    pub fn into_key(self) -> ClusterKey {
        match self {
            StoredKey::Environment(key) | StoredKey::File(key) => key,
        }
    }
}

impl Keys {
    /// The keys that a node with this configuration would use. `config.admission` is ignored.
    ///
    /// # Errors
    /// [`Error::Config`] if the namespace's name is invalid, [`Error::Identity`] if there is no
    /// directory for files.
    pub fn of(config: &Config) -> Result<Keys> {
        Ok(Keys { home: home_of(config)?, namespace: namespace_of(config)?, name: name_of(config) })
    }

    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// The path of the cluster key's file, whether or not it exists.
    pub fn cluster_key_file(&self) -> PathBuf {
        self.home.cluster_key_path(&self.namespace)
    }

    /// The directory in which nodes store their state between runs. It may not exist yet.
    pub fn state_dir(&self) -> &Path {
        self.home.state_dir()
    }

    /// The cluster key that a node would use, if there is one.
    ///
    /// # Errors
    /// [`Error::Identity`] if the variable or the file exists and cannot be used.
    pub fn cluster_key(&self) -> Result<Option<StoredKey>> {
        let found = find_cluster_keys(&self.namespace, &self.home, lookup)?;
        let from_variable = lookup(KEY_VARIABLE).is_some_and(|value| !value.is_empty());
        Ok(found.map(|keys| {
            let key = keys.current;
            if from_variable { StoredKey::Environment(key) } else { StoredKey::File(key) }
        }))
    }

    /// The cluster key in the key file, even if the environment has one, which takes precedence.
    ///
    /// # Errors
    /// [`Error::Identity`] if the file exists and cannot be used.
    pub fn stored_cluster_key(&self) -> Result<Option<ClusterKey>> {
        Ok(stored_cluster_keys(&self.namespace, &self.home)?.map(|keys| keys.current))
    }

    /// The next cluster key, while the stored one is being changed.
    ///
    /// # Errors
    /// [`Error::Identity`] if the file exists and cannot be used.
    pub fn next_cluster_key(&self) -> Result<Option<ClusterKey>> {
        Ok(stored_cluster_keys(&self.namespace, &self.home)?.and_then(|keys| keys.next))
    }

    /// Begins a change of the stored cluster key: creates the next one from the operating system's
    /// randomness and stores it beside the current one. Nodes of this machine, running ones too,
    /// accept both and still show the current one. If there is a next key already, returns that.
    /// Waits while another process changes the file.
    ///
    /// # Errors
    /// [`ConfigProblem::NoClusterKey`] if no key is stored, [`Error::Identity`] if the operating
    /// system has no randomness or the file cannot be used.
    pub fn rotate_cluster_key(&self) -> Result<ClusterKey> {
        let next = rotate_cluster_key(&self.namespace, &self.home)?;
        next.ok_or(Error::Config(ConfigProblem::NoClusterKey))
    }

    /// Follows a change that was begun on another machine: stores its next cluster key beside the
    /// current one, in place of any other next key. A key that is the current one already changes
    /// nothing. Waits while another process changes the file.
    ///
    /// # Errors
    /// As [`rotate_cluster_key`](Keys::rotate_cluster_key).
    pub fn store_next_cluster_key(&self, next: &ClusterKey) -> Result<()> {
        if store_next_key(&self.namespace, &self.home, next)? {
            Ok(())
        } else {
            Err(Error::Config(ConfigProblem::NoClusterKey))
        }
    }

    /// Ends a change of the stored cluster key: from now on the next key is the only one. Nodes of
    /// this machine, running ones too, renew their links with it, and about ten seconds later part
    /// from nodes that do not hold it. Returns whether there was a next key.
    /// Waits while another process changes the file.
    ///
    /// # Errors
    /// As [`rotate_cluster_key`](Keys::rotate_cluster_key).
    pub fn finish_rotation(&self) -> Result<bool> {
        let finished = finish_cluster_key(&self.namespace, &self.home)?;
        finished.ok_or(Error::Config(ConfigProblem::NoClusterKey))
    }

    /// The path of the list of denied nodes, whether or not it exists.
    pub fn denied_file(&self) -> PathBuf {
        self.home.denied_path()
    }

    /// The nodes that this machine refuses, whatever key they hold, each with a name for people.
    ///
    /// # Errors
    /// [`Error::Identity`] if the list cannot be read.
    pub fn denied(&self) -> Result<BTreeMap<NodeId, String>> {
        Ok(NodesFile::denied(&self.home).load()?)
    }

    /// Refuses a node, in all namespaces. Running nodes of this machine part from it within a
    /// second. It stays out of a group only if all machines deny it, and a machine that holds the
    /// cluster key can come back with another identity: change the key as well.
    ///
    /// # Errors
    /// [`Error::Identity`] if the list cannot be read or written.
    pub fn deny(&self, node: NodeId, name: &str) -> Result<()> {
        let known = (!name.is_empty()).then(|| Name::from_lossy(name).as_str().to_owned());
        let name = known.unwrap_or_default();
        NodesFile::denied(&self.home).change(|denied| denied.insert(node, name))?;
        Ok(())
    }

    /// Takes a node off the list; returns whether it was on it.
    ///
    /// # Errors
    /// [`Error::Identity`] if the list cannot be read or written.
    pub fn allow(&self, node: NodeId) -> Result<bool> {
        Ok(NodesFile::denied(&self.home).change(|denied| denied.remove(&node).is_some())?)
    }

    /// The path of the namespace's list of known nodes, whether or not it exists.
    pub fn known_file(&self) -> PathBuf {
        NodesFile::known(&self.home, &self.namespace).path().to_owned()
    }

    /// The nodes that were met under [`Trust::Tofu`](crate::keys::Trust::Tofu) in this namespace,
    /// each with the name that it then had.
    ///
    /// # Errors
    /// [`Error::Identity`] if the list cannot be read.
    pub fn known(&self) -> Result<BTreeMap<NodeId, String>> {
        Ok(NodesFile::known(&self.home, &self.namespace).load()?)
    }

    /// Takes a node off the list of known nodes; returns whether it was on it. It counts as met for
    /// the first time when it comes again. Links that stand are not ended.
    ///
    /// # Errors
    /// [`Error::Identity`] if the list cannot be read or written.
    pub fn forget(&self, node: NodeId) -> Result<bool> {
        let file = NodesFile::known(&self.home, &self.namespace);
        Ok(file.change(|known| known.remove(&node).is_some())?)
    }

    /// Creates a cluster key from the operating system's randomness and stores it, readable only by
    /// its owner.
    ///
    /// # Errors
    /// [`Error::Identity`] if a key is stored already, the operating system has no randomness, or
    /// the file cannot be written.
    pub fn create_cluster_key(&self) -> Result<ClusterKey> {
        Ok(create_cluster_key(&self.namespace, &self.home)?)
    }

    /// Stores a cluster key, readable only by its owner. Storing the same key again changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Identity`] if another key is stored, which is kept, or if the file cannot be
    /// written.
    pub fn store_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Keep)?)
    }

    /// Stores a cluster key and overwrites any other. This machine can no longer join the old key's
    /// cluster.
    ///
    /// # Errors
    /// [`Error::Identity`] if the file cannot be written; the old key is then kept.
    pub fn replace_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Replace)?)
    }

    /// This machine's identity, available also while a node runs. It is created if there is none.
    ///
    /// # Errors
    /// [`Error::Identity`] if the identity file cannot be used; it is not repaired.
    pub fn machine_identity(&self) -> Result<MachineIdentity> {
        Ok(MachineIdentity {
            node: first_identity(&self.home)?,
            name: self.name.clone(),
            file: self.home.identity_path(IdentitySlot::FIRST),
            slot: 0,
        })
    }
}

impl ClusterKey {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// [`Error::Identity`] if the operating system has no randomness.
    pub fn generate() -> Result<ClusterKey> {
        Ok(random_cluster_key()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Scratch;

    fn keys(scratch: &Scratch) -> Keys {
        let mut config = Config::loopback();
        config.home = Some(scratch.path().join("home"));
        config.namespace = Some("lab".to_owned());
        config.name = Some("ada".to_owned());
        Keys::of(&config).expect("a home and a valid name")
    }

    #[test]
    fn a_stored_key_is_found_and_only_replaced_on_demand() {
        let scratch = Scratch::new();
        let keys = keys(&scratch);
        assert_eq!(keys.cluster_key().expect("nothing there"), None);
        let made = keys.create_cluster_key().expect("a key");
        assert_eq!(keys.cluster_key().expect("a file"), Some(StoredKey::File(made.clone())));
        let other = ClusterKey::generate().expect("randomness");
        assert_ne!(made, other);
        assert!(keys.create_cluster_key().is_err() && keys.store_cluster_key(&other).is_err());
        keys.store_cluster_key(&made).expect("the same key again is fine");
        keys.replace_cluster_key(&other).expect("asked for");
        assert_eq!(keys.cluster_key().expect("a file"), Some(StoredKey::File(other)));
    }

    #[test]
    fn showing_the_identity_makes_it_once_and_holds_nothing() {
        let scratch = Scratch::new();
        let keys = keys(&scratch);
        let shown = keys.machine_identity().expect("an identity");
        assert_eq!((shown.name.as_str(), shown.slot), ("ada", 0));
        let held = crate::identity::load_or_create_identity(&keys.home).expect("it is free");
        assert_eq!(held.identity().id(), shown.node);
        assert_eq!(keys.machine_identity().expect("also while it is held"), shown);
    }
}
