//! The operations of one View on this member, from their calls to their outcomes, and their
//! counters.
//!
//! An [`Envelope`] joins the ledger, which counts votes, to the backend, which moves data. A
//! [`Meter`] counts what they do, over all Views.

mod envelope;
mod meter;

#[cfg(test)]
pub(crate) use envelope::Group;
pub use envelope::{Decided, Envelope, Fate, LostResults, Mouth, Refused, SyncDue, SyncStep};
pub use meter::Meter;
