//! Layer: Core.
//!
//! What a ledger knows of one operation: who has begun it, who has voted how, who has decided it.

use crate::collective::{AbortCause, Call, Descriptor, Kind, Listed, Mismatch, Outcome, Status, Vote};
use crate::view::{OpId, Rank};

/// One operation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// This member's own call, from the moment it took the number.
    pub(super) call: Option<Call>,
    /// Who has begun it, and with what. This member's own stands here once it is told.
    pub(super) descriptors: Vec<Option<Descriptor>>,
    pub(super) votes: Vec<Option<Vote>>,
    pub(super) outcome: Option<Outcome>,
    /// Who has reported it decided, as bits by rank.
    pub(super) resolved_by: u32,
    /// This member has told all others that it is decided here.
    pub(super) reported: bool,
    /// All descriptors are in, and ask for the same.
    pub(super) agreed: bool,
    /// The digest of a result that is here before everybody has called.
    pub(super) held: Option<u128>,
    /// The engine has begun with a sync.
    pub(super) ready: bool,
}

impl Entry {
    pub(super) fn new(size: usize) -> Entry {
        Entry {
            call: None,
            descriptors: vec![None; size],
            votes: vec![None; size],
            outcome: None,
            resolved_by: 0,
            reported: false,
            agreed: false,
            held: None,
            ready: false,
        }
    }

    pub(super) fn described(&self) -> impl Iterator<Item = Rank> {
        ranks(&self.descriptors, Option::is_some)
    }

    pub(super) fn missing(&self) -> impl Iterator<Item = Rank> {
        ranks(&self.descriptors, Option::is_none)
    }

    pub(super) fn heard_from(&self, rank: Rank) -> bool {
        self.descriptors[rank.index()].is_some() || self.votes[rank.index()].is_some()
    }

    /// Whether `rank` asks for the same as `mine`, so that its data fits. A sync's data moves only after `Ready`.
    pub(super) fn credits(&self, rank: Rank, mine: &Call) -> bool {
        let theirs = self.descriptors[rank.index()].map(|d| d.call);
        theirs.is_some_and(|call| call.agrees(mine)) && !matches!(mine.kind, Kind::Sync { .. })
    }

    pub(super) fn is_sync(&self) -> bool {
        self.call.is_some_and(|c| matches!(c.kind, Kind::Sync { .. }))
    }

    /// The lowest rank that has spoken, and the lowest one that contradicts it.
    pub(super) fn mismatch(&self) -> Option<Mismatch> {
        let mut calls = self.descriptors.iter().enumerate().filter_map(|(i, d)| Some((Rank(i as u8), (*d)?.call)));
        let lower = calls.next()?;
        let higher = calls.find(|(_, call)| !call.agrees(&lower.1))?;
        Some(Mismatch { lower, higher })
    }

    /// For a sync: among the members on the View's history the furthest version, on a tie the lowest rank.
    pub(super) fn sync_source(&self, sources: &[bool]) -> Option<(Rank, u64)> {
        let versions = self.descriptors.iter().enumerate().filter(|(i, _)| sources[*i]).filter_map(|(i, d)| {
            let call = (*d)?.call;
            let Kind::Sync { version } = call.kind else { return None };
            Some((version, std::cmp::Reverse(i), call.count))
        });
        versions.max().map(|(_, std::cmp::Reverse(i), count)| (Rank(i as u8), count))
    }

    /// The outcome on which all votes agree, if all are in.
    pub(super) fn unanimous(&self) -> Option<Outcome> {
        let votes: Option<Vec<Vote>> = self.votes.iter().copied().collect();
        let votes = votes?;
        let causes: Vec<AbortCause> = votes.iter().filter_map(|v| if let Vote::Abort(c) = v { Some(*c) } else { None }).collect();
        if let Some(least) = causes.iter().min() {
            return (causes.len() == votes.len()).then_some(Outcome::Aborted(*least));
        }
        let same = votes.windows(2).all(|w| w[0] == w[1]);
        match (self.agreed, same) {
            (false, _) => None,
            (true, true) => Some(Outcome::Committed),
            (true, false) => Some(Outcome::DigestMismatch),
        }
    }

    pub(super) fn listed(&self, op: OpId, me: Rank) -> Option<Listed> {
        self.call?;
        let status = match (self.outcome, self.votes[me.index()]) {
            (Some(Outcome::Committed), _) => Status::Committed,
            (Some(_), _) | (None, Some(Vote::Abort(_))) => Status::Aborted,
            (None, Some(Vote::Done { digest })) => Status::Done(digest),
            (None, None) => Status::NotDone,
        };
        Some(Listed { op, status, is_sync: self.is_sync() })
    }
}

fn ranks(slots: &[Option<Descriptor>], wanted: fn(&Option<Descriptor>) -> bool) -> impl Iterator<Item = Rank> {
    slots.iter().enumerate().filter(move |(_, d)| wanted(d)).map(|(i, _)| Rank(i as u8))
}
