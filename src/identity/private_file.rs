//! Reads and writes files that only their owner may access. Other users cannot choose the file that
//! is read, and a crash leaves no partial file.

use super::problem::{FileAction, FileContent, IdentityProblem};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use zeroize::Zeroizing;

/// The bytes of a file, at most `bytes_max`; `None` if it does not exist.
///
/// The checks apply to the opened file, not to the path, which may be replaced meanwhile: it must
/// be a regular file of this user, without permissions for others.
pub(super) fn read(
    path: &Path,
    content: FileContent,
    bytes_max: u64,
) -> Result<Option<Zeroizing<Vec<u8>>>, IdentityProblem> {
    if let Some(directory) = path.parent() {
        judge_directory(directory)?;
    }
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(not_opened(path, FileAction::Read, &error)),
    };
    let facts = file.metadata().map_err(|error| refused(path, FileAction::Read, &error))?;
    judge(path, &facts, rustix::process::geteuid().as_raw())?;
    let too_long = || IdentityProblem::TooLong { path: path.to_owned(), content };
    if facts.len() > bytes_max {
        return Err(too_long());
    }
    // Allocated at full size, because a growing `Vec` would leave copies of secrets behind. One
    // byte more, because the file may grow while it is read.
    let mut bytes = Zeroizing::new(Vec::with_capacity(facts.len() as usize + 1));
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| refused(path, FileAction::Read, &error))?;
    match bytes.len() as u64 {
        0 => Err(IdentityProblem::Empty { path: path.to_owned(), content }),
        len if len > bytes_max => Err(too_long()),
        _ => Ok(Some(bytes)),
    }
}

/// Writes a file that must not exist yet. If several processes try at the same time, one succeeds;
/// the others get `AlreadyExists`, and the file is then complete.
pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = Temporary::write(path, bytes)?;
    // A hard link fails if the file exists; a rename would replace it.
    fs::hard_link(&temporary.path, path)?;
    drop(temporary);
    sync_dir(path)
}

/// Writes a file, replacing an existing one. After a crash the complete old or new one is there.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = Temporary::write(path, bytes)?;
    fs::rename(&temporary.path, path)?;
    sync_dir(path)
}

/// Removes temporary files that killed writers of `path` left behind. No other process may write
/// `path` meanwhile.
pub(super) fn sweep(path: &Path) -> io::Result<()> {
    sweep_if(path, |_| true)
}

/// Removes those of them that are so old that no writer uses them.
fn sweep_old(path: &Path) -> io::Result<()> {
    let is_old = |facts: &Metadata| {
        facts.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED)
    };
    sweep_if(path, is_old)
}

/// No write takes so long, not even on a disk that answers slowly.
const ABANDONED: Duration = Duration::from_secs(3600);

fn sweep_if(path: &Path, is_one: impl Fn(&Metadata) -> bool) -> io::Result<()> {
    let prefix = temporary_prefix(path)?;
    for entry in fs::read_dir(parent(path)?)? {
        let entry = entry?;
        let name = entry.file_name();
        if name
            .to_str()
            .is_some_and(|name| name.starts_with(&prefix) && name.ends_with(TEMPORARY_SUFFIX))
            && is_one(&entry.metadata()?)
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Opens a lock file, creating it if necessary.
pub(super) fn open_lock(path: &Path) -> Result<File, IdentityProblem> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    // Locks on a network file system need a file opened for writing.
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path);
    let file = opened.map_err(|error| not_opened(path, FileAction::Lock, &error))?;
    let facts = file.metadata().map_err(|error| refused(path, FileAction::Lock, &error))?;
    judge(path, &facts, rustix::process::geteuid().as_raw())?;
    Ok(file)
}

/// Waits until no other process holds the lock of the file at `path`. Its lock file is beside it.
/// Readers need no lock: a file is replaced as a whole. A caller that holds the lock must not ask
/// for it again.
pub(super) fn lock(path: &Path) -> Result<File, IdentityProblem> {
    let beside = path.with_extension("lock");
    let file = open_lock(&beside).map_err(|problem| match problem {
        // Where no lock file can be made, the file itself could not be written either.
        IdentityProblem::Refused { reason, .. } => {
            IdentityProblem::Refused { path: path.to_owned(), action: FileAction::Write, reason }
        }
        other => other,
    })?;
    file.lock().map_err(|error| refused(&beside, FileAction::Lock, &error))?;
    Ok(file)
}

/// The problem for an operation that the system refused.
pub(super) fn refused(path: &Path, action: FileAction, error: &io::Error) -> IdentityProblem {
    IdentityProblem::Refused { path: path.to_owned(), action, reason: error.kind() }
}

fn open(path: &Path) -> io::Result<File> {
    // NONBLOCK: opening a FIFO must not wait for its writer. std always sets CLOEXEC.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn not_opened(path: &Path, action: FileAction, error: &io::Error) -> IdentityProblem {
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    if is(Errno::LOOP) {
        IdentityProblem::Symlink { path: path.to_owned() }
    } else if [Errno::ISDIR, Errno::NXIO, Errno::NODEV, Errno::OPNOTSUPP].into_iter().any(is) {
        // A directory opened for writing, a socket, or a device without a driver.
        IdentityProblem::NotAFile { path: path.to_owned() }
    } else {
        refused(path, action, error)
    }
}

fn judge(path: &Path, facts: &Metadata, us: u32) -> Result<(), IdentityProblem> {
    let path = || path.to_owned();
    if !facts.is_file() {
        return Err(IdentityProblem::NotAFile { path: path() });
    }
    if facts.uid() != us {
        return Err(IdentityProblem::WrongOwner { path: path(), owner: facts.uid() });
    }
    let mode = facts.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityProblem::LoosePermissions { path: path(), mode });
    }
    Ok(())
}

/// Checks that no other user can replace or remove files in this directory, if it exists: it
/// belongs to this user or to root, and so does a symbolic link that leads to it, and no other user
/// may write to it.
pub(super) fn judge_directory(directory: &Path) -> Result<(), IdentityProblem> {
    let us = rustix::process::geteuid().as_raw();
    // An empty path is the working directory.
    let at = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    let facts = at.symlink_metadata().and_then(|link| Ok((link.uid(), fs::metadata(at)?)));
    let (link_owner, facts) = match facts {
        Ok(facts) => facts,
        // There is nothing to read, and a write creates it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(directory, FileAction::Read, &error)),
    };
    let foreign = [link_owner, facts.uid()].into_iter().find(|owner| ![us, ROOT].contains(owner));
    if let Some(owner) = foreign {
        return Err(IdentityProblem::WrongOwner { path: directory.to_owned(), owner });
    }
    let mode = facts.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(IdentityProblem::LooseDirectory { path: directory.to_owned(), mode });
    }
    Ok(())
}

/// The user id of root.
const ROOT: u32 = 0;

/// A complete, synced file beside its target; removed unless it was renamed.
struct Temporary {
    path: PathBuf,
}

impl Temporary {
    fn write(target: &Path, bytes: &[u8]) -> io::Result<Temporary> {
        // Only leftovers, so a failure does no harm.
        let _ = sweep_old(target);
        // Random, because processes that share a home over the network may have the same process
        // id.
        let number = getrandom::u64().map_err(io::Error::other)?;
        let name = format!("{}{number:016x}{TEMPORARY_SUFFIX}", temporary_prefix(target)?);
        let path = parent(target)?.join(name);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let temporary = Temporary { path };
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(temporary)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}

fn temporary_prefix(target: &Path) -> io::Result<String> {
    let name =
        target.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(format!(".{name}."))
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Makes the directory entry durable.
fn sync_dir(path: &Path) -> io::Result<()> {
    match File::open(parent(path)?)?.sync_all() {
        // Some network file systems cannot sync a directory; their servers do it themselves.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) =>
        {
            Ok(())
        }
        result => result,
    }
}

const TEMPORARY_SUFFIX: &str = ".tmp";

#[cfg(test)]
mod tests;
