//! The common parts of potluck's tests.
//!
//! - [`Suite`]: tests that declare each [`Need`]. A test whose need is not met on this machine is
//!   *skipped with a reason*, never passed.
//! - [`Lab`]: a small simulated network, removed when the guard is dropped.
//! - [`Child`]: a program under test, killed when the guard is dropped. Tests wait for conditions
//!   on its output, not for times.
//! - [`Peer`]: a potluck node in its own process; a [`Group`] of them on one network. Their program
//!   is the package `potluck-peer` in `harness/peer`; [`program`] finds it.
//! - [`outcome`]: checks on the combined answers of several nodes to one call.
//! - [`Flow`]: a TCP connection of a machine; [`Halt`]: a thread that is stopped alone.
//! - [`history`]: logs of nodes, and the claims that must hold of them.
//! - [`Chance`]: reproducible pseudo-randomness.
//! - [`Lag`]: the scheduling delay of this machine.
//! - [`Resources`]: the threads, descriptors and memory of this process.
//! - [`Scratch`]: a temporary directory for one test.

pub mod chance;
pub mod engine;
pub mod flow;
pub mod group;
pub mod halt;
pub mod history;
pub mod lab;
pub mod lag;
pub mod need;
pub mod outcome;
pub mod peer;
pub mod process;
pub mod program;
pub mod resources;
pub mod scratch;
mod story;
pub mod suite;
mod turns;

pub use chance::Chance;
pub use flow::Flow;
pub use group::Group;
pub use halt::Halt;
pub use lab::{Armed, Lab};
pub use lag::Lag;
pub use need::Need;
pub use peer::Peer;
pub use process::Child;
pub use resources::Resources;
pub use scratch::Scratch;
pub use suite::Suite;
