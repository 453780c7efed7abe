//! The future of an all_reduce that owns its buffer.

use super::codec::Codec;
use super::pending_op::PendingOp;
use crate::collective::Input;
use crate::memory::{Element, Staging, target_of};
use crate::report::{Error, Result};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

/// An [`all_reduce_owned`](super::super::context::Context::all_reduce_owned) in flight.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when \
    it is dropped"]
pub struct AllReduceOwned<T: Element> {
    pub(crate) pending: PendingOp,
    /// Shared with the engine, which may read it.
    pub(crate) buffer: Arc<Vec<T>>,
    /// The end of the call, while a thread still reads from memory that is to be handed out and
    /// there is none for a copy of it.
    pub(crate) ended: Option<Result<Staging>>,
}

/// The error of a failed call, with the caller's buffer.
pub struct OwnedError<T> {
    /// The error.
    pub error: Error,
    /// The unchanged buffer.
    pub buffer: Vec<T>,
}

impl<T> From<OwnedError<T>> for Error {
    fn from(owned: OwnedError<T>) -> Error {
        owned.error
    }
}

impl<T> fmt::Debug for OwnedError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedError({:?}, {} elements)", self.error, self.buffer.len())
    }
}

impl AllReduceOwned<f32> {
    /// Encodes the data on the wire, see
    /// [`AllReduce::compress`](super::all_reduce::AllReduce::compress).
    pub fn compress(mut self, codec: &mut Codec) -> Self {
        self.pending.encoded_by(codec);
        self
    }
}

impl<T: Element + Unpin> Future for AllReduceOwned<T> {
    type Output = std::result::Result<Vec<T>, OwnedError<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let ended = match this.ended.take() {
            Some(ended) => ended,
            None => ready!(this.pending.poll_with(task, &Input::shared(&this.buffer))),
        };
        match ended {
            Ok(output) => match this.taken(output) {
                Ok(result) => return Poll::Ready(Ok(result)),
                Err(output) => this.ended = Some(Ok(output)),
            },
            Err(error) => match this.given_back() {
                Some(buffer) => return Poll::Ready(Err(OwnedError { error, buffer })),
                None => this.ended = Some(Err(error)),
            },
        }
        // The reading thread lets go of the memory when its frame is written or its link is over.
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T: Element> AllReduceOwned<T> {
    /// The result in memory whose pages are mapped already. If the engine's result is one block,
    /// that block is returned and the input's memory goes to the pool; otherwise the result is
    /// copied into the input's memory. If other threads still read from both, it is copied into new
    /// memory.
    ///
    /// # Errors
    /// The result, if there is no new memory.
    fn taken(&mut self, mut output: Staging) -> std::result::Result<Vec<T>, Staging> {
        let (mut own, shared) = match Arc::try_unwrap(std::mem::take(&mut self.buffer)) {
            Ok(own) => (Some(own), Arc::default()),
            Err(shared) => (None, shared),
        };
        if output.blocks.len() == 1
            && let Some(block) = output.blocks.pop()
        {
            match block.trade(own) {
                Ok(result) => return Ok(result),
                Err((block, back)) => {
                    own = back;
                    output.blocks.push(block);
                }
            }
        }
        let pool = self.pending.session.pool();
        match own.map_or_else(|| pool.elements(shared.len()), Ok) {
            Ok(mut memory) => {
                output.copy_to(target_of(&mut memory));
                Ok(memory)
            }
            Err(_) => {
                self.buffer = shared;
                Err(output)
            }
        }
    }

    /// The buffer as it was given, or a copy where an engine's thread still reads it. `None`, and
    /// the buffer stays, if there is no memory for a copy.
    fn given_back(&mut self) -> Option<Vec<T>> {
        match Arc::try_unwrap(std::mem::take(&mut self.buffer)) {
            Ok(buffer) => Some(buffer),
            Err(shared) => {
                let memory = self.pending.session.pool().elements(shared.len()).ok();
                let copy = memory.map(|mut copy: Vec<T>| {
                    copy.copy_from_slice(&shared);
                    copy
                });
                self.buffer = shared;
                copy
            }
        }
    }
}
