//! The part of a View that the responder to a data handshake needs.

use crate::identity::MemberId;
use crate::protocol::{Rank, ViewDigest};

/// The part of a View that the responder to a data handshake needs.
pub(crate) struct OpenView {
    pub(super) digest: ViewDigest,
    pub(super) members: Vec<MemberId>,
    pub(super) me: Rank,
}
