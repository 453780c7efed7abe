//! The identity of this process: read from its file or created once, and locked against other
//! processes.

use super::home::{Home, IdentitySlot, make_private_dir};
use super::identity_file::{IdentityTextError, decode_identity, encode_identity};
use super::job_name::JobName;
use super::keypair::Identity;
use super::namespace::NamespaceName;
use super::node_id::{Boot, NodeId};
use super::private_file;
use super::problem::{FileAction, FileContent, IdentityProblem};
use super::state_file::StateFile;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::{fmt, io};
use zeroize::Zeroizing;

/// An identity that no other process of this home uses while this value exists.
pub struct HeldIdentity {
    identity: Identity,
    slot: IdentitySlot,
    // The operating system releases it when the file is closed, also if the process is killed.
    _lock: File,
}

impl HeldIdentity {
    /// The key pair.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its slot in the home.
    #[cfg(test)]
    pub fn slot(&self) -> IdentitySlot {
        self.slot
    }

    /// The socket on which the node of this identity tells its status.
    pub fn status_socket(&self, home: &Home, name: &NamespaceName, job: &JobName) -> PathBuf {
        home.status_socket_path(name, job, self.slot)
    }

    /// The file for the durable state of this identity in a namespace and a job.
    pub fn state_file(&self, home: &Home, name: &NamespaceName, job: &JobName) -> StateFile {
        StateFile::at(home.state_path(name, job, self.slot))
    }

    /// The file of the paths that this identity knows between the nodes of a namespace.
    pub fn paths_file(&self, home: &Home, name: &NamespaceName) -> StateFile {
        StateFile::at(home.paths_path(name, self.slot))
    }
}

impl fmt::Debug for HeldIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldIdentity({}, slot {}, key hidden)", self.identity.id(), self.slot.0)
    }
}

/// Takes the first identity of `home` that no running process uses. Creates it if it has no file
/// yet.
///
/// An unusable file is an error and is not changed, because a new identity in its place would be
/// another node. The file locks are advisory. They also hold between two calls in one process.
pub fn load_or_create_identity(home: &Home) -> Result<HeldIdentity, IdentityProblem> {
    make_private_dir(home.state_dir())?;
    for slot in (0..SLOTS_MAX).map(IdentitySlot) {
        if let Some(lock) = try_lock(&home.lock_path(slot))? {
            let identity = load_or_create(&home.identity_path(slot))?;
            return Ok(HeldIdentity { identity, slot, _lock: lock });
        }
    }
    Err(IdentityProblem::AllSlotsTaken { path: home.state_dir().to_owned() })
}

/// The id of this home's first identity, whether or not a process uses it. Creates it if it has no
/// file yet.
pub fn first_identity(home: &Home) -> Result<NodeId, IdentityProblem> {
    let path = home.identity_path(IdentitySlot::FIRST);
    if let Some(identity) = load(&path)? {
        return Ok(identity.id());
    }
    make_private_dir(home.state_dir())?;
    // If another process creates the file at the same time, the later one reads it.
    load_or_create(&path).map(|identity| identity.id())
}

/// The number of this start, from the operating system's randomness.
pub fn new_boot() -> Result<Boot, IdentityProblem> {
    getrandom::u64().map(Boot).map_err(|_| IdentityProblem::NoRandomness)
}

/// 32 random bytes for a key.
pub(super) fn random_seed() -> Result<Zeroizing<[u8; 32]>, IdentityProblem> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|_| IdentityProblem::NoRandomness)?;
    Ok(seed)
}

/// The locked file, or `None` while another process holds the lock.
fn try_lock(path: &Path) -> Result<Option<File>, IdentityProblem> {
    let file = private_file::open_lock(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(private_file::refused(path, FileAction::Lock, &error))
        }
    }
}

fn load_or_create(path: &Path) -> Result<Identity, IdentityProblem> {
    if let Some(identity) = load(path)? {
        return Ok(identity);
    }
    let identity = Identity::from_seed(&*random_seed()?);
    match private_file::create(path, encode_identity(&identity).as_bytes()) {
        Ok(()) => Ok(identity),
        // Another process was faster although this one holds the lock (on some network file
        // systems): its file is the identity.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            load(path)?.ok_or_else(|| private_file::refused(path, FileAction::Write, &error))
        }
        Err(error) => Err(private_file::refused(path, FileAction::Write, &error)),
    }
}

fn load(path: &Path) -> Result<Option<Identity>, IdentityProblem> {
    let Some(text) = private_file::read(path, FileContent::Identity, FILE_BYTES_MAX)? else {
        return Ok(None);
    };
    let (path, content) = (path.to_owned(), FileContent::Identity);
    decode_identity(&text).map(Some).map_err(|fault| match fault {
        IdentityTextError::Truncated => IdentityProblem::Truncated { path, content },
        IdentityTextError::TooLong => IdentityProblem::TooLong { path, content },
        IdentityTextError::Damaged => IdentityProblem::Damaged { path, content },
        IdentityTextError::UnknownVersion => IdentityProblem::UnknownVersion { path },
    })
}

// More processes on one machine are a mistake, because a View has at most 32 members.
const SLOTS_MAX: u8 = 64;
// Several times the length of any version's file.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests;
