//! The most that a ledger holds.

use crate::protocol::{OPS_IN_FLIGHT_MAX, OPS_LISTED_MAX};

/// The limits of one ledger. All members of a View have the same; only tests make them smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LedgerBounds {
    /// Most undecided operations that this member has called.
    pub(crate) in_flight: usize,
    /// Most operations on its list: those, and decided ones that some member has not reported.
    pub(crate) listed: usize,
}

impl Default for LedgerBounds {
    fn default() -> LedgerBounds {
        LedgerBounds { in_flight: OPS_IN_FLIGHT_MAX, listed: OPS_LISTED_MAX }
    }
}
