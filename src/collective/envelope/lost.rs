//! Layer: Shells.
//!
//! Results of abandoned calls, kept after their View has ended.

use super::Decided;
use crate::view::{Lane, OpId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The committed results of calls that the program dropped, from Views that have ended. One list
/// per node.
///
/// These results count for every member. The program must therefore fetch them before it calls
/// again in that lane; otherwise it would build on a state that it believes does not contain them.
#[derive(Clone, Debug, Default)]
pub struct LostResults(Arc<Mutex<Vec<(OpId, Decided)>>>);

impl LostResults {
    pub(super) fn keep(&self, op: OpId, decided: Decided) {
        self.lock().push((op, decided));
    }

    /// The first one of the lane that was kept.
    pub(super) fn first_in(&self, lane: Lane) -> Option<OpId> {
        self.lock().iter().map(|(op, _)| *op).find(|op| op.lane.caller() == lane.caller())
    }

    /// The oldest one of the lane, if it is as is asked for.
    pub(super) fn take_if(
        &self,
        lane: Lane,
        fits: impl FnOnce(&Decided) -> bool,
    ) -> Option<Decided> {
        let mut kept = self.lock();
        let at = kept.iter().position(|(op, _)| op.lane.caller() == lane.caller())?;
        if fits(&kept[at].1) { Some(kept.remove(at).1) } else { None }
    }

    /// The first one of the lane, if it is a sync and there is room for its bytes.
    pub(super) fn take_sync(
        &self,
        lane: Lane,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<Decided> {
        self.take_if(lane, |decided| decided.is_sync && has_room(decided.bytes().unwrap_or(0)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(OpId, Decided)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
