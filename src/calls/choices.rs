//! Layer: Face.
//!
//! What can be asked of a call before it is awaited: said here once for all kinds.

use super::bundle::Bundle;
use super::{
    AllGather, AllReduce, AllReduceOwned, AllToAll, Barrier, Broadcast, Commit, Flight, Gather,
    Receiving, Reduce, ReduceScatter, Scatter, Sending, Sync,
};
use crate::collective::{Element, Kind, Mode, ReduceOp};
use std::time::Duration;

/// Of every kind.
macro_rules! calls {
    ($($call:ident<$($lifetime:lifetime)? $(,)? $($element:ident)?>)*) => {
        $(
            impl<$($element: Element)?> $call<$($lifetime,)? $($element)?> {
                /// Gives up for all members when `after` has passed since the first poll; the
                /// default is to wait for members that live.
                ///
                /// This rank then gets [`Cause::Deadline`](crate::Cause::Deadline) `{ of: None }`,
                /// the others the same of this rank. Once all have called and this rank has voted
                /// for its result nothing can be given up any more: the call ends as the others
                /// decide.
                pub fn deadline(mut self, after: Duration) -> Self {
                    self.flight.give_up_after(after);
                    self
                }
            }
        )*
    };
}

/// Of all but those that must agree, beside what every kind has.
macro_rules! votes {
    ($($call:ident<$($lifetime:lifetime)? $(,)? $($element:ident)?>)*) => {
        calls! { $($call<$($lifetime,)? $($element)?>)* }
        $(
            impl<$($element: Element)?> $call<$($lifetime,)? $($element)?> {
                /// Does without the vote: on each rank it is done as soon as that one holds its
                /// result, which saves a message's way.
                ///
                /// A member that is lost meanwhile, or that gives up, may leave some ranks with the
                /// result and others without, and nobody finds out; the group's history does not
                /// count it. A sum that is there is right all the same, and every rank must ask for
                /// it.
                pub fn best_effort(mut self) -> Self {
                    self.flight.call.mode = Mode::BestEffort;
                    self
                }
            }
        )*
    };
}

/// Of those that make one value of all contributions.
macro_rules! reductions {
    ($($call:ident<$($lifetime:lifetime,)? $element:ident>)*) => {
        $(
            impl<$element: Element> $call<$($lifetime,)? $element> {
                /// How contributions become one value. Default: the sum. A mean of integers is
                /// [`Error::Rejected`](crate::Error::Rejected).
                pub fn op(mut self, op: ReduceOp) -> Self {
                    let kind = &mut self.flight.call.kind;
                    *kind = reducing_by(*kind, op);
                    self
                }

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

                /// Gives up for all members when what this rank hands in, or what it would get,
                /// holds a NaN or an infinity: every rank then gets
                /// [`Cause::NonFinite`](crate::Cause::NonFinite). Of integers it does nothing.
                ///
                /// This rank looks at its own contribution before anything is sent and at its own
                /// result before it counts, each in one more pass over it. It is enough that one
                /// rank asks; but an infinity that somebody else hands in and a minimum hides is
                /// found by nobody who does not ask there.
                pub fn reject_non_finite(mut self) -> Self {
                    self.flight.finite_only = true;
                    self
                }
            }
        )*
    };
}

calls! {
    Sync<'_>
    Commit<'_>
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
}

reductions! {
    AllReduce<'_, T>
    AllReduceOwned<T>
    Reduce<'_, T>
    ReduceScatter<'_, T>
}

/// The same reduction by another operation.
pub(super) fn reducing_by(kind: Kind, op: ReduceOp) -> Kind {
    match kind {
        Kind::AllReduce(_) => Kind::AllReduce(op),
        Kind::Reduce { root, .. } => Kind::Reduce { op, root },
        Kind::ReduceScatter(_) => Kind::ReduceScatter(op),
        other => other,
    }
}

/// What may have an operation under way.
trait MayGiveUp {
    fn give_up_after(&mut self, after: Duration);
}

impl MayGiveUp for Flight {
    fn give_up_after(&mut self, after: Duration) {
        self.deadline = Some(after);
    }
}

impl MayGiveUp for Bundle {
    fn give_up_after(&mut self, after: Duration) {
        self.deadline(after);
    }
}

/// A sync where there is nothing to do ends before any deadline.
impl MayGiveUp for Option<Flight> {
    fn give_up_after(&mut self, after: Duration) {
        if let Some(flight) = self {
            flight.give_up_after(after);
        }
    }
}
