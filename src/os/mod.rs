//! Access to the operating system: interfaces, sleep, the disk, locks and threads.

mod address;
mod copying;
mod cores;
mod disk;
mod float_environment;
mod host;
mod interface;
mod interface_filter;
mod interface_set;
pub mod interfaces;
mod locks;
#[cfg(not(target_os = "linux"))]
mod no_shared_memory;
mod probe;
mod processor;
mod race;
mod route;
#[cfg(target_os = "linux")]
mod shared_memory;
mod suspend;
pub(crate) mod thread;
mod wall_clock;

pub use address::AddressPolicy;
pub(crate) use address::{is_dialable, is_link_local};
pub use copying::{copy, copy_of};
pub use cores::has_spare_cores;
pub use disk::{Disk, Files, Store};
pub use float_environment::in_default_environment;
#[cfg(test)]
pub(crate) use float_environment::under_every_control_word;
pub use host::HostId;
pub use interface::{Interface, InterfaceAddress, InterfaceKind};
pub use interface_filter::InterfaceFilter;
pub use interface_set::{FixedInterfaces, InterfaceSet, InterfaceSource};
pub(crate) use interfaces::address_of;
pub use interfaces::inventory;
#[cfg(all(test, potluck_threads))]
pub(crate) use locks::model;
pub(crate) use locks::{
    Access, AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, RwLock, lock,
};
#[cfg(not(target_os = "linux"))]
pub use no_shared_memory::{SharedMemory, SharedName};
pub use probe::probe_folder;
pub use processor::has_aes;
pub(crate) use race::Race;
pub use route::{TakenRoute, taken_routes};
#[cfg(target_os = "linux")]
pub use shared_memory::{SharedMemory, SharedName};
pub use suspend::{MachineSleep, Sleep};
pub(crate) use thread::ThreadId;
pub(crate) use wall_clock::wall_clock;
