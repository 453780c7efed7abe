//! Layer: Face.
//!
//! Access to this machine's key files for programs that manage them without running a node.

use crate::config::Config;
use crate::error::Result;
use crate::identity::cluster_key_file::{
    KEY_VARIABLE, Stored, create_cluster_key, find_cluster_key, random_cluster_key,
    store_cluster_key,
};
use crate::identity::home::{Home, Slot};
use crate::identity::keystore::first_identity;
use crate::identity::{ClusterKey, Name, NamespaceName, NodeId};
use crate::start::{home_of, lookup, name_of, namespace_of};
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
pub enum StoredKey {
    /// In the environment variable `POTLUCK_KEY`, which takes precedence over the file.
    Environment(ClusterKey),
    /// In the key file of the namespace.
    File(ClusterKey),
}

impl Keys {
    /// The keys that a node with this configuration would use. `config.admission` is ignored.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the namespace's name is invalid,
    /// [`Error::Identity`](crate::Error::Identity) if there is no directory for files.
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
    /// [`Error::Identity`](crate::Error::Identity) if the variable or the file exists and cannot be
    /// used.
    pub fn cluster_key(&self) -> Result<Option<StoredKey>> {
        let found = find_cluster_key(&self.namespace, &self.home, lookup)?;
        let from_variable = lookup(KEY_VARIABLE).is_some_and(|value| !value.is_empty());
        Ok(found.map(|key| {
            if from_variable { StoredKey::Environment(key) } else { StoredKey::File(key) }
        }))
    }

    /// Creates a cluster key from the operating system's randomness and stores it, readable only by
    /// its owner.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) if a key is stored already, the operating system
    /// has no randomness, or the file cannot be written.
    pub fn create_cluster_key(&self) -> Result<ClusterKey> {
        Ok(create_cluster_key(&self.namespace, &self.home)?)
    }

    /// Stores a cluster key, readable only by its owner. Storing the same key again changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) if another key is stored, which is kept, or if
    /// the file cannot be written.
    pub fn store_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Keep)?)
    }

    /// Stores a cluster key and overwrites any other. This machine can no longer join the old key's
    /// cluster.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) if the file cannot be written; the old key is
    /// then kept.
    pub fn replace_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Replace)?)
    }

    /// This machine's identity, available also while a node runs. It is created if there is none.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) if the identity file cannot be used; it is not
    /// repaired.
    pub fn machine_identity(&self) -> Result<MachineIdentity> {
        Ok(MachineIdentity {
            node: first_identity(&self.home)?,
            name: self.name.clone(),
            file: self.home.identity_path(Slot::FIRST),
            slot: 0,
        })
    }
}

impl ClusterKey {
    /// A new key from the operating system's randomness.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) if the operating system has no randomness.
    pub fn generate() -> Result<ClusterKey> {
        Ok(random_cluster_key()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::scratch::Scratch;

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
        let held =
            crate::identity::keystore::load_or_create_identity(&keys.home).expect("it is free");
        assert_eq!(held.identity().id(), shown.node);
        assert_eq!(keys.machine_identity().expect("also while it is held"), shown);
    }
}
