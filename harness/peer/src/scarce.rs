//! A limit on the address space of this process, so that there is no memory for a call.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A limit that ends when this is dropped.
pub struct Scarce {
    former: Rlimit,
}

impl Scarce {
    /// Limits the address space to what it is now, and this many bytes more.
    pub fn leaving(room: u64) -> Scarce {
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
