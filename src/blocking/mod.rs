//! Layer: Face.
//!
//! The same without `async`: for programs that have no runtime and want none.
//!
//! [`Cluster`] and [`Context`] have the methods of their namesakes, and wait in them. The calls of
//! a Context are the same ones, with the same choices; [`Wait::wait`] at their end stands where
//! `.await` would.
//!
//! ```
//! use potluck::blocking::{Cluster, Wait};
//! use potluck::{Builder, Config};
//!
//! fn member() -> potluck::Result<Vec<f32>> {
//!     // Nodes of one process, to try it out; `Cluster::join()` joins the group of this machine's network.
//!     let cluster = Cluster::join_with(Builder::new(Config::local()).open_lan("blocking"))?;
//!     let mut ctx = cluster.context()?; // waits until there are two
//!     let mut numbers = vec![1.0, 2.0, ctx.rank() as f32];
//!     ctx.all_reduce(&mut numbers).mean().wait()?;
//!     Ok(numbers)
//! }
//!
//! let members = [(); 2].map(|()| std::thread::spawn(member));
//! for member in members {
//!     assert_eq!(member.join().unwrap()?, [1.0, 2.0, 0.5]);
//! }
//! # Ok::<(), potluck::Error>(())
//! ```
//!
//! # Threads
//!
//! Who waits sleeps: the thread is parked until one of potluck's own threads has news for it. A
//! call begins when it is waited for, so several calls of one thread run one after the other; take
//! a [lane](Context::lane) for each of several threads.
//!
//! Inside an async runtime it works too, and holds up the thread it is called on: neither that task
//! nor others of that thread go on meanwhile. A member that is a task of the same thread can then
//! never call, and the wait is without end. There `.await` is the better choice.

mod cluster;
mod context;
mod wait;

pub use cluster::{Cluster, EventStream, StatusStream, look_around};
pub use context::Context;
pub use wait::Wait;
