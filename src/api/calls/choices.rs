//! The options that can be set on a call before it is awaited, defined once for all kinds.

use super::all_reduce::AllReduce;
use super::bundle::Bundle;
use super::copies::{AllGather, Barrier, Broadcast};
use super::message::{Receiving, Sending};
use super::owned::AllReduceOwned;
use super::parts::{AllToAll, Gather, Scatter};
use super::pending_op::PendingOp;
use super::receiving_any::{AnyOp, ReceivingAny};
use super::reduce::{Reduce, ReduceScatter};
use super::step::{Commit, reducing_by};
use super::sync::StateSync;
use super::sync_op::SyncOp;
use super::uneven::{AllGatherUneven, AllToAllUneven, UnevenOp};
use super::weighted_mean::WeightedMean;
use crate::memory::{Element, Float};
use crate::protocol::{CallMode, ReduceOp};
use std::time::Duration;

/// For every kind of call.
macro_rules! calls {
    ($($call:ident<$($lifetime:lifetime)? $(,)? $($element:ident)?>)*) => {
        $(
            impl<$($element: Element)?> $call<$($lifetime,)? $($element)?> {
                /// Aborts the call for all members if it is undecided when `after` has passed since
                /// the first poll. The default is to wait for living members without bound.
                ///
                /// This rank then gets [`Cause::Deadline`](crate::Cause::Deadline) `{ of: None }`,
                /// the others the same with `of` this rank, or `None` if at least half of their own
                /// deadline has passed. Once this rank has voted for the result, its deadline has
                /// no effect: the other ranks' votes decide.
                pub fn deadline(mut self, after: Duration) -> Self {
                    self.pending.give_up_after(after);
                    self
                }
            }
        )*
    };
}

/// For every kind that may do without the vote, in addition to the above.
macro_rules! votes {
    ($($call:ident<$($lifetime:lifetime)? $(,)? $($element:ident)?>)*) => {
        calls! { $($call<$($lifetime,)? $($element)?>)* }
        $(
            impl<$($element: Element)?> $call<$($lifetime,)? $($element)?> {
                /// Skips the vote: on each rank the call completes as soon as this rank has its
                /// result, which saves one message delay. Every rank must request it.
                ///
                /// If a member is lost or gives up meanwhile, some ranks may have the result and
                /// others not, and no rank detects that; the group's history does not count the
                /// call. A result that is returned is correct.
                pub fn best_effort(mut self) -> Self {
                    self.pending.call.mode = CallMode::BestEffort;
                    self
                }
            }
        )*
    };
}

/// For the reductions.
macro_rules! reductions {
    ($($call:ident<$($lifetime:lifetime,)? $element:ident>)*) => {
        $(
            impl<$element: Element> $call<$($lifetime,)? $element> {
                /// The reduction operator. Default: the sum, which `bool` does not have. An
                /// operator that the element type does not have is
                /// [`Error::Rejected`](crate::Error::Rejected).
                pub fn op(mut self, op: ReduceOp) -> Self {
                    let kind = &mut self.pending.call.kind;
                    *kind = reducing_by(*kind, op);
                    self
                }

                /// The sum divided by the number of members. Floats only: for integers it is
                /// [`Error::Rejected`](crate::Error::Rejected).
                pub fn mean(self) -> Self {
                    self.op(ReduceOp::Mean)
                }

                /// The minimum.
                pub fn min(self) -> Self {
                    self.op(ReduceOp::Min)
                }

                /// The maximum.
                pub fn max(self) -> Self {
                    self.op(ReduceOp::Max)
                }

                /// The product. Not of `bool`.
                pub fn product(self) -> Self {
                    self.op(ReduceOp::Prod)
                }

                /// The bits that all ranks have, for integers and `bool`; for floats it is
                /// [`Error::Rejected`](crate::Error::Rejected).
                pub fn bit_and(self) -> Self {
                    self.op(ReduceOp::BitAnd)
                }

                /// The bits that any rank has, for integers and `bool`; for floats it is
                /// [`Error::Rejected`](crate::Error::Rejected).
                pub fn bit_or(self) -> Self {
                    self.op(ReduceOp::BitOr)
                }

                /// The bits that an odd number of ranks has, for integers and `bool`; for floats it
                /// is [`Error::Rejected`](crate::Error::Rejected).
                pub fn bit_xor(self) -> Self {
                    self.op(ReduceOp::BitXor)
                }

                /// Aborts the call for all members if this rank's contribution or result has a NaN
                /// or an infinity: every rank then gets
                /// [`Cause::NonFinite`](crate::Cause::NonFinite). No effect for integers.
                ///
                /// This rank checks its own contribution before anything is sent, and its own
                /// result before it votes, each in one extra pass. One rank that requests this
                /// usually suffices, but it does not see an infinite contribution of another rank
                /// that the operator hides, as a minimum does; that rank must request it too.
                pub fn reject_non_finite(mut self) -> Self {
                    self.pending.finite_only = true;
                    self
                }
            }
        )*
    };
}

calls! {
    AllGatherUneven<'_, T>
    AllToAllUneven<'_, T>
    StateSync<'_>
    Commit<'_>
}

impl<T: Float> WeightedMean<'_, T> {
    /// Aborts the call for all members if it is undecided when `after` has passed since the first
    /// poll, see [`AllReduce::deadline`].
    pub fn deadline(mut self, after: Duration) -> Self {
        self.pending.deadline(after);
        self
    }
}

votes! {
    AllReduce<'_, T>
    AllReduceOwned<T>
    Reduce<'_, T>
    ReduceScatter<'_, T>
    Broadcast<'_, T>
    AllGather<'_, T>
    Gather<'_, T>
    Scatter<'_, T>
    AllToAll<'_, T>
    Barrier<>
    Sending<'_, T>
    Receiving<'_, T>
    ReceivingAny<'_, T>
}

reductions! {
    AllReduce<'_, T>
    AllReduceOwned<T>
    Reduce<'_, T>
    ReduceScatter<'_, T>
}

/// A type that may contain an operation in flight.
trait MayGiveUp {
    fn give_up_after(&mut self, after: Duration);
}

impl MayGiveUp for PendingOp {
    fn give_up_after(&mut self, after: Duration) {
        self.deadline = Some(after);
    }
}

impl MayGiveUp for Bundle {
    fn give_up_after(&mut self, after: Duration) {
        self.deadline(after);
    }
}

impl MayGiveUp for AnyOp {
    fn give_up_after(&mut self, after: Duration) {
        AnyOp::give_up_after(self, after);
    }
}

impl<T: Element> MayGiveUp for UnevenOp<'_, T> {
    fn give_up_after(&mut self, after: Duration) {
        self.pending.give_up_after(after);
    }
}

/// A sync without an operation has ended already, so it needs no deadline.
impl MayGiveUp for SyncOp {
    fn give_up_after(&mut self, after: Duration) {
        SyncOp::give_up_after(self, after);
    }
}
