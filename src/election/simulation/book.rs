//! Layer: Core.
//!
//! The operations of one node.

use crate::collective::{Closing, Ledger};
use crate::election::Operations;
use crate::view::{OpId, View, ViewDigest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A ledger and its View, or none before the first one.
#[derive(Default)]
pub(super) struct Book {
    pub(super) ledger: Option<Ledger>,
    pub(super) view: Option<Arc<View>>,
    /// What was reported when the View was left.
    pub(super) closing: Option<Closing>,
    /// No View decided what was open, so it stays unknown.
    pub(super) is_cut_off: bool,
    /// When the engine will hold the result of what all have called alike.
    pub(super) results: BTreeMap<OpId, u64>,
}

impl Book {
    pub(super) fn of(view: &Arc<View>, ledger: Ledger) -> Book {
        Book { ledger: Some(ledger), view: Some(Arc::clone(view)), ..Book::default() }
    }

    /// Whether what was reported is still so.
    pub(super) fn stays_closed(&self) -> bool {
        match (&self.closing, &self.ledger) {
            (Some(closing), Some(ledger)) if !self.is_cut_off => {
                ledger.is_frozen() && ledger.clone().freeze() == *closing
            }
            _ => true,
        }
    }
}

impl Operations for Book {
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
