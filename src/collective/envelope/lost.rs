//! Layer: Shells.
//!
//! What has become of calls that nobody waits for any more, when their View is over.

use super::Decided;
use crate::view::{Lane, OpId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Committed results of calls that were dropped in Views that have ended, of one node.
///
/// They count for this node as for everybody, so its program may not go on in that lane before it
/// has looked at them: it would add to a state of which it believes that they are no part.
#[derive(Clone, Debug, Default)]
pub struct LostResults(Arc<Mutex<Vec<(OpId, Decided)>>>);

impl LostResults {
    pub(super) fn keep(&self, op: OpId, decided: Decided) {
        self.lock().push((op, decided));
    }

    /// The oldest one of the lane.
    pub(super) fn first_in(&self, lane: Lane) -> Option<OpId> {
        self.lock().iter().map(|(op, _)| *op).find(|op| op.lane.caller() == lane.caller())
    }

    /// The oldest one of the lane, if it is as is asked for.
    pub(super) fn take_if(&self, lane: Lane, fits: impl Fn(&Decided) -> bool) -> Option<Decided> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(op, _)| op.lane.caller() == lane.caller())?;
        if fits(&kept[at].1) { Some(kept.remove(at).1) } else { None }
    }

    /// The oldest one of the lane, if that was a sync.
    pub(super) fn take_sync(&self, lane: Lane) -> Option<Decided> {
        self.take_if(lane, |decided| decided.is_sync)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(OpId, Decided)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
