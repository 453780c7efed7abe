//! The state of this node's look at its admission files.

use crate::node::admission::Admissions;
use tokio::time::Instant;

/// The source of changes, and what is left to do about the last one.
pub(super) struct Admitting {
    pub(super) door: Box<dyn Admissions>,
    pub(super) look_at: Instant,
    pub(super) has_new_advert: bool,
    /// When links by a key that is not accepted any more end.
    pub(super) ends_at: Option<Instant>,
}

impl Admitting {
    pub(super) fn new(door: Box<dyn Admissions>) -> Admitting {
        Admitting { door, look_at: Instant::now(), has_new_advert: false, ends_at: None }
    }
}
