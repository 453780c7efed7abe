//! Layer: Core.
//!
//! What the promises say together: which View is the newest, what became of its operations, who shares its history.

use super::message::{Accepted, Promise};
use crate::collective::{Closing, Listed, Status};
use crate::identity::MemberId;
use crate::view::{History, MEMBERS_MAX, OpId, Rank, ViewId};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// What the proposer reads out of all promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// The newest View that anybody has installed, as far as the promises show.
    pub(super) tip: Option<ViewId>,
    /// The tip's operations that are committed, in order.
    pub(super) committed: Vec<OpId>,
    /// The winning history.
    pub(super) history: Option<History>,
    /// Whose history that is.
    pub(super) in_sync: BTreeSet<MemberId>,
}

/// Reads the promises.
///
/// The parent of an accepted View is evidence that it was installed; without that rule two halves can decide one
/// operation differently after an acceptor's memory was overwritten.
pub(super) fn read(promises: &BTreeMap<MemberId, Promise>) -> Standing {
    let installed = promises.values().filter_map(|p| p.prev);
    let implied = promises.values().filter_map(|p| p.accepted.as_ref()?.parent);
    let tip = installed.chain(implied).max();
    let committed = tip.map_or_else(Vec::new, |tip| decide(tip, promises));
    let effective: BTreeMap<MemberId, Option<History>> =
        promises.iter().map(|(id, p)| (*id, history_after(*id, p, tip, &committed, promises))).collect();
    let history = winner(&effective);
    let in_sync = effective.into_iter().filter(|(_, h)| *h == history).map(|(id, _)| id).collect();
    Standing { tip, committed, history, in_sync }
}

/// The outcome of the tip's operations: what an accepted successor says, else what all its members hold.
fn decide(tip: ViewId, promises: &BTreeMap<MemberId, Promise>) -> Vec<OpId> {
    let successors = promises.values().filter_map(|p| p.accepted.as_ref()).filter(|a| succeeds(a, tip));
    if let Some(adopted) = successors.max_by_key(|a| a.id.ballot) {
        return adopted.committed.clone();
    }
    let installed =
        promises.values().filter(|p| p.prev == Some(tip)).map(|p| Witness { rank: p.rank, closing: Some(&p.closing) });
    // A member that is in the tip and has not installed it has not begun any of its operations.
    let not_installed = |p: &&Promise| p.prev != Some(tip) && p.accepted.as_ref().is_some_and(|a| a.id == tip);
    let behind = promises.values().filter(not_installed).filter(|p| p.accepted_here.is_some());
    let behind = behind.map(|p| Witness { rank: p.accepted_here, closing: None });
    let witnesses: Vec<Witness<'_>> = installed.chain(behind).collect();
    let candidates: BTreeSet<OpId> = witnesses.iter().filter_map(|w| w.closing).flat_map(|c| &c.ops).map(|l| l.op).collect();
    candidates.into_iter().filter(|op| to_be_committed(*op, &witnesses)).collect()
}

/// What a member of the tip tells of its operations there.
struct Witness<'a> {
    /// Its rank there; one that does not say it counts as taking part in everything.
    rank: Option<Rank>,
    /// What it lists, if it has installed the tip.
    closing: Option<&'a Closing>,
}

fn succeeds(accepted: &Accepted, tip: ViewId) -> bool {
    accepted.parent == Some(tip) && accepted.id.ballot > tip.ballot
}

/// Whether all who take part hold its result. An operation that is on no list was not begun there, or is decided everywhere.
///
/// A message that both ends know as committed need not be said again: of those there may be more than a View has room for.
fn to_be_committed(op: OpId, witnesses: &[Witness<'_>]) -> bool {
    let participants = op.lane.participants(MEMBERS_MAX);
    let takes_part = |w: &&Witness<'_>| w.rank.is_none_or(|rank| participants >> rank.0 & 1 == 1);
    let status = |w: &Witness<'_>| Some(w.closing?.ops.iter().find(|l| l.op == op)?.status);
    let statuses: Option<Vec<Status>> = witnesses.iter().filter(takes_part).map(status).collect();
    let Some(statuses) = statuses else { return false };
    if op.lane.ends().is_some() && statuses.iter().all(|status| *status == Status::Committed) {
        return false;
    }
    let digests: BTreeSet<u128> = statuses.iter().filter_map(|s| if let Status::Done(d) = s { Some(*d) } else { None }).collect();
    digests.len() <= 1 && statuses.iter().all(|s| matches!(s, Status::Done(_) | Status::Committed))
}

fn listed(promise: &Promise, op: OpId) -> Option<&Listed> {
    promise.closing.ops.iter().find(|l| l.op == op)
}

/// A member's history once the tip's operations are decided.
pub(super) fn history_after(
    id: MemberId,
    promise: &Promise,
    tip: Option<ViewId>,
    committed: &[OpId],
    promises: &BTreeMap<MemberId, Promise>,
) -> Option<History> {
    let Some(prev) = promise.prev else { return promise.base };
    if promise.cut_off {
        return Some(cut_off(id, prev, promise));
    }
    let open = |l: &&Listed| matches!(l.status, Status::Done(_) | Status::NotDone);
    let moved_on = Some(prev) == tip;
    if !moved_on && promise.closing.ops.iter().any(|l| open(&l)) {
        return Some(cut_off(id, prev, promise));
    }
    let newly = if moved_on { newly_committed(promise, committed) } else { 0 };
    let total = promise.closing.committed + newly;
    // A member whose View was out of step and saw a sync committed is on that View's history, like the others there.
    let base = if moved_on { common_base(prev, promises).unwrap_or(promise.base) } else { promise.base };
    if total == 0 { promise.base } else { Some(advance(base, prev, total)) }
}

fn newly_committed(promise: &Promise, committed: &[OpId]) -> u64 {
    // Messages are no part of a history: only two members see them.
    let common = committed.iter().filter(|op| op.lane.ends().is_none());
    let known = |op: &&OpId| !listed(promise, **op).is_some_and(|l| l.status == Status::Committed);
    common.filter(known).count() as u64
}

/// The longest history with which any of the promisers entered `view`: the one a sync in it spread.
fn common_base(view: ViewId, promises: &BTreeMap<MemberId, Promise>) -> Option<Option<History>> {
    promises.values().filter(|p| p.prev == Some(view)).map(|p| p.base).max()
}

/// The history after `ops` operations were committed in `view`.
pub(super) fn advance(base: Option<History>, view: ViewId, ops: u64) -> History {
    let mut hash = Sha256::new();
    hash.update(b"potluck/1/lineage");
    hash.update(view.digest.0);
    History { ops: base.map_or(0, |h| h.ops).saturating_add(ops), lineage: hash.finalize().into() }
}

/// The history of a member that cannot know what became of its operations: its own, shared with nobody.
fn cut_off(id: MemberId, view: ViewId, promise: &Promise) -> History {
    let mut hash = Sha256::new();
    hash.update(b"potluck/1/cut off");
    hash.update(view.digest.0);
    hash.update(id.node.0);
    hash.update(id.boot.0.to_le_bytes());
    let ops = promise.base.map_or(0, |h| h.ops).saturating_add(promise.closing.committed);
    History { ops, lineage: hash.finalize().into() }
}

/// More operations win, then more members, then the smaller lineage.
fn winner(effective: &BTreeMap<MemberId, Option<History>>) -> Option<History> {
    let mut followers: BTreeMap<Option<History>, usize> = BTreeMap::new();
    for history in effective.values() {
        *followers.entry(*history).or_default() += 1;
    }
    let best = followers.into_iter().max_by_key(|(h, n)| (h.map(|h| h.ops), *n, std::cmp::Reverse(h.map(|h| h.lineage))));
    best.and_then(|(history, _)| history)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engines;
    use crate::identity::Name;
    use crate::view::testing::{member_id, view_of};
    use crate::view::{Ballot, Lane, View};

    const OP: OpId = OpId { lane: Lane::MAIN, number: 0 };

    fn fresh() -> Promise {
        Promise {
            cut_off: false,
            prev: None,
            rank: None,
            base: None,
            closing: Closing::default(),
            accepted: None,
            accepted_here: None,
            name: Name::from_lossy("x"),
            stateless: false,
            engines: Engines::NATIVE,
        }
    }

    fn in_view(view: &View, status: Option<Status>) -> Promise {
        let ops = status.into_iter().map(|status| Listed { op: OP, status, is_sync: false }).collect();
        Promise { prev: Some(view.id()), closing: Closing { ops, committed: 0 }, ..fresh() }
    }

    fn all(promises: impl IntoIterator<Item = Promise>) -> BTreeMap<MemberId, Promise> {
        promises.into_iter().enumerate().map(|(i, p)| (member_id(i as u8 + 1), p)).collect()
    }

    #[test]
    fn members_without_a_past_agree() {
        let standing = read(&all([fresh(), fresh()]));
        assert_eq!((standing.tip, standing.history, standing.in_sync.len()), (None, None, 2));
    }

    #[test]
    fn what_all_hold_is_committed_and_what_one_lacks_is_not() {
        let view = view_of(3);
        let done = in_view(&view, Some(Status::Done(1)));
        assert_eq!(read(&all([done.clone(), done.clone()])).committed, [OP]);
        for lacking in [None, Some(Status::NotDone), Some(Status::Aborted), Some(Status::Done(2))] {
            assert!(read(&all([done.clone(), in_view(&view, lacking)])).committed.is_empty(), "{lacking:?}");
        }
        assert_eq!(read(&all([done, in_view(&view, Some(Status::Committed))])).committed, [OP]);
    }

    #[test]
    fn an_accepted_successor_has_already_decided() {
        let view = view_of(3);
        let later = Ballot { round: 5, ..view.ballot };
        let id = ViewId { ballot: later, digest: view.digest() };
        let accepted = Accepted { id, parent: Some(view.id()), committed: vec![] };
        let done = in_view(&view, Some(Status::Done(1)));
        let acceptor = Promise { accepted: Some(accepted), accepted_here: Some(Rank(1)), ..done.clone() };
        assert!(read(&all([done, acceptor])).committed.is_empty());
    }

    /// Of three members, what the ends of a message from rank 0 to rank 2 say of it; rank 1 has no part in it.
    fn of_a_message(view: &View, from: Option<Status>, to: Option<Status>) -> Standing {
        let op = OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 };
        let said = [from, None, to].into_iter().enumerate().map(|(rank, status)| {
            let ops = status.into_iter().map(|status| Listed { op, status, is_sync: false }).collect();
            let closing = Closing { ops, committed: 0 };
            Promise { prev: Some(view.id()), rank: Some(Rank(rank as u8)), closing, ..fresh() }
        });
        read(&all(said))
    }

    #[test]
    fn a_message_is_decided_by_its_ends() {
        let view = view_of(3);
        let done = Some(Status::Done(0));
        let standing = of_a_message(&view, done, done);
        assert_eq!(standing.committed.len(), 1);
        assert_eq!((standing.history, standing.in_sync.len()), (None, 3), "it is no part of a history");
        for lacking in [None, Some(Status::NotDone), Some(Status::Aborted)] {
            assert!(of_a_message(&view, done, lacking).committed.is_empty(), "{lacking:?}");
        }
        assert_eq!(of_a_message(&view, done, Some(Status::Committed)).committed.len(), 1);
        // Both know it already, and there may be more of those than a View has room for.
        assert!(of_a_message(&view, Some(Status::Committed), Some(Status::Committed)).committed.is_empty());
    }

    #[test]
    fn a_message_to_a_member_that_has_not_installed_the_view_has_not_arrived() {
        let view = view_of(3);
        let op = OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 };
        let closing = Closing { ops: vec![Listed { op, status: Status::Done(0), is_sync: false }], committed: 0 };
        let sender = Promise { prev: Some(view.id()), rank: Some(Rank(0)), closing, ..fresh() };
        let accepted = Some(Accepted { id: view.id(), parent: None, committed: vec![] });
        let behind = |rank| Promise { accepted: accepted.clone(), accepted_here: Some(Rank(rank)), ..fresh() };
        assert!(read(&all([sender.clone(), behind(2)])).committed.is_empty());
        assert_eq!(read(&all([sender, behind(1)])).committed, [op], "the other end is gone, and this one is not it");
    }

    #[test]
    fn a_member_that_accepted_the_tip_and_never_installed_it_holds_nothing() {
        let view = view_of(3);
        let accepted = Accepted { id: view.id(), parent: None, committed: vec![] };
        let done = in_view(&view, Some(Status::Done(1)));
        let behind = Promise { accepted: Some(accepted), accepted_here: Some(Rank(1)), ..fresh() };
        assert!(read(&all([done.clone(), behind.clone()])).committed.is_empty());
        let restarted = Promise { accepted_here: None, ..behind };
        assert_eq!(read(&all([done, restarted])).committed, [OP]);
    }

    #[test]
    fn the_parent_of_an_accepted_view_was_installed() {
        let old = view_of(3);
        let mut newer = view_of(3);
        newer.ballot.round = 4;
        let last = ViewId { ballot: Ballot { round: 9, ..newer.ballot }, digest: newer.digest() };
        let accepted = Accepted { id: last, parent: Some(newer.id()), committed: vec![] };
        let acceptor = Promise { accepted: Some(accepted), ..in_view(&old, None) };
        assert_eq!(read(&all([in_view(&old, None), acceptor])).tip, Some(newer.id()));
    }

    #[test]
    fn a_joiner_does_not_share_the_history_of_veterans() {
        let view = view_of(2);
        let veteran = Promise { closing: Closing { ops: vec![], committed: 4 }, ..in_view(&view, None) };
        let standing = read(&all([veteran.clone(), veteran, fresh()]));
        assert_eq!(standing.history.map(|h| h.ops), Some(4));
        assert_eq!(standing.in_sync, BTreeSet::from([member_id(1), member_id(2)]));
    }

    #[test]
    fn members_that_move_on_together_agree_though_one_knew_less() {
        let view = view_of(2);
        let knows = Promise {
            closing: Closing { ops: vec![Listed { op: OP, status: Status::Committed, is_sync: false }], committed: 1 },
            ..in_view(&view, None)
        };
        let standing = read(&all([knows, in_view(&view, Some(Status::Done(3)))]));
        assert_eq!((standing.committed.len(), standing.in_sync.len()), (1, 2));
        assert_eq!(standing.history.map(|h| h.ops), Some(1));
    }

    #[test]
    fn a_member_left_behind_in_doubt_shares_with_nobody() {
        let old = view_of(3);
        let mut new = view_of(2);
        new.ballot.round = 7;
        let behind = in_view(&old, Some(Status::Done(1)));
        let moved = Promise { closing: Closing { ops: vec![], committed: 3 }, ..in_view(&new, None) };
        let standing = read(&all([behind, moved.clone(), moved]));
        assert_eq!(standing.in_sync, BTreeSet::from([member_id(2), member_id(3)]));
    }
}
