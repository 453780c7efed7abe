//! In place of shared memory, on systems where this library shares none. It cannot be made.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The name of shared memory, for the process that is to open it.
pub type SharedName = [u8; 16];

/// No value of it exists.
#[derive(Debug)]
pub enum SharedMemory {}

impl SharedMemory {
    /// # Errors
    /// Always `Unsupported`.
    pub fn make(_: usize) -> io::Result<SharedMemory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Errors
    /// Always `Unsupported`.
    pub fn open(_: &SharedName, _: usize) -> io::Result<SharedMemory> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Cannot be called.
    pub fn name(&self) -> Option<&SharedName> {
        match *self {}
    }

    /// Cannot be called.
    pub fn word(&self, _: usize) -> &AtomicU32 {
        match *self {}
    }

    /// Cannot be called.
    ///
    /// # Errors
    /// None.
    pub fn sleep_while(&self, _: usize, _: u32, _: Duration) -> io::Result<()> {
        match *self {}
    }

    /// Cannot be called.
    pub fn wake(&self, _: usize) {
        match *self {}
    }

    /// Cannot be called.
    pub fn write(&self, _: usize, _: &[u8]) {
        match *self {}
    }

    /// Cannot be called.
    pub fn read(&self, _: usize, _: &mut [u8]) {
        match *self {}
    }
}
