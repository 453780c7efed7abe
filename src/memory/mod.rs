//! Elements, and the memory that calls work on.
//!
//! All memory whose size depends on a call comes from a [`Pool`], so that its lack is an error of
//! that call. A [`Canvas`] is a result buffer whose parts several threads write.

mod block;
mod canvas;
mod copying;
mod dtype;
mod element;
mod out_of_memory;
mod pool;
mod staging;

pub use block::Block;
pub use canvas::{Canvas, Claim, Piece};
pub use copying::copy;
pub use dtype::DType;
pub use element::{Element, bytes_of, bytes_of_mut, elements_of, elements_of_mut};
pub use out_of_memory::{OutOfMemory, listed, zeroed};
pub use pool::Pool;
pub use staging::Staging;
