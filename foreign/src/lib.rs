//! Calls of potluck for programs in other languages: they have no executor, and Rust does not own
//! their buffers. The C interface and the Python module are made of it.
//!
//! Each method of [`SharedContext`] begins a call and returns a [`Call`]. By then the call has its
//! number in the lane, and has been polled once: its contribution has been read. A receive from any
//! rank takes its number when it has chosen a message, and a call with a length per rank reads its
//! contribution when all ranks have called it. The program waits
//! for the call, asks whether it has ended, or is told. A thread that waits polls the call itself;
//! calls that nobody waits for are polled by one thread, the [`Executor`].
//!
//! The buffers are [`Memory`]: a pointer, a length and a type. They stay the program's, which must
//! leave them alone and alive until the call has ended or its [`Call`] has been dropped. Dropping
//! gives the call up, as dropping a future does, and returns when nothing points at the memory any
//! more.

mod call;
mod collectives;
mod erased;
mod executor;
mod failure;
mod memory;
mod options;
mod process_local;
mod reply;
mod step;
mod typed;

pub use call::Call;
pub use collectives::SharedContext;
pub use erased::Erased;
pub use executor::Executor;
pub use failure::Failure;
pub use memory::Memory;
pub use options::{Options, SharedCodec};
pub use process_local::ProcessLocal;
pub use reply::Reply;
pub use step::SharedStep;
