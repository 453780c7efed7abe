//! A stream of bytes from one process to another on the same host, through memory that both see.
//!
//! The memory is a ring of bytes with two counters: the bytes written so far and the bytes read so
//! far, both modulo 2^32. The writer copies bytes in and raises the first one, the reader copies
//! bytes out and raises the second one. A side that has to wait sets a flag and sleeps until it is
//! cleared (futex(2)). The other side clears the flag when it has raised its counter, and makes the
//! system call that wakes only if the flag was set.
//!
//! ```text
//!            read                 written
//!              v                     v
//!   +----------+=====================+-----------+
//!   |   free   |  bytes on their way |   free    |
//!   +----------+=====================+-----------+
//! ```
//!
//! The other process may write anything at any time. A counter that cannot be is an error of the
//! link; no reference into the memory exists.

use crate::os::{SharedMemory, SharedName, has_spare_cores};
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The ring.
#[derive(Debug)]
pub struct SharedRing(SharedMemory);

/// One of its two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that writes.
    Writer,
    /// The side that reads.
    Reader,
}

/// The conditions that end a wait besides progress.
pub trait Liveness {
    /// Whether this process still uses the link.
    ///
    /// # Errors
    /// If it has ended the link.
    fn check(&self) -> io::Result<()>;

    /// Asks the system about the other process.
    ///
    /// # Errors
    /// If it has ended.
    fn look(&self) -> io::Result<()>;
}

impl SharedRing {
    /// A ring that another process opens by its name.
    ///
    /// # Errors
    /// Those of the system, such as too little shared memory.
    pub fn make() -> io::Result<SharedRing> {
        SharedMemory::make(BYTES).map(SharedRing)
    }

    /// The ring that another process has made.
    ///
    /// # Errors
    /// See [`SharedMemory::open`].
    pub fn open(name: &SharedName) -> io::Result<SharedRing> {
        SharedMemory::open(name, BYTES).map(SharedRing)
    }

    /// Its name, on the side that made it.
    pub fn name(&self) -> Option<&SharedName> {
        self.0.name()
    }

    /// Waits for room, then writes as much of these parts as fits, at most [`PIECE_BYTES`]: the
    /// reader takes one piece while the next one is written. Returns the number of bytes, 0 only if
    /// the parts are empty.
    ///
    /// # Errors
    /// `NotConnected` if the reader has ended, `InvalidData` if it broke the protocol, and those of
    /// `link`.
    pub fn write(&self, parts: &[IoSlice<'_>], link: &impl Liveness) -> io::Result<usize> {
        let written = self.counter(Side::Writer).load(Ordering::Relaxed);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let len = len.min(PIECE_BYTES);
        let room = loop {
            if self.has_ended(Side::Reader) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let read = self.counter(Side::Reader).load(Ordering::Acquire);
            let room = ROOM.checked_sub(written.wrapping_sub(read));
            match room.ok_or(io::ErrorKind::InvalidData)? as usize {
                0 if len > 0 => self.wait_for(Side::Reader, read, link)?,
                room => break room,
            }
        };
        let (len, mut copied) = (len.min(room), 0);
        for part in parts {
            let part = &part[..part.len().min(len - copied)];
            let at = (written as usize + copied) % ROOM as usize;
            let (first, second) = part.split_at(part.len().min(ROOM as usize - at));
            self.0.write(DATA + at, first);
            self.0.write(DATA, second);
            copied += part.len();
        }
        self.move_on(Side::Writer, written.wrapping_add(len as u32));
        Ok(len)
    }

    /// Waits for bytes, then fills the parts with as many as there are. Returns their number; 0 if
    /// the writer has ended and everything was read.
    ///
    /// # Errors
    /// `InvalidData` if the writer broke the protocol, and those of `link`.
    pub fn read(&self, into: &mut [IoSliceMut<'_>], link: &impl Liveness) -> io::Result<usize> {
        let read = self.counter(Side::Reader).load(Ordering::Relaxed);
        let here = loop {
            let has_ended = self.has_ended(Side::Writer);
            let written = self.counter(Side::Writer).load(Ordering::Acquire);
            match written.wrapping_sub(read) {
                0 if has_ended => return Ok(0),
                0 => self.wait_for(Side::Writer, written, link)?,
                here if here > ROOM => return Err(io::ErrorKind::InvalidData.into()),
                here => break here as usize,
            }
        };
        let mut taken = 0;
        for part in into {
            let len = part.len().min(here - taken);
            let at = (read as usize + taken) % ROOM as usize;
            let (first, second) = part[..len].split_at_mut(len.min(ROOM as usize - at));
            self.0.read(DATA + at, first);
            self.0.read(DATA, second);
            taken += len;
        }
        self.move_on(Side::Reader, read.wrapping_add(taken as u32));
        Ok(taken)
    }

    /// This side writes or reads nothing more. The other side is woken.
    pub fn end(&self, side: Side) {
        self.0.word(ended(side)).store(1, Ordering::SeqCst);
        self.wake(Side::Writer);
        self.wake(Side::Reader);
    }

    fn has_ended(&self, side: Side) -> bool {
        self.0.word(ended(side)).load(Ordering::Acquire) != 0
    }

    /// The counter that this side raises.
    fn counter(&self, side: Side) -> &AtomicU32 {
        self.0.word(counter(side))
    }

    /// Whether the other side sleeps until this side's counter changes.
    fn sleeper(&self, side: Side) -> &AtomicU32 {
        self.0.word(sleeper(side))
    }

    fn move_on(&self, side: Side, to: u32) {
        // Sequentially consistent, as is the sleeper's second look: either it sees the new counter,
        // or this side sees that it sleeps.
        self.counter(side).store(to, Ordering::SeqCst);
        if self.sleeper(side).load(Ordering::SeqCst) != 0 {
            self.wake(side);
        }
    }

    /// Wakes the side that waits for this side's counter. The flag that is cleared may be that of a
    /// later wait already, which then ends, too, and looks again.
    fn wake(&self, side: Side) {
        self.sleeper(side).store(0, Ordering::SeqCst);
        self.0.wake(sleeper(side));
    }

    /// Waits until `side` has moved on from `seen`, or has ended.
    fn wait_for(&self, side: Side, seen: u32, link: &impl Liveness) -> io::Result<()> {
        link.check()?;
        for _ in 0..spins() {
            if self.counter(side).load(Ordering::Acquire) != seen {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        self.sleeper(side).store(1, Ordering::SeqCst);
        if self.counter(side).load(Ordering::SeqCst) == seen && !self.has_ended(side) {
            // The limit is for a process that was killed: nobody wakes this one.
            match self.0.sleep_while(sleeper(side), 1, LOOKS_AFTER) {
                Ok(()) => {}
                Err(error) if error.kind() != io::ErrorKind::TimedOut => return Err(error),
                Err(_) if self.has_ended(side) => {}
                Err(_) => link.look()?,
            }
        }
        self.sleeper(side).store(0, Ordering::SeqCst);
        link.check()
    }
}

fn counter(side: Side) -> usize {
    if side == Side::Writer { WRITTEN } else { READ }
}

/// The flag of the other side's sleep.
fn sleeper(side: Side) -> usize {
    if side == Side::Writer { READER_SLEEPS } else { WRITER_SLEEPS }
}

fn ended(side: Side) -> usize {
    if side == Side::Writer { WRITER_ENDED } else { READER_ENDED }
}

/// The number of looks before a side sleeps: some 20 microseconds, if there are cores to spare.
fn spins() -> u32 {
    if has_spare_cores() { 1000 } else { 0 }
}

/// The bytes on their way: few enough for the processor's cache.
const ROOM: u32 = 1 << 20;
/// One copy. The reader copies one piece while the writer copies the next one.
pub const PIECE_BYTES: usize = 64 * 1024;
/// Fields that are written often are in cache lines of their own.
const WRITTEN: usize = 0;
const READER_SLEEPS: usize = 128;
const READ: usize = 256;
const WRITER_SLEEPS: usize = 384;
const WRITER_ENDED: usize = 512;
const READER_ENDED: usize = 640;
const DATA: usize = 4096;
const BYTES: usize = DATA + ROOM as usize;
/// How long a killed process stays unnoticed.
const LOOKS_AFTER: Duration = Duration::from_millis(50);

#[cfg(all(test, target_os = "linux"))]
mod tests;
