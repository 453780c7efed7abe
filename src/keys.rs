//! Layer: Face.
//!
//! The keys of this machine, for programs that look after them without being a node.

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

/// The key files of one namespace in one home. Opening it touches nothing; nothing is held between
/// calls.
#[derive(Clone, Debug)]
pub struct Keys {
    home: Home,
    namespace: NamespaceName,
    name: Name,
}

/// What this machine is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineIdentity {
    /// The public key.
    pub node: NodeId,
    /// What it calls itself.
    pub name: Name,
    /// The file that holds the key pair.
    pub file: PathBuf,
    /// Which of the home's identities this is. 0 is that of a process that is alone; further ones
    /// are made for processes that run beside it.
    pub slot: u8,
}

/// Where a cluster key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredKey {
    /// In the environment variable `POTLUCK_KEY`, which comes before the file.
    Environment(ClusterKey),
    /// In the key file of the namespace.
    File(ClusterKey),
}

impl Keys {
    /// The keys that a node with this configuration would use; the admission it asks for does not
    /// matter.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) when the namespace has no valid name,
    /// [`Error::Identity`](crate::Error::Identity) when there is no place for files.
    pub fn of(config: &Config) -> Result<Keys> {
        Ok(Keys { home: home_of(config)?, namespace: namespace_of(config)?, name: name_of(config) })
    }

    /// The name of the namespace.
    pub fn namespace(&self) -> &str {
        self.namespace.as_str()
    }

    /// The file of the cluster key, whether or not it is there.
    pub fn cluster_key_file(&self) -> PathBuf {
        self.home.cluster_key_path(&self.namespace)
    }

    /// The directory in which nodes remember their last run. It may not exist yet.
    pub fn state_dir(&self) -> &Path {
        self.home.state_dir()
    }

    /// The cluster key that a node would be admitted by, if there is one.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when the variable or the file is there and
    /// cannot be used.
    pub fn cluster_key(&self) -> Result<Option<StoredKey>> {
        let found = find_cluster_key(&self.namespace, &self.home, lookup)?;
        let from_variable = lookup(KEY_VARIABLE).is_some_and(|value| !value.is_empty());
        Ok(found.map(|key| {
            if from_variable { StoredKey::Environment(key) } else { StoredKey::File(key) }
        }))
    }

    /// Makes a new cluster key out of the operating system's randomness and stores it, readable for
    /// its owner alone.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when a key is stored already, or the file cannot
    /// be written.
    pub fn create_cluster_key(&self) -> Result<ClusterKey> {
        Ok(create_cluster_key(&self.namespace, &self.home)?)
    }

    /// Stores a cluster key, readable for its owner alone. Storing the same key again changes
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when another key is stored, which stays, or the
    /// file cannot be written.
    pub fn store_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Keep)?)
    }

    /// Stores a cluster key in place of whatever is stored: this machine leaves that other cluster
    /// for good.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when the file cannot be written; the old key is
    /// then still there.
    pub fn replace_cluster_key(&self, key: &ClusterKey) -> Result<()> {
        Ok(store_cluster_key(&self.namespace, &self.home, key, Stored::Replace)?)
    }

    /// Who this machine is, also while a node runs. The identity is made when there is none yet.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when its file cannot be used; nothing is
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
    /// A new key out of the operating system's randomness.
    ///
    /// # Errors
    /// [`Error::Identity`](crate::Error::Identity) when the operating system has none.
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
