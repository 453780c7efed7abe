//! Layer: Words.
//!
//! What can be wrong with the files that a node keeps.

use super::KeyTextError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file of the key store cannot be used. The file stays as it is: nothing is ever repaired or
/// made anew silently.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityProblem {
    /// The path is a symbolic link, which could lead to a file that others choose.
    Symlink {
        /// Which file.
        path: PathBuf,
    },
    /// The path is a directory, FIFO, socket or device.
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// The file belongs to another user.
    WrongOwner {
        /// Which file.
        path: PathBuf,
        /// The user id it belongs to.
        owner: u32,
    },
    /// Others than the owner may read or write the file.
    LoosePermissions {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file has no bytes.
    Empty {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        kept: Kept,
    },
    /// The file is longer than such a file can be.
    TooLong {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        kept: Kept,
    },
    /// The file ends too early.
    Truncated {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        kept: Kept,
    },
    /// The file's checksum does not match its contents.
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What it should hold.
        kept: Kept,
    },
    /// The file is whole, but of a format that this version does not know.
    UnknownVersion {
        /// Which file.
        path: PathBuf,
    },
    /// The cluster key file does not hold a cluster key.
    NotAKey {
        /// Which file.
        path: PathBuf,
        /// What is wrong with its text.
        reason: KeyTextError,
    },
    /// The environment variable does not hold a cluster key.
    NotAKeyVariable {
        /// Which variable.
        variable: &'static str,
        /// What is wrong with its text.
        reason: KeyTextError,
    },
    /// Another cluster key is stored under this name; it was not overwritten.
    OtherKeyStored {
        /// Where it is.
        path: PathBuf,
    },
    /// Every identity of this home is in use by a running process.
    AllSlotsTaken {
        /// Where the identities are.
        path: PathBuf,
    },
    /// Neither `POTLUCK_HOME` nor `HOME` nor the XDG variables say where files belong.
    NoHome,
    /// The operating system gave no random numbers.
    NoRandomness,
    /// The operating system refused.
    Refused {
        /// Which file.
        path: PathBuf,
        /// What was to be done with it.
        action: FileAction,
        /// Its reason.
        reason: io::ErrorKind,
    },
}

/// What a file of the key store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The node's key pair.
    Identity,
    /// The cluster's key.
    ClusterKey,
    /// What the node promised and accepted.
    State,
    /// Where peers were last seen.
    Peers,
}

/// What was to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Reading it.
    Read,
    /// Writing it.
    Write,
    /// Locking it.
    Lock,
    /// Making the directory.
    MakeDirectory,
}

impl IdentityProblem {
    /// The file in question, if it is about one.
    pub fn path(&self) -> Option<&Path> {
        use IdentityProblem as P;
        match self {
            P::Symlink { path }
            | P::NotAFile { path }
            | P::WrongOwner { path, .. }
            | P::LoosePermissions { path, .. }
            | P::Empty { path, .. }
            | P::TooLong { path, .. }
            | P::Truncated { path, .. }
            | P::Damaged { path, .. }
            | P::UnknownVersion { path }
            | P::NotAKey { path, .. }
            | P::OtherKeyStored { path }
            | P::AllSlotsTaken { path }
            | P::Refused { path, .. } => Some(path),
            P::NotAKeyVariable { .. } | P::NoHome | P::NoRandomness => None,
        }
    }
}

impl Kept {
    /// What to do when the contents are lost.
    fn remedy(self) -> &'static str {
        match self {
            Kept::Identity => {
                "Restore it from a backup, or move it away to start with a new identity"
            }
            Kept::ClusterKey => {
                "Restore it from a backup, or move it away and join the cluster again"
            }
            Kept::State => "Move it away; the node then starts without memory of the last run",
            Kept::Peers => "Move it away; it is only a hint where to look for peers",
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
            P::Symlink { .. } => f.write_str("this is a symbolic link, which potluck does not follow. Put the file itself here"),
            P::NotAFile { .. } => f.write_str("this is not a regular file. Move it away"),
            P::WrongOwner { owner, .. } => {
                write!(f, "this file belongs to user {owner}. Give it to the user that runs potluck, or run as its owner")
            }
            P::LoosePermissions { mode, path } => {
                write!(f, "others may use this file (mode {mode:04o}). Run: chmod 600 {}", path.display())
            }
            P::Empty { kept, .. } => write!(f, "this file is empty. {}", kept.remedy()),
            P::TooLong { kept, .. } => write!(f, "this file is too long to be what it should be. {}", kept.remedy()),
            P::Truncated { kept, .. } => write!(f, "this file ends too early. {}", kept.remedy()),
            P::Damaged { kept, .. } => write!(f, "this file is damaged, its checksum does not match. {}", kept.remedy()),
            P::UnknownVersion { .. } => {
                f.write_str("this file was written by another version of potluck. Run that version, or move it away")
            }
            P::NotAKey { reason, .. } => write!(f, "{reason}"),
            P::NotAKeyVariable { variable, reason } => write!(f, "{variable}: {reason}"),
            P::OtherKeyStored { .. } => {
                f.write_str("a different cluster key is stored here. Use another namespace name, or ask for it to be replaced")
            }
            P::AllSlotsTaken { .. } => f.write_str("all identities here are in use by running processes. Stop some of them"),
            P::NoHome => f.write_str("there is no place for potluck's files. Set POTLUCK_HOME to a directory of your own"),
            P::NoRandomness => f.write_str("the operating system gave no random numbers. Try again later"),
            P::Refused { action, reason, .. } => write!(f, "could not {action}: {reason}. {}", action.remedy()),
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

impl fmt::Display for FileAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileAction::Read => "read this file",
            FileAction::Write => "write this file",
            FileAction::Lock => "lock this file",
            FileAction::MakeDirectory => "make this directory",
        })
    }
}

impl std::error::Error for IdentityProblem {}
