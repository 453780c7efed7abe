//! Operations on which this member waits for votes that every correct member gives at once.
//!
//! A member that hears an `Abort`, or that a deadline has passed, answers with its own vote, and it
//! handles the messages of a control link in order. Its answer to a ping that was sent after the
//! question therefore comes behind its vote. A member that has answered such a ping and has not
//! voted withholds its vote, however slow the network is. A member that neither votes nor answers
//! pings, and has said in its heartbeats without a gap that it hears this node, is given
//! [`NO_PONG`] in place of [`GRACE`].

use crate::protocol::OpId;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long a member has to vote, if it answers pings.
pub(super) const GRACE: Duration = Duration::from_secs(3);

/// How long it has, if it does not. Silence of all kinds ends a membership sooner.
pub(super) const NO_PONG: Duration = Duration::from_secs(4);

/// Between two looks at an operation whose missing votes may still be on their way.
const AGAIN: Duration = Duration::from_millis(250);

/// Operations kept before decided ones are thrown out. More than can be open.
const KEPT_MAX: usize = 4 * crate::protocol::OPS_LISTED_MAX;

/// The operations of one View on which votes are missing.
#[derive(Default)]
pub(super) struct Unanswered {
    ops: BTreeMap<OpId, Asked>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    look_at: Instant,
}

impl Unanswered {
    /// This member has asked for the votes on `op`. Where it asks again the first time counts.
    pub(super) fn ask(&mut self, op: OpId, now: Instant, is_open: impl Fn(OpId) -> bool) {
        if self.ops.len() >= KEPT_MAX {
            self.ops.retain(|op, _| is_open(*op));
        }
        self.ops.entry(op).or_insert(Asked { at: now, look_at: now + GRACE });
    }

    /// How long until the next look.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        let next = self.ops.values().map(|asked| asked.look_at).min();
        next.map_or(Duration::MAX, |at| at.saturating_duration_since(now))
    }

    /// The operations that are to be looked at now, and when their votes were asked for. They come
    /// again a little later, unless they [end](Unanswered::end).
    pub(super) fn due(&mut self, now: Instant) -> Vec<(OpId, Instant)> {
        let due = self.ops.iter_mut().filter(|(_, asked)| asked.look_at <= now);
        due.map(|(op, asked)| {
            asked.look_at = now + AGAIN;
            (*op, asked.at)
        })
        .collect()
    }

    /// All votes on `op` are in.
    pub(super) fn end(&mut self, op: OpId) {
        self.ops.remove(&op);
    }

    /// The View has ended.
    pub(super) fn clear(&mut self) {
        self.ops.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Lane;

    fn op(number: u64) -> OpId {
        OpId { lane: Lane::MAIN, number }
    }

    #[test]
    fn an_operation_comes_after_its_grace_and_again_until_it_ends() {
        let (mut unanswered, now) = (Unanswered::default(), Instant::now());
        assert_eq!(unanswered.pause(now), Duration::MAX);
        unanswered.ask(op(1), now, |_| true);
        unanswered.ask(op(1), now + GRACE / 2, |_| true);
        unanswered.ask(op(2), now + AGAIN, |_| true);
        assert_eq!((unanswered.pause(now), unanswered.due(now)), (GRACE, Vec::new()));
        let later = now + GRACE;
        assert_eq!(unanswered.due(later), [(op(1), now)]);
        assert_eq!(unanswered.due(later), []);
        assert_eq!(unanswered.due(later + AGAIN), [(op(1), now), (op(2), now + AGAIN)]);
        unanswered.end(op(1));
        assert_eq!(unanswered.due(later + 2 * AGAIN), [(op(2), now + AGAIN)]);
        unanswered.clear();
        assert_eq!(unanswered.pause(later), Duration::MAX);
    }

    #[test]
    fn many_operations_that_end_do_not_pile_up() {
        let (mut unanswered, now) = (Unanswered::default(), Instant::now());
        for number in 0..100_000 {
            unanswered.ask(op(number), now, |op| op.number == 0 || op.number + 60 > number);
            assert!(unanswered.ops.len() <= KEPT_MAX);
        }
        assert_eq!(unanswered.due(now + GRACE)[0], (op(0), now), "it is still open");
    }
}
