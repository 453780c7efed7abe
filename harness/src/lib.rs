//! What the tests of potluck share.
//!
//! - [`Suite`]: tests that say what they [`Need`]. A test whose need is not met here is *skipped with a
//!   reason*, never passed.
//! - [`Lab`]: a small network of this machine's own, brought down when the guard drops.
//! - [`Child`]: a program under test, ended when the guard drops, whose output is waited for by condition.

pub mod lab;
pub mod need;
pub mod process;
pub mod suite;

pub use lab::{Lab, Way};
pub use need::Need;
pub use process::Child;
pub use suite::Suite;
