//! Results of abandoned calls, kept after their View has ended.

use super::decided::Decided;
use crate::collective::Lanes;
use crate::os::{Mutex, lock};
use crate::protocol::{Lane, OpId, Outcome};
use crate::trace;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The committed results of calls that the program dropped. One list per node.
///
/// These results count for every member. The program must therefore fetch them before it calls
/// again in that lane; otherwise it would build on a state that it believes does not contain them.
///
/// A program that uses each lane once never asks for them. So the bytes of the oldest go when there
/// are too many; that there was a result stays known, see [`Lanes`] for the memory.
#[derive(Clone, Debug, Default)]
pub struct LostResults(Arc<Mutex<LostList>>);

#[derive(Debug, Default)]
struct LostList {
    /// Oldest first.
    results: VecDeque<(OpId, Decided)>,
    bytes: usize,
    /// By caller's lane: the number of its last result whose bytes are gone.
    gone: Lanes<u64>,
}

/// Most results kept with their bytes.
const RESULTS_MAX: usize = 256;

/// Most bytes of results kept. The newest result is kept whatever its length.
const BYTES_MAX: usize = 256 * 1024 * 1024;

impl LostResults {
    pub(super) fn keep(&self, op: OpId, decided: Decided) {
        let mut kept = lock(&self.0);
        kept.bytes += decided.bytes().unwrap_or(0);
        kept.results.push_back((op, decided));
        while kept.results.len() > RESULTS_MAX || kept.results.len() > 1 && kept.bytes > BYTES_MAX {
            let Some((op, _)) = kept.take(0) else { return };
            trace::warn!(%op, "the result of an abandoned call was never fetched, and is not kept \
                any longer");
            kept.gone.set(op.lane.caller(), op.number);
        }
    }

    /// The first one of the lane.
    pub(super) fn first_in(&self, lane: Lane) -> Option<OpId> {
        let (kept, lane) = (lock(&self.0), lane.caller());
        let gone = kept.gone.get(lane).map(|number| OpId { lane, number: *number });
        gone.or_else(|| kept.results.iter().map(|(op, _)| *op).find(|op| op.lane.caller() == lane))
    }

    /// The oldest one of the lane, if it is as is asked for.
    pub(super) fn take_if(
        &self,
        lane: Lane,
        fits: impl FnOnce(&Decided) -> bool,
    ) -> Option<Decided> {
        let (mut kept, lane) = (lock(&self.0), lane.caller());
        if kept.gone.get(lane).is_some() {
            let empty = without_bytes();
            return fits(&empty).then(|| {
                kept.gone.remove(lane);
                empty
            });
        }
        let at = kept.results.iter().position(|(op, _)| op.lane.caller() == lane)?;
        if fits(&kept.results[at].1) { kept.take(at).map(|(_, decided)| decided) } else { None }
    }

    /// The first one of the lane, if it is a sync and there is room for its bytes.
    pub(super) fn take_sync(
        &self,
        lane: Lane,
        has_room: impl FnOnce(usize) -> bool,
    ) -> Option<Decided> {
        self.take_if(lane, |decided| decided.is_sync && has_room(decided.bytes().unwrap_or(0)))
    }
}

impl LostList {
    fn take(&mut self, at: usize) -> Option<(OpId, Decided)> {
        let taken = self.results.remove(at)?;
        self.bytes -= taken.1.bytes().unwrap_or(0);
        Some(taken)
    }
}

/// A committed call whose result is gone.
fn without_bytes() -> Decided {
    Decided {
        outcome: Outcome::Committed,
        output: None,
        parts: Vec::new(),
        codecs: BTreeMap::new(),
        fault: None,
        is_sync: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Pool, Staging};

    fn result(bytes: usize) -> Decided {
        let output =
            Some(Staging { blocks: vec![Pool::new().block(bytes).expect("there is memory")] });
        Decided { output, ..without_bytes() }
    }

    fn op(tag: u32) -> OpId {
        OpId { lane: Lane::tagged(tag), number: 0 }
    }

    #[test]
    fn results_that_nobody_fetches_take_bounded_memory_and_stay_known() {
        let lost = LostResults::default();
        for tag in 0..50_000 {
            lost.keep(op(tag), result(16));
        }
        {
            let kept = lock(&lost.0);
            assert_eq!(
                (kept.results.len(), kept.bytes, kept.gone.runs()),
                (RESULTS_MAX, 16 * RESULTS_MAX, 1)
            );
        }
        let [old, new] = [7, 49_999].map(Lane::tagged);
        assert_eq!((lost.first_in(old), lost.first_in(new)), (Some(op(7)), Some(op(49_999))));
        assert!(lost.take_if(old, |decided| decided.bytes().is_some()).is_none());
        assert_eq!(lost.first_in(old), Some(op(7)), "it was not taken");
        assert_eq!(lost.take_if(old, |_| true).map(|decided| decided.bytes()), Some(None));
        assert_eq!(lost.take_if(new, |_| true).map(|decided| decided.bytes()), Some(Some(16)));
        assert_eq!((lost.first_in(old), lost.first_in(new)), (None, None));
    }

    #[test]
    fn of_large_results_the_newest_is_kept() {
        let lost = LostResults::default();
        (0..3).for_each(|tag| lost.keep(op(tag), result(BYTES_MAX / 2 + 1)));
        let kept =
            |tag| lost.take_if(Lane::tagged(tag), |_| true).and_then(|decided| decided.bytes());
        assert_eq!([0, 1, 2].map(kept), [None, None, Some(BYTES_MAX / 2 + 1)]);
        assert_eq!(lock(&lost.0).bytes, 0);
    }
}
