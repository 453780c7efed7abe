//! A limit on the address space of this process, so that there is no memory for a call.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A limit that ends when this is dropped.
pub struct Scarce {
    former: Rlimit,
}

impl Scarce {
    /// Limits the address space to its present size and this many bytes more.
    pub fn leaving(room: u64) -> Scarce {
        keep_room_for_small_things();
        let former = getrlimit(Resource::As);
        limit(Rlimit { current: Some(address_space() + room), ..former });
        Scarce { former }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        limit(Rlimit { ..self.former });
    }
}

/// Lets the allocator get memory from the system that small allocations of this thread find later.
/// A test of large ones must not depend on how much of it happens to be left, because a program
/// without memory for a small one ends.
fn keep_room_for_small_things() {
    // Below the size from which an allocation is a mapping of its own.
    const PIECE_BYTES: usize = 64 * 1024;
    const PIECES: usize = 32;
    let pieces: Vec<Vec<u8>> = (0..PIECES).map(|_| vec![1; PIECE_BYTES]).collect();
    drop(std::hint::black_box(pieces));
}

fn limit(limit: Rlimit) {
    // A limit that does not hold shows as calls that succeed.
    let _ = setrlimit(Resource::As, limit);
}

/// The size of this process's address space in bytes; 0 where there is no `/proc`.
fn address_space() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}
