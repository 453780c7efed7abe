//! The problems with a node's files.

use super::cluster_key::KeyTextError;
use derive_more::Display;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why a file of the key store cannot be used. The file is not changed: nothing is ever repaired or
/// recreated silently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityProblem {
    /// The path is a symbolic link, which could lead to a file chosen by another user.
    Symlink {
        /// The file.
        path: PathBuf,
    },
    /// The path is a directory, FIFO, socket or device.
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file or directory belongs to another user.
    WrongOwner {
        /// The file.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// Other users have permissions for the file.
    LoosePermissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Other users may write to the directory, and so replace or remove the files in it.
    LooseDirectory {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file has no bytes.
    Empty {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        content: FileContent,
    },
    /// The file is longer than a valid one can be.
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        content: FileContent,
    },
    /// The file ends too early.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        content: FileContent,
    },
    /// The file's checksum does not match its contents.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its expected contents.
        content: FileContent,
    },
    /// The file is intact, but in a format that this version does not know.
    UnknownVersion {
        /// The file.
        path: PathBuf,
    },
    /// The cluster key file does not hold a cluster key.
    NotAKey {
        /// The file.
        path: PathBuf,
        /// The fault in its text.
        reason: KeyTextError,
    },
    /// The environment variable does not hold a cluster key.
    NotAKeyVariable {
        /// The variable.
        variable: &'static str,
        /// The fault in its text.
        reason: KeyTextError,
    },
    /// The file is not a list of node ids.
    NotAList {
        /// The file.
        path: PathBuf,
        /// The list it should be.
        content: FileContent,
    },
    /// Another cluster key is stored under this name; it was not overwritten.
    OtherKeyStored {
        /// Its path.
        path: PathBuf,
    },
    /// Every identity of this home is in use by a running process.
    AllSlotsTaken {
        /// The directory of the identities.
        path: PathBuf,
    },
    /// `POTLUCK_HOME`, `HOME` and the XDG variables do not determine a location for the files.
    NoHome,
    /// The operating system returned no random numbers.
    NoRandomness,
    /// The operating system refused an operation.
    Refused {
        /// The file.
        path: PathBuf,
        /// The attempted operation.
        action: FileAction,
        /// The reason given by the system.
        reason: io::ErrorKind,
    },
}

/// The contents of a file of the key store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileContent {
    /// The node's key pair.
    Identity,
    /// The cluster's key.
    ClusterKey,
    /// The promises and accepted proposals of the node.
    State,
    /// The addresses of peers.
    Peers,
    /// The list of denied nodes.
    Denied,
    /// The list of nodes that were met.
    Known,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum FileAction {
    /// Reading it.
    #[display("read this file")]
    Read,
    /// Writing it.
    #[display("write this file")]
    Write,
    /// Locking it.
    #[display("lock this file")]
    Lock,
    /// Creating the directory.
    #[display("make this directory")]
    MakeDirectory,
}

impl IdentityProblem {
    /// The file concerned, if any.
    pub fn path(&self) -> Option<&Path> {
        use IdentityProblem as P;
        match self {
            P::Symlink { path }
            | P::NotAFile { path }
            | P::WrongOwner { path, .. }
            | P::LoosePermissions { path, .. }
            | P::LooseDirectory { path, .. }
            | P::Empty { path, .. }
            | P::TooLong { path, .. }
            | P::Truncated { path, .. }
            | P::Damaged { path, .. }
            | P::UnknownVersion { path }
            | P::NotAKey { path, .. }
            | P::NotAList { path, .. }
            | P::OtherKeyStored { path }
            | P::AllSlotsTaken { path }
            | P::Refused { path, .. } => Some(path),
            P::NotAKeyVariable { .. } | P::NoHome | P::NoRandomness => None,
        }
    }
}

impl FileContent {
    /// Advice for lost contents.
    fn remedy(self) -> &'static str {
        match self {
            FileContent::Identity => {
                "Restore it from a backup, or move it away to start with a new identity"
            }
            FileContent::ClusterKey => {
                "Restore it from a backup, or move it away and join the cluster again"
            }
            FileContent::State => {
                "Move it away; the node then starts without memory of the last run"
            }
            FileContent::Peers => "Move it away; it is only a hint where to look for peers",
            FileContent::Denied => "Move it away and deny those nodes again",
            FileContent::Known => "Move it away; every node then counts as met for the first time",
        }
    }
}

impl fmt::Display for IdentityProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = self.path() {
            write!(f, "{}: ", path.display())?;
        }
        self.write_sentence(f)
    }
}

impl IdentityProblem {
    fn write_sentence(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use IdentityProblem as P;
        match self {
            P::Symlink { .. } => f.write_str(
                "this is a symbolic link, which potluck does not follow. Put the file itself here",
            ),
            P::NotAFile { .. } => f.write_str("this is not a regular file. Move it away"),
            P::WrongOwner { owner, .. } => {
                write!(
                    f,
                    "this belongs to user {owner}. Give it to the user that runs potluck, or run \
                     as its owner"
                )
            }
            P::LoosePermissions { mode, path } => {
                write!(
                    f,
                    "others may use this file (mode {mode:04o}). Run: chmod 600 {}",
                    path.display()
                )
            }
            P::LooseDirectory { mode, path } => {
                write!(
                    f,
                    "others may write to this directory (mode {mode:04o}). Run: chmod go-w {}",
                    path.display()
                )
            }
            P::Empty { content, .. } => write!(f, "this file is empty. {}", content.remedy()),
            P::TooLong { content, .. } => {
                write!(f, "this file is or would be too long. {}", content.remedy())
            }
            P::Truncated { content, .. } => {
                write!(f, "this file ends too early. {}", content.remedy())
            }
            P::Damaged { content, .. } => {
                write!(f, "this file is damaged, its checksum does not match. {}", content.remedy())
            }
            P::UnknownVersion { .. } => f.write_str(
                "this file was written by another version of potluck. Run that version, or move it \
                 away",
            ),
            P::NotAKey { reason, .. } => write!(f, "{reason}"),
            P::NotAList { content, .. } => write!(
                f,
                "this is not a list of nodes, a line like <node id> = \"name\" for each. Correct \
                 it. Or: {}",
                content.remedy()
            ),
            P::NotAKeyVariable { variable, reason } => write!(f, "{variable}: {reason}"),
            P::OtherKeyStored { .. } => f.write_str(
                "a different cluster key is stored here. Use another namespace name, or ask for it \
                 to be replaced",
            ),
            P::AllSlotsTaken { .. } => f.write_str(
                "all identities here are in use by running processes. Stop some of them",
            ),
            P::NoHome => f.write_str(
                "there is no place for potluck's files. Set POTLUCK_HOME to a directory of your \
                 own",
            ),
            P::NoRandomness => {
                f.write_str("the operating system gave no random numbers. Try again later")
            }
            P::Refused { action, reason, .. } => {
                write!(f, "could not {action}: {reason}. {}", action.remedy())
            }
        }
    }
}

impl FileAction {
    fn remedy(self) -> &'static str {
        match self {
            FileAction::Read => "Make it readable for the user that runs potluck",
            FileAction::Write => {
                "Make room there and let the user that runs potluck write to its directory"
            }
            FileAction::Lock => "Set POTLUCK_HOME to a directory whose file system has file locks",
            FileAction::MakeDirectory => {
                "Make it by hand, or set POTLUCK_HOME to another directory"
            }
        }
    }
}

impl std::error::Error for IdentityProblem {}
