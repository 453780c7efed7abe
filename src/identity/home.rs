//! The locations of potluck's files.

use super::job_name::JobName;
use super::namespace::NamespaceName;
use super::private_file;
use super::problem::{FileAction, IdentityProblem};
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The two directories of a user's potluck: configuration, which people write, and state, which
/// nodes write.
///
/// The same on Linux and macOS. Creating this value touches no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    state: PathBuf,
}

/// One of the identities of a home. Two processes never use the same one at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdentitySlot(pub(super) u8);

impl Home {
    /// Both in one directory.
    pub fn at(directory: impl Into<PathBuf>) -> Home {
        let config = directory.into();
        Home { state: config.clone(), config }
    }

    /// `POTLUCK_HOME` for both, else `$XDG_CONFIG_HOME/potluck` and `$XDG_STATE_HOME/potluck`, else
    /// `~/.config/potluck` and `~/.local/state/potluck`. An empty variable counts as unset, and so
    /// does an XDG variable with a relative path, as the XDG base directory specification requires.
    pub fn from_env(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Home, IdentityProblem> {
        let directory =
            |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(all) = directory("POTLUCK_HOME") {
            return Ok(Home::at(all));
        }
        let xdg = |name: &str, fallback: &str| {
            let chosen = directory(name).filter(|path| path.is_absolute());
            let base = chosen.or_else(|| directory("HOME").map(|home| home.join(fallback)));
            base.map(|base| base.join("potluck")).ok_or(IdentityProblem::NoHome)
        };
        Ok(Home {
            config: xdg("XDG_CONFIG_HOME", ".config")?,
            state: xdg("XDG_STATE_HOME", ".local/state")?,
        })
    }

    /// The configuration directory: `cluster-<name>.key`, `denied.toml`, and a lock file beside
    /// each.
    pub fn config_dir(&self) -> &Path {
        &self.config
    }

    /// The state directory: `identity.key`, `identity.lock`, `state-<name>.<job>.bin`,
    /// `status-<name>.<job>.sock`, `peers-<name>.<job>.toml`, `known-<name>.toml`,
    /// `paths-<name>.bin`. All slots share `peers` and `known`; of the other files, those of a slot
    /// that is not the first have its number before the suffix.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// The key file of a namespace.
    pub fn cluster_key_path(&self, name: &NamespaceName) -> PathBuf {
        self.config.join(format!("cluster-{name}.key"))
    }

    /// The list of denied nodes.
    pub fn denied_path(&self) -> PathBuf {
        self.config.join("denied.toml")
    }

    /// The identity file of a slot.
    pub fn identity_path(&self, slot: IdentitySlot) -> PathBuf {
        self.state.join(format!("identity{}.key", slot.infix()))
    }

    /// The file whose lock marks a slot as in use.
    pub fn lock_path(&self, slot: IdentitySlot) -> PathBuf {
        self.state.join(format!("identity{}.lock", slot.infix()))
    }

    /// The durable state of a slot in a namespace and a job. Neither name contains a dot.
    pub fn state_path(&self, name: &NamespaceName, job: &JobName, slot: IdentitySlot) -> PathBuf {
        self.state.join(format!("state-{name}.{job}{}.bin", slot.infix()))
    }

    /// The addresses of the last run's peers.
    pub fn peers_path(&self, name: &NamespaceName, job: &JobName) -> PathBuf {
        self.state.join(format!("peers-{name}.{job}.toml"))
    }

    /// The socket on which the node of a slot tells its status.
    pub fn status_socket_path(
        &self,
        name: &NamespaceName,
        job: &JobName,
        slot: IdentitySlot,
    ) -> PathBuf {
        self.state.join(format!("status-{name}.{job}{}.sock", slot.infix()))
    }

    /// The job of such a socket of this namespace, by its path.
    pub fn job_of_status_socket(&self, name: &NamespaceName, path: &Path) -> Option<JobName> {
        let file = path.strip_prefix(&self.state).ok()?.to_str()?;
        let rest = file.strip_prefix(&format!("status-{name}."))?.strip_suffix(".sock")?;
        JobName::parse(rest.split_once('.').map_or(rest, |(job, _)| job)).ok()
    }

    /// The file of the paths that a slot knows between the nodes of a namespace.
    pub fn paths_path(&self, name: &NamespaceName, slot: IdentitySlot) -> PathBuf {
        self.state.join(format!("paths-{name}{}.bin", slot.infix()))
    }

    /// The nodes that were met.
    pub fn known_path(&self, name: &NamespaceName) -> PathBuf {
        self.state.join(format!("known-{name}.toml"))
    }
}

impl IdentitySlot {
    /// The slot of the only process of a home.
    pub const FIRST: IdentitySlot = IdentitySlot(0);

    fn infix(self) -> String {
        if self == IdentitySlot::FIRST { String::new() } else { format!(".{}", self.0) }
    }
}

/// Creates `directory` and missing parents, accessible by the owner only (0700). Does not change
/// existing ones, but [judges](private_file::judge_directory) `directory`.
pub(super) fn make_private_dir(directory: &Path) -> Result<(), IdentityProblem> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| private_file::refused(directory, FileAction::MakeDirectory, &error))?;
    private_file::judge_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn home(variables: &[(&str, &str)]) -> Result<Home, IdentityProblem> {
        Home::from_env(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_chooses_the_directories() {
        let user = ("HOME", "/home/ada");
        let dirs = |variables: &[(&str, &str)]| {
            let home = home(variables).expect("a home");
            (home.config_dir().display().to_string(), home.state_dir().display().to_string())
        };
        let plain =
            ("/home/ada/.config/potluck".to_owned(), "/home/ada/.local/state/potluck".to_owned());
        assert_eq!(dirs(&[user]), plain);
        assert_eq!(dirs(&[user, ("XDG_CONFIG_HOME", ""), ("XDG_STATE_HOME", "relative")]), plain);
        assert_eq!(
            dirs(&[user, ("POTLUCK_HOME", "/p"), ("XDG_CONFIG_HOME", "/c")]),
            ("/p".to_owned(), "/p".to_owned())
        );
        let both = dirs(&[("XDG_CONFIG_HOME", "/c"), ("XDG_STATE_HOME", "/s")]);
        assert_eq!(both, ("/c/potluck".to_owned(), "/s/potluck".to_owned()));
        assert_eq!(home(&[("XDG_CONFIG_HOME", "/c")]), Err(IdentityProblem::NoHome));
    }

    #[test]
    fn a_slot_other_than_the_first_is_in_the_names() {
        let (home, name) = (Home::at("/p"), NamespaceName::default());
        assert_eq!(home.identity_path(IdentitySlot::FIRST), Path::new("/p/identity.key"));
        assert_eq!(home.identity_path(IdentitySlot(1)), Path::new("/p/identity.1.key"));
        let job = JobName::parse("train").expect("a name");
        let state = |slot| home.state_path(&name, &job, slot);
        assert_eq!(state(IdentitySlot::FIRST), Path::new("/p/state-default.train.bin"));
        assert_eq!(state(IdentitySlot(7)), Path::new("/p/state-default.train.7.bin"));
        for slot in [IdentitySlot::FIRST, IdentitySlot(7)] {
            let socket = home.status_socket_path(&name, &job, slot);
            assert_eq!(home.job_of_status_socket(&name, &socket), Some(job.clone()));
        }
        for other in ["status-other.train.sock", "status-default.sock", "state-default.train.bin"] {
            assert_eq!(home.job_of_status_socket(&name, &Path::new("/p").join(other)), None);
        }
        assert_eq!(home.peers_path(&name, &job), Path::new("/p/peers-default.train.toml"));
        assert_eq!(home.cluster_key_path(&name), Path::new("/p/cluster-default.key"));
    }

    #[test]
    fn directories_are_made_for_the_owner_alone() {
        let scratch = Scratch::new();
        let inner = scratch.path().join("a/b");
        make_private_dir(&inner).expect("a directory");
        for made in [inner.as_path(), &scratch.path().join("a")] {
            assert_eq!(
                std::fs::metadata(made).expect("it exists").permissions().mode() & 0o777,
                0o700
            );
        }
        make_private_dir(&inner).expect("a second time is fine");
    }
}
