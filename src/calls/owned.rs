//! Layer: Face.
//!
//! The future of an all_reduce that owns its buffer.

use super::codec::Codec;
use super::flight::Flight;
use crate::collective::{Element, Input, Staging, bytes_of, bytes_of_mut};
use crate::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

/// An [`all_reduce_owned`](crate::Context::all_reduce_owned) in flight.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct AllReduceOwned<T: Element> {
    pub(crate) flight: Flight,
    /// Shared with the engine, which may read it.
    pub(crate) buffer: Arc<Vec<T>>,
}

/// The error of a failed call, with the caller's buffer.
pub struct Owned<T> {
    /// The error.
    pub error: Error,
    /// The unchanged buffer.
    pub buffer: Vec<T>,
}

impl<T> From<Owned<T>> for Error {
    fn from(owned: Owned<T>) -> Error {
        owned.error
    }
}

impl<T> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:?}, {} elements)", self.error, self.buffer.len())
    }
}

impl AllReduceOwned<f32> {
    /// Encodes the data on the wire, see [`AllReduce::compress`](crate::AllReduce::compress).
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.flight.encoded_by(codec);
        self
    }
}

impl<T: Element + Unpin> Future for AllReduceOwned<T> {
    type Output = std::result::Result<Vec<T>, Owned<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = ready!(this.flight.poll_with(task, &contribution(&this.buffer)));
        let buffer = std::mem::take(&mut this.buffer);
        Poll::Ready(match result {
            Ok(output) => Ok(this.taken(output, buffer)),
            // The engine of an aborted operation may still hold a reference.
            Err(error) => Err(Owned {
                error,
                buffer: Arc::try_unwrap(buffer).unwrap_or_else(|shared| shared.to_vec()),
            }),
        })
    }
}

impl<T: Element> AllReduceOwned<T> {
    /// The result in memory whose pages are mapped already. If the engine's result is one block,
    /// that block is returned and the input's memory goes to the pool; otherwise the result is
    /// copied into the input's memory.
    fn taken(&self, mut output: Staging, buffer: Arc<Vec<T>>) -> Vec<T> {
        let length = buffer.len();
        let mut spare = Arc::try_unwrap(buffer).ok();
        if output.blocks.len() == 1
            && let Some(block) = output.blocks.pop()
        {
            match block.trade(spare) {
                Ok(result) => return result,
                Err((block, back)) => {
                    spare = back;
                    output.blocks.push(block);
                }
            }
        }
        let mut buffer = spare.unwrap_or_else(|| vec![T::ZERO; length]);
        output.copy_to(bytes_of_mut(&mut buffer));
        buffer
    }
}

/// Small buffers are copied: that is faster than sharing them and preparing the trade.
fn contribution<T: Element>(buffer: &Arc<Vec<T>>) -> Input<'_> {
    if size_of_val(buffer.as_slice()) <= COPIED_BYTES_MAX {
        Input::Borrowed(bytes_of(buffer))
    } else {
        Input::lent(buffer)
    }
}

/// Two copies of this size take one or two microseconds.
const COPIED_BYTES_MAX: usize = 16 * 1024;
