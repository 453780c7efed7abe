//! The operations of one View on this member, from their calls to their outcomes, and their
//! counters.
//!
//! A [`ViewSession`] joins the ledger, which counts votes, to the backend, which moves data. A
//! [`Meter`] counts their operations, over all Views.

mod meter;
mod view_session;

pub use meter::Meter;
#[cfg(test)]
pub(crate) use view_session::Group;
pub use view_session::{
    Choice, Decided, Fate, LostResults, OpSender, PartResult, Refused, ServedOp, SyncDue, SyncStep,
    Unchosen, UnevenStep, ViewSession,
};
