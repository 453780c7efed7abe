//! The API without `async`, for programs that have no async runtime and need none.
//!
//! [`Cluster`] has the methods of its async namesake, which block here; a
//! [`Builder`](crate::Builder) is passed to [`Cluster::join_with`]. [`Context`] has all methods of
//! its namesake. The calls and their options are the same; end them with [`Wait::wait`] where async
//! code has `.await`.
//!
//! ```
//! use potluck::blocking::{Cluster, Wait};
//! use potluck::{Builder, Config};
//!
//! fn member() -> potluck::Result<Vec<f32>> {
//!     // Nodes of one process, for a test; `Cluster::join()` joins the group on the local network.
//!     let cluster = Cluster::join_with(Builder::new(Config::local()).open_lan("blocking"))?;
//!     let mut ctx = cluster.context()?; // waits until there are two
//!     let mut numbers = vec![1.0, 2.0, ctx.rank().index() as f32];
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
//! A waiting thread is parked until one of potluck's threads wakes it. A call begins when it is
//! waited for, a call of a [step](crate::Context::step) when it is made. So the calls of one thread
//! run one after the other; use one [lane](Context::lane) per thread.
//!
//! Inside an async runtime waiting works too, but blocks the calling thread: no other task of that
//! thread runs meanwhile. If another member is a task of the same thread, it can never make its
//! call, and the wait never ends. Use `.await` there.

mod cluster;
mod context;
mod wait;

pub use cluster::{Cluster, EventStream, StatusStream, scan};
pub use context::Context;
pub use wait::Wait;
