//! Layer: Face.
//!
//! The reductions whose result is not everybody's: reduce, reduce_scatter.

use super::flight::{Flight, elements};
use crate::collective::{Element, Kind, ReduceOp, bytes_of, bytes_of_mut};
use crate::error::Result;
use crate::view::Rank;
use std::pin::Pin;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

/// A [`reduce`](crate::Context::reduce) under way.
///
/// Dropped before it is done, it is aborted for all members; forgotten, it goes on without touching the buffer.
#[must_use = "a reduce does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Reduce<'buf, T: Element> {
    pub(crate) flight: Flight,
    pub(crate) buffer: &'buf mut [T],
    pub(crate) root: Rank,
    pub(crate) is_root: bool,
}

/// A [`reduce_scatter`](crate::Context::reduce_scatter) under way.
///
/// Dropped before it is done, it is aborted for all members.
#[must_use = "a reduce_scatter does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct ReduceScatter<'buf, T: Element> {
    pub(crate) flight: Flight,
    pub(crate) buffer: &'buf [T],
}

macro_rules! choices {
    ($call:ident) => {
        impl<T: Element> $call<'_, T> {
            /// The sum divided by the number of members. Of floats only: of integers it is
            /// [`Error::Rejected`](crate::Error::Rejected).
            pub fn mean(self) -> Self {
                self.op(ReduceOp::Mean)
            }

            /// The least value.
            pub fn min(self) -> Self {
                self.op(ReduceOp::Min)
            }

            /// The greatest value.
            pub fn max(self) -> Self {
                self.op(ReduceOp::Max)
            }

            /// The product.
            pub fn product(self) -> Self {
                self.op(ReduceOp::Prod)
            }

            /// Gives up for all members when `after` has passed since the first poll; the default is to wait for members that live.
            pub fn deadline(mut self, after: Duration) -> Self {
                self.flight.deadline = Some(after);
                self
            }
        }
    };
}

choices!(Reduce);
choices!(ReduceScatter);

impl<T: Element> Reduce<'_, T> {
    /// How contributions become one value. Default: the sum. A mean of integers is [`Error::Rejected`](crate::Error::Rejected).
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.flight.call.kind = Kind::Reduce { op, root: self.root };
        self
    }
}

impl<T: Element> ReduceScatter<'_, T> {
    /// How contributions become one value. Default: the sum. A mean of integers is [`Error::Rejected`](crate::Error::Rejected).
    pub fn op(mut self, op: ReduceOp) -> Self {
        self.flight.call.kind = Kind::ReduceScatter(op);
        self
    }
}

impl<T: Element> Future for Reduce<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let output = ready!(this.flight.poll(task, Some(bytes_of(this.buffer))))?;
        if this.is_root {
            output.copy_to(bytes_of_mut(this.buffer));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Element> Future for ReduceScatter<'_, T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Vec<T>>> {
        let this = &mut *self;
        let output = ready!(this.flight.poll(task, Some(bytes_of(this.buffer))))?;
        Poll::Ready(Ok(elements(&output)))
    }
}
