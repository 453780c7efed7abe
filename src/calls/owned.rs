//! Layer: Face.
//!
//! An all_reduce of a buffer that is handed over, and comes back.

use super::flight::Flight;
use crate::collective::{Element, Kind, ReduceOp, bytes_of, bytes_of_mut};
use crate::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

/// An [`all_reduce_owned`](crate::Context::all_reduce_owned) under way.
#[must_use = "an all_reduce does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct AllReduceOwned<T: Element> {
    pub(crate) flight: Flight,
    pub(crate) buffer: Option<Vec<T>>,
}

/// A failed call with the buffer it was given.
pub struct Owned<T> {
    /// What went wrong.
    pub error: Error,
    /// The buffer, untouched.
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

impl<T: Element> AllReduceOwned<T> {
    /// How contributions become one value. Default: the sum. A mean of integers is [`Error::Rejected`].
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.flight.call.kind = Kind::AllReduce(op);
        self
    }

    /// Gives up for all members when `after` has passed since the first poll.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.flight.deadline = Some(after);
        self
    }
}

impl<T: Element + Unpin> Future for AllReduceOwned<T> {
    type Output = std::result::Result<Vec<T>, Owned<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = ready!(this.flight.poll(task, this.buffer.as_deref().map(bytes_of)));
        let mut buffer = this.buffer.take().unwrap_or_default();
        Poll::Ready(match result {
            Ok(output) => {
                // Into memory whose pages are there already; nobody has read a result out of it before.
                output.copy_to(bytes_of_mut(&mut buffer));
                Ok(buffer)
            }
            Err(error) => Err(Owned { error, buffer }),
        })
    }
}
