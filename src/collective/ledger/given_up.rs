//! The record of an operation that was aborted before this member called it.

use super::entry::Entry;
use crate::protocol::{AbortCause, CallKind, Outcome, Rank, Vote};

/// What this member remembers of an operation that was aborted before its program called it, once
/// it has told the others so. It is the same for most operations of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GivenUp {
    pub(super) cause: AbortCause,
    /// Of a message: its tag, if the sender has told it.
    pub(super) tag: Option<u32>,
}

impl GivenUp {
    /// The record of an entry that is aborted.
    pub(super) fn of(entry: &Entry) -> Option<GivenUp> {
        let Some(Outcome::Aborted(cause)) = entry.outcome else { return None };
        let tag = entry.calls.said().find_map(|(_, call)| match call.kind {
            CallKind::Message { tag, .. } => Some(tag),
            _ => None,
        });
        Some(GivenUp { cause, tag })
    }

    /// Makes it an entry again, when this member calls it. Nothing is left to be told about it.
    pub(super) fn restore(self, me: Rank, entry: &mut Entry) {
        entry.votes[me.index()] = Some(Vote::Abort(self.cause));
        entry.outcome = Some(Outcome::Aborted(self.cause));
        entry.resolved_by = entry.participants;
        entry.reported_to = entry.participants;
    }
}
