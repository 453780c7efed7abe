//! The operations of one simulated node in its View.

use crate::collective::Ledger;
use crate::election::Operations;
use crate::protocol::{Closing, OpId, View, ViewDigest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The ledger of the installed View, and that View; `None` before the first one.
#[derive(Default)]
pub(super) struct Session {
    pub(super) ledger: Option<Ledger>,
    pub(super) view: Option<Arc<View>>,
    /// The report made when the View was frozen.
    pub(super) closing: Option<Closing>,
    /// The open operations ended as indeterminate.
    pub(super) is_cut_off: bool,
    /// By agreed operation: the time at which the engine will hold its result.
    pub(super) results: BTreeMap<OpId, u64>,
}

impl Session {
    pub(super) fn of(view: &Arc<View>, ledger: Ledger) -> Session {
        Session { ledger: Some(ledger), view: Some(Arc::clone(view)), ..Session::default() }
    }

    /// Whether the report still matches the ledger.
    pub(super) fn stays_closed(&self) -> bool {
        match (&self.closing, &self.ledger) {
            (Some(closing), Some(ledger)) if !self.is_cut_off => {
                ledger.is_frozen() && ledger.clone().freeze() == *closing
            }
            _ => true,
        }
    }
}

impl Operations for Session {
    fn freeze(&mut self, view: ViewDigest) -> Closing {
        let Some(ledger) = self.ledger.as_mut().filter(|ledger| ledger.view() == view) else {
            return Closing::default();
        };
        self.closing.get_or_insert_with(|| ledger.freeze()).clone()
    }

    fn in_flight(&self) -> usize {
        self.ledger.as_ref().map_or(0, Ledger::in_flight)
    }
}
