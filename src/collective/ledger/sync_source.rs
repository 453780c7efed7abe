//! Where the state of a sync comes from.

use crate::protocol::Rank;

/// The source of a sync's state, as one member sees it once all members have called the sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SyncSource {
    /// The rank whose state all members get.
    pub rank: Rank,
    /// The length of that state; `None` until its member has named it. That member names it with
    /// its `Ready`, because it may make the state only then.
    pub bytes: Option<u64>,
    /// This member does not hold that state: its history is not the View's, or its version differs.
    pub lacks: bool,
}
