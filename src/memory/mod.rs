//! Elements, and the memory that calls work on.
//!
//! All memory whose size depends on a call comes from a [`Pool`], or from [`zeroed`] and
//! [`listed`], so that its lack is an error of that call. A [`ResultBuffer`] is a result buffer
//! whose parts several threads write.

mod block;
mod dtype;
mod element;
mod out_of_memory;
mod pool;
mod result_buffer;
mod staging;

pub use block::Block;
pub use dtype::DType;
pub use element::{
    Element, Float, Target, bytes_of, bytes_of_mut, elements_of, elements_of_mut, target_of,
};
pub use out_of_memory::{OutOfMemory, listed, zeroed};
pub use pool::Pool;
pub use result_buffer::{PartWriter, ResultBuffer, WrittenPart};
pub use staging::Staging;
