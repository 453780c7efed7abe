//! The interface of the agreement rules to the rest of the node.

use crate::identity::MemberId;
use crate::protocol::{Closing, Engines, View, ViewDigest};
use crate::topology::Arrangement;
use std::collections::BTreeMap;

/// Callbacks from the agreement rules to the rest of the node.
pub(crate) trait Environment {
    /// Freezes the operations of this View, the installed one, and reports them; later calls return
    /// the same report. Empty until the View's installation has been carried out.
    fn freeze(&mut self, view: ViewDigest) -> Closing;
    /// Arranges the next View of these members: rank order, engine, plan, and pairs without a
    /// direct link.
    fn arrange(&self, members: &BTreeMap<MemberId, Engines>, current: Option<&View>)
    -> Arrangement;
}
