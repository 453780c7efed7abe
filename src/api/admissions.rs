//! The keys and nodes that this machine's files admit, which people and the commands of `potluck`
//! change while programs run.

use super::config::{Admission as Wanted, Config};
use super::environment::{lookup, namespace_of};
use crate::identity::{
    ClusterKeys, Home, IdentityProblem, KEY_VARIABLE, Namespace, NodesFile, Trust,
    find_cluster_keys, stored_cluster_keys,
};
use crate::node::{Admission, Admissions};
use crate::report::{ConfigProblem, Error, Result};
use crate::trace;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Follows the key file of a namespace, the list of denied nodes, and that of known nodes.
pub(crate) struct MachineAdmissions {
    home: Home,
    /// The configuration names no key of its own, so the file decides.
    follows_keys: bool,
    /// It makes a difference which nodes are known.
    follows_known: bool,
    stamps: [Option<Stamp>; 3],
    admission: Admission,
    /// The fault of a file that was reported last.
    reported: Option<IdentityProblem>,
}

/// The facts of a file that change when it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    changed: (i64, i64),
    bytes: u64,
}

impl MachineAdmissions {
    /// # Errors
    /// There is no key, or a file cannot be used.
    pub(crate) fn of(config: &Config, home: Home) -> Result<MachineAdmissions> {
        let by_variable = lookup(KEY_VARIABLE).is_some_and(|value| !value.is_empty());
        let follows_keys = matches!(config.admission, Wanted::Found) && !by_variable;
        let namespace = namespace(config, &home)?;
        let follows_known = matches!(config.trust, Trust::Tofu(_));
        let (stamps, admission) = (stamps(&paths(&home, &namespace)), Admission::to(namespace));
        let reported = None;
        let mut all =
            MachineAdmissions { home, follows_keys, follows_known, stamps, admission, reported };
        match all.read() {
            (admission, None) => all.admission = admission,
            (_, Some(problem)) => return Err(problem.into()),
        }
        Ok(all)
    }

    /// The admitted keys and nodes, as of the last look.
    pub(crate) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Reads the files. Returns their content, and the fault of a file that cannot be used: that
    /// file changes nothing, and the others count.
    fn read(&self) -> (Admission, Option<IdentityProblem>) {
        let mut admission = self.admission.clone();
        let name = admission.namespace.name().clone();
        let mut fault = None;
        match NodesFile::denied(&self.home).load() {
            Ok(denied) => admission.denied = denied.into_keys().collect(),
            Err(problem) => fault = Some(problem),
        }
        if self.follows_keys {
            match stored_cluster_keys(&name, &self.home) {
                Ok(Some(keys)) => admission.namespace = Namespace::with_keys(name.clone(), keys),
                Ok(None) => {}
                Err(problem) => fault = Some(problem),
            }
        }
        if self.follows_known {
            match NodesFile::known(&self.home, &name).load() {
                Ok(known) => admission.known = known,
                Err(problem) => fault = Some(problem),
            }
        }
        (admission, fault)
    }
}

impl Admissions for MachineAdmissions {
    fn look(&mut self) -> Option<Admission> {
        let stamps = stamps(&paths(&self.home, &self.admission.namespace));
        if std::mem::replace(&mut self.stamps, stamps) == stamps && self.reported.is_none() {
            return None;
        }
        // A file that could not be read is read again at the next look.
        let (admission, fault) = self.read();
        if fault != self.reported {
            if let Some(problem) = &fault {
                trace::warn!(%problem, "the previous content of this file still holds");
            }
            self.reported = fault;
        }
        if admission == self.admission {
            return None;
        }
        self.admission = admission.clone();
        Some(admission)
    }
}

/// The cluster of a configuration.
pub(crate) fn namespace(config: &Config, home: &Home) -> Result<Namespace> {
    let name = namespace_of(config)?;
    match &config.admission {
        Wanted::Open => Ok(Namespace::open(name)),
        wanted => Ok(Namespace::with_keys(name, cluster_keys(config, wanted, home)?)),
    }
}

/// The cluster keys of a configuration. An open namespace has none.
pub(crate) fn cluster_keys(config: &Config, wanted: &Wanted, home: &Home) -> Result<ClusterKeys> {
    let found = match wanted {
        Wanted::Key(key) => Some(ClusterKeys::only(key.clone())),
        Wanted::Found => find_cluster_keys(&namespace_of(config)?, home, lookup)?,
        Wanted::Open => None,
    };
    found.ok_or(Error::Config(ConfigProblem::NoClusterKey))
}

fn paths(home: &Home, namespace: &Namespace) -> [PathBuf; 3] {
    let name = namespace.name();
    [home.cluster_key_path(name), home.denied_path(), home.known_path(name)]
}

fn stamps(paths: &[PathBuf; 3]) -> [Option<Stamp>; 3] {
    paths.each_ref().map(|path| stamp(path))
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = path.symlink_metadata().ok()?;
    let changed = (file.ctime(), file.ctime_nsec());
    Some(Stamp { inode: file.ino(), changed, bytes: file.len() })
}

#[cfg(test)]
mod tests {
    use super::super::keys::Keys;
    use super::*;
    use crate::identity::{NodeId, Nodes, Scratch};
    use std::collections::BTreeSet;

    fn config(scratch: &Scratch) -> (Config, Keys) {
        let mut config = Config::loopback();
        config.home = Some(scratch.path().join("home"));
        let keys = Keys::of(&config).expect("a home");
        (config, keys)
    }

    fn open(config: &Config) -> MachineAdmissions {
        let home = Home::at(config.home.clone().expect("given"));
        MachineAdmissions::of(config, home).expect("a key")
    }

    #[test]
    fn what_the_files_say_is_followed() {
        let scratch = Scratch::new();
        let (config, keys) = config(&scratch);
        let first = keys.create_cluster_key().expect("a key");
        let mut admissions = open(&config);
        assert_eq!(admissions.look(), None, "nothing has changed");
        let next = keys.rotate_cluster_key().expect("a next key");
        let seen = admissions.look().expect("two keys");
        assert_eq!(seen.namespace.psks().len(), 2);
        assert_eq!(admissions.look(), None, "told once");
        keys.finish_rotation().expect("the next key is the only one");
        let seen = admissions.look().expect("one key");
        let only = Namespace::keyed(seen.namespace.name().clone(), next.clone());
        assert_eq!(seen.namespace, only);
        assert_ne!(first, next);
        let node = NodeId([7; 32]);
        keys.deny(node, "ada").expect("stored");
        assert_eq!(admissions.look().expect("one is denied").denied, BTreeSet::from([node]));
        assert!(keys.allow(node).expect("stored"));
        assert_eq!(admissions.look().expect("none is").denied, BTreeSet::new());
    }

    #[test]
    fn known_nodes_are_followed_where_they_make_a_difference() {
        let scratch = Scratch::new();
        let (mut config, keys) = config(&scratch);
        keys.create_cluster_key().expect("a key");
        let known = Nodes::from([(NodeId([7; 32]), "ada".to_owned())]);
        let home = Home::at(config.home.clone().expect("given"));
        let file = NodesFile::known(&home, open(&config).admission().namespace.name());
        file.change(|list| *list = known.clone()).expect("stored");
        assert_eq!(open(&config).admission().known, Nodes::new());
        config.trust = Trust::tofu();
        let mut admissions = open(&config);
        assert_eq!(admissions.admission().known, known);
        assert!(keys.forget(NodeId([7; 32])).expect("stored"));
        assert_eq!(admissions.look().expect("one is forgotten").known, Nodes::new());
    }

    #[test]
    fn a_file_that_cannot_be_used_changes_nothing() {
        let scratch = Scratch::new();
        let (config, keys) = config(&scratch);
        keys.create_cluster_key().expect("a key");
        let mut admissions = open(&config);
        std::fs::write(keys.cluster_key_file(), "no key").expect("written");
        assert_eq!(admissions.look(), None);
        // The other files count all the same.
        let node = NodeId([7; 32]);
        keys.deny(node, "ada").expect("stored");
        assert_eq!(admissions.look().expect("one is denied").denied, BTreeSet::from([node]));
        assert_eq!(admissions.look(), None);
        std::fs::remove_file(keys.cluster_key_file()).expect("removed");
        assert_eq!(admissions.look(), None);
        assert_eq!(admissions.admission().namespace.psks().len(), 1);
    }

    #[test]
    fn a_key_of_the_program_stays() {
        let scratch = Scratch::new();
        let (mut config, keys) = config(&scratch);
        keys.create_cluster_key().expect("a key");
        config.admission =
            Wanted::Key(crate::identity::ClusterKey::generate().expect("randomness"));
        let mut admissions = open(&config);
        keys.rotate_cluster_key().expect("a next key");
        assert_eq!(admissions.look(), None);
    }
}
