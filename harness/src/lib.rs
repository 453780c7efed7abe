//! What the tests of potluck share.
//!
//! - [`Suite`]: tests that say what they [`Need`]. A test whose need is not met here is *skipped
//!   with a reason*, never passed.
//! - [`Lab`]: a small network of this machine's own, brought down when the guard drops.
//! - [`Child`]: a program under test, ended when the guard drops, whose output is waited for by
//!   condition.
//! - [`Peer`]: a potluck node in a process of its own; a [`Group`] of them on one network.
//! - [`outcome`]: what the answers of several nodes to one call may be together.
//! - [`Chance`]: what is left to chance, and can be had again.
//! - [`Lag`]: how late this machine is.
//! - [`Resources`]: what this process holds: threads, descriptors, memory.
//! - [`Scratch`]: a folder for one test.

pub mod chance;
pub mod engine;
pub mod group;
pub mod lab;
pub mod lag;
pub mod need;
pub mod outcome;
pub mod peer;
pub mod process;
pub mod resources;
pub mod scratch;
mod story;
pub mod suite;
mod turns;

pub use chance::Chance;
pub use group::Group;
pub use lab::{Armed, Lab, Way};
pub use lag::Lag;
pub use need::Need;
pub use peer::Peer;
pub use process::Child;
pub use resources::Resources;
pub use scratch::Scratch;
pub use suite::Suite;
