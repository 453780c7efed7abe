//! How a dial has ended.

use crate::identity::MemberId;

/// The outcome of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialOutcome {
    /// No connection, or no completed handshake.
    Failed,
    /// This member answered, and the address is its own; its link is up.
    Authenticated(MemberId),
    /// This member answered, and sees other addresses: something on the way forwards its
    /// connections. Its link is up.
    Unproven(MemberId),
    /// This node itself answered, as its key shows.
    Myself,
    /// It speaks this other protocol version.
    OtherVersion(u8),
    /// It holds another cluster key.
    OtherNamespace,
    /// It runs another job.
    OtherJob,
}
