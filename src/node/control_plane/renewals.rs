//! When links were renewed last.

use crate::identity::MemberId;
use std::collections::BTreeMap;

/// When this node last tried to renew the links with a member, in milliseconds.
pub(super) type Renewals = BTreeMap<MemberId, u64>;
