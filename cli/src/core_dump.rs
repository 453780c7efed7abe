//! No core dumps: the keys of the cluster and of this node are in the memory of the process.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Forbids core dumps of this process. A failure is no reason not to run: the limits of the system
/// hold then.
pub fn forbid() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // Programs that the kernel pipes dumps to need not respect the limit.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}
