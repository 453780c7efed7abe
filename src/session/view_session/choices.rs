//! The receives of this member that have not chosen their sender yet.

use crate::protocol::{Lane, OPS_IN_FLIGHT_MAX, OpBody, OpId, Rank};
use std::collections::BTreeMap;
use std::task::Waker;

/// The receives that have not chosen yet, by name.
#[derive(Default)]
pub(super) struct Choices {
    waiting: BTreeMap<OpId, Waiting>,
    /// The number of the next one.
    next: u64,
    /// The rank that was chosen last; the next search begins behind it.
    last: Option<Rank>,
}

struct Waiting {
    from: Vec<Rank>,
    waker: Waker,
    is_late: bool,
}

impl Choices {
    /// The name of one more that waits in this lane; `None` if there are as many as there may be
    /// operations in flight.
    pub(super) fn name(&mut self, lane: Lane) -> Option<OpId> {
        let name = OpId { lane: lane.choices(), number: self.next };
        let has_room = self.waiting.len() < OPS_IN_FLIGHT_MAX;
        self.next += u64::from(has_room);
        has_room.then_some(name)
    }

    /// It waits for the next message of these ranks.
    pub(super) fn wait(&mut self, name: OpId, from: Vec<Rank>, waker: Waker) {
        self.waiting.insert(name, Waiting { from, waker, is_late: false });
    }

    /// It does not wait any more.
    pub(super) fn end(&mut self, name: OpId) {
        self.waiting.remove(&name);
    }

    /// A message of this rank was chosen.
    pub(super) fn chose(&mut self, from: Rank) {
        self.last = Some(from);
    }

    /// These ranks, beginning behind the one that was chosen last, so that each has its turn.
    pub(super) fn in_turn(&self, from: &[Rank]) -> Vec<Rank> {
        let behind = from.partition_point(|rank| self.last.is_some_and(|last| *rank <= last));
        from[behind..].iter().chain(&from[..behind]).copied().collect()
    }

    /// Whether this one waits and is not late.
    pub(super) fn is_open(&self, name: OpId) -> bool {
        self.waiting.get(&name).is_some_and(|own| !own.is_late)
    }

    pub(super) fn is_late(&self, name: OpId) -> bool {
        self.waiting.get(&name).is_some_and(|own| own.is_late)
    }

    /// Its deadline has passed; returns its waker.
    pub(super) fn expire(&mut self, name: OpId) -> Option<Waker> {
        let own = self.waiting.get_mut(&name)?;
        own.is_late = true;
        Some(own.waker.clone())
    }

    /// The first one that waits, and the ranks that it waits for.
    pub(super) fn waiting_for(&self) -> Option<(OpId, Vec<Rank>)> {
        self.waiting.first_key_value().map(|(name, own)| (*name, own.from.clone()))
    }

    /// The wakers of all receives, if this message of another member tells that a message to `me`
    /// was sent or given up; else none.
    pub(super) fn woken_by(&self, body: &OpBody, me: Rank) -> Vec<Waker> {
        let op = match body {
            OpBody::Describe(descriptor) => descriptor.op,
            OpBody::Vote(op, _) => *op,
            _ => return Vec::new(),
        };
        if op.lane.ends().is_some_and(|(_, to)| to == me) { self.wakers() } else { Vec::new() }
    }

    /// The wakers of all of them.
    pub(super) fn wakers(&self) -> Vec<Waker> {
        self.waiting.values().map(|own| own.waker.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_its_turn() {
        let (mut choices, from) = (Choices::default(), [Rank(0), Rank(2), Rank(3)]);
        assert_eq!(choices.in_turn(&from), from);
        choices.chose(Rank(2));
        assert_eq!(choices.in_turn(&from), [Rank(3), Rank(0), Rank(2)]);
        choices.chose(Rank(3));
        assert_eq!(choices.in_turn(&from), from);
    }

    #[test]
    fn there_is_room_for_as_many_as_operations() {
        let mut choices = Choices::default();
        let names: Vec<OpId> = (0..OPS_IN_FLIGHT_MAX)
            .map(|_| {
                let name = choices.name(Lane::MAIN).expect("there is room");
                choices.wait(name, vec![Rank(1)], Waker::noop().clone());
                name
            })
            .collect();
        assert_eq!(choices.name(Lane::MAIN), None);
        assert_eq!(choices.waiting_for(), Some((names[0], vec![Rank(1)])));
        assert!(choices.expire(names[0]).is_some() && choices.is_late(names[0]));
        assert!(!choices.is_open(names[0]) && choices.is_open(names[1]));
        choices.end(names[0]);
        assert!(choices.expire(names[0]).is_none() && choices.name(Lane::MAIN).is_some());
    }
}
