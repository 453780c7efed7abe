//! Memory that two processes of one user share.
//!
//! It is a file in `/dev/shm` that only this user may open, under a name that nobody can guess. Its
//! pages are reserved when it is made, so that a write never fails for lack of memory. The process
//! that opens it removes its name.

use super::copying::piece_bytes;
use memmap2::MmapRaw;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::thread::futex;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub(super) const FOLDER: &str = "/dev/shm";

/// The name of shared memory, for the process that is to open it.
pub type SharedName = [u8; 16];

/// Shared memory, of which the other process may change every byte at any time. So there are no
/// references into it, only atomic words and copies.
#[derive(Debug)]
pub struct SharedMemory {
    map: MmapRaw,
    /// As long as the name has not been removed by this process.
    name: Option<SharedName>,
}

impl SharedMemory {
    /// Makes `bytes` bytes of zeros, to be opened once by another process of this user.
    ///
    /// # Errors
    /// Those of the system, such as too little memory.
    pub fn make(bytes: usize) -> io::Result<SharedMemory> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path_of(&name))?;
        let made = SharedMemory::of(&file, bytes);
        // Without an owner the name would stay.
        made.map(|map| SharedMemory { map, name: Some(name) })
            .inspect_err(|_| drop(std::fs::remove_file(path_of(&name))))
    }

    fn of(file: &File, bytes: usize) -> io::Result<MmapRaw> {
        fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
        MmapRaw::map_raw(file)
    }

    /// Opens memory of this size that another process has made, and removes its name.
    ///
    /// # Errors
    /// `PermissionDenied` if others may open it, `InvalidData` if its size is another one, and
    /// those of the system.
    pub fn open(name: &SharedName, bytes: usize) -> io::Result<SharedMemory> {
        let path = path_of(name);
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(&path)?;
        let about = file.metadata()?;
        let is_own = about.uid() == rustix::process::geteuid().as_raw();
        if !is_own || about.mode() & 0o077 != 0 || !about.is_file() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if about.len() != bytes as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        std::fs::remove_file(&path)?;
        Ok(SharedMemory { map: MmapRaw::map_raw(&file)?, name: None })
    }

    /// Its name; `None` in the process that has opened it.
    pub fn name(&self) -> Option<&SharedName> {
        self.name.as_ref()
    }

    /// The word at a byte offset that is a multiple of four.
    ///
    /// # Panics
    /// If it is not, or outside of the memory.
    #[allow(unsafe_code, reason = "the memory of another process is no Rust object")]
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len(), "a word inside of the memory");
        // SAFETY: the map begins at a page and lives as long as `self`; the assertion keeps the
        // word aligned and inside. All accesses to these bytes are atomic, here and in the other
        // process.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    /// Sleeps while the word at `at` is `seen`, until [`wake`](SharedMemory::wake) of either
    /// process or, at most, for `limit`. It may also return for no reason.
    ///
    /// # Errors
    /// `TimedOut` after `limit`.
    ///
    /// # Panics
    /// As [`word`](SharedMemory::word).
    pub fn sleep_while(&self, at: usize, seen: u32, limit: Duration) -> io::Result<()> {
        let limit = rustix::time::Timespec::try_from(limit).ok();
        match futex::wait(self.word(at), futex::Flags::empty(), seen, limit.as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes the thread, of either process, that sleeps at the word at `at`.
    ///
    /// # Panics
    /// As [`word`](SharedMemory::word).
    pub fn wake(&self, at: usize) {
        // It cannot fail with a valid address.
        let _ = futex::wake(self.word(at), futex::Flags::empty(), 1);
    }

    /// Copies bytes into the memory.
    ///
    /// # Panics
    /// If they do not fit.
    #[allow(unsafe_code, reason = "the memory of another process is no Rust object")]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.map.len() && bytes.len() <= self.map.len() - at, "inside of the memory");
        // SAFETY: the range is inside of the map, and `bytes` is not: nothing refers to the map. If
        // the other process breaks the protocol and writes there too, the bytes are its own fault,
        // and no reference to them exists.
        unsafe {
            let (to, from) = (self.map.as_mut_ptr().add(at), bytes.as_ptr());
            for piece in pieces(bytes.len(), to, from) {
                let (to, from) = (to.add(piece.start), from.add(piece.start));
                to.copy_from_nonoverlapping(from, piece.len());
            }
        }
    }

    /// Copies bytes out of the memory.
    ///
    /// # Panics
    /// If there are not so many.
    #[allow(unsafe_code, reason = "the memory of another process is no Rust object")]
    pub fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at <= self.map.len() && into.len() <= self.map.len() - at, "inside of the memory");
        // SAFETY: as in `write`.
        unsafe {
            let (to, from) = (into.as_mut_ptr(), self.map.as_ptr().add(at));
            for piece in pieces(into.len(), to, from) {
                let (to, from) = (to.add(piece.start), from.add(piece.start));
                to.copy_from_nonoverlapping(from, piece.len());
            }
        }
    }
}

/// The parts in which so many bytes are copied.
fn pieces(len: usize, to: *const u8, from: *const u8) -> impl Iterator<Item = Range<usize>> {
    let each = piece_bytes(to, from);
    (0..len).step_by(each).map(move |start| start..len.min(start.saturating_add(each)))
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // Usually the other process has removed it.
        let _ = self.name.map(|name| std::fs::remove_file(path_of(&name)));
    }
}

/// Whether memory can be shared here. Removes the remains of processes of this user that were
/// killed while they made some.
///
/// # Errors
/// Those of the system.
pub(super) fn probe() -> io::Result<()> {
    let made = SharedMemory::make(4096)?;
    let name = made.name().copied().unwrap_or_default();
    let now = std::fs::metadata(path_of(&name))?.mtime();
    drop(SharedMemory::open(&name, 4096)?);
    for entry in std::fs::read_dir(FOLDER)?.filter_map(Result::ok) {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_old = |about: std::fs::Metadata| now.saturating_sub(about.mtime()) > LEFT_AFTER_S;
        if is_ours && entry.metadata().is_ok_and(is_old) {
            // Another user's cannot be removed.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn path_of(name: &SharedName) -> PathBuf {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    PathBuf::from(FOLDER).join(format!("{PREFIX}{hex}"))
}

const PREFIX: &str = "potluck-";
/// A name that is not used within seconds is never used.
const LEFT_AFTER_S: i64 = 60;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_writes_the_other_reads() {
        let made = SharedMemory::make(8192).expect("memory");
        let name = *made.name().expect("a name");
        assert_eq!(std::fs::metadata(path_of(&name)).expect("a file").mode() & 0o777, 0o600);
        let opened = SharedMemory::open(&name, 8192).expect("the same memory");
        assert!(!path_of(&name).exists() && opened.name().is_none());
        made.write(4096, b"hello");
        made.word(8).store(7, Ordering::Release);
        let mut read = [0; 5];
        opened.read(4096, &mut read);
        assert_eq!((&read, opened.word(8).load(Ordering::Acquire)), (b"hello", 7));
    }

    #[test]
    fn nothing_else_is_opened() {
        let name = |made: &SharedMemory| *made.name().expect("a name");
        let made = SharedMemory::make(4096).expect("memory");
        let error = SharedMemory::open(&name(&made), 8192).map(drop).expect_err("another size");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let made = SharedMemory::make(4096).expect("memory");
        let path = path_of(&name(&made));
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("own file");
        let error = SharedMemory::open(&name(&made), 4096).map(drop).expect_err("open to others");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let error = SharedMemory::open(&[9; 16], 4096).map(drop).expect_err("no such memory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn memory_that_nobody_opens_leaves_no_name() {
        let made = SharedMemory::make(4096).expect("memory");
        let path = path_of(made.name().expect("a name"));
        assert!(path.exists());
        drop(made);
        assert!(!path.exists());
    }
}
