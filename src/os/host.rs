//! The host of a process, as far as its processes can share memory.

use crate::wire::{Decode, Encode, Malformed, Reader};
use std::fmt;

/// Equal for two processes that can share memory: they run on one kernel, as one user, and see the
/// same network, users and shared memory. A container with its own network is a host of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostId(pub(crate) [u8; 16]);

/// By hand: zeros for none, so that all introductions are equally long.
impl Encode for Option<HostId> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.map_or([0; 16], |host| host.0));
    }
}

impl Decode for Option<HostId> {
    fn decode(r: &mut Reader<'_>) -> Result<Option<HostId>, Malformed> {
        Ok(Some(HostId(r.array()?)).filter(|host| host.0 != [0; 16]))
    }
}

impl HostId {
    /// The host of this process; `None` where processes share no memory.
    #[cfg(target_os = "linux")]
    pub fn of_this_process() -> Option<HostId> {
        use sha2::{Digest, Sha256};
        use std::os::unix::fs::MetadataExt;

        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        let inode = |path| Some(std::fs::metadata(path).ok()?.ino());
        let spaces = [inode("/proc/self/ns/net")?, inode("/proc/self/ns/user")?];
        let memory = std::fs::metadata(super::shared_memory::FOLDER).ok()?.dev();
        let mut hash = Sha256::new_with_prefix(b"potluck/1/host");
        hash.update(boot);
        for number in spaces.into_iter().chain([memory]) {
            hash.update(number.to_le_bytes());
        }
        hash.update(rustix::process::geteuid().as_raw().to_le_bytes());
        super::shared_memory::probe().ok()?;
        hash.finalize().first_chunk().copied().map(HostId)
    }

    /// The host of this process with all others of this machine that have the same name for it,
    /// whatever network they see: for tests of shared memory in which each process has its own.
    #[cfg(potluck_mutants)]
    pub fn named(name: &std::ffi::OsStr) -> Option<HostId> {
        use sha2::{Digest, Sha256};
        use std::os::unix::ffi::OsStrExt;

        HostId::of_this_process()?;
        Sha256::digest(name.as_bytes()).first_chunk().copied().map(HostId)
    }

    /// The host of this process; `None` where processes share no memory.
    #[cfg(not(target_os = "linux"))]
    pub fn of_this_process() -> Option<HostId> {
        None
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostId({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}
