//! A [`View`] is an agreed membership: the members in rank order, the ballot, the plan and the
//! engine.
//!
//! Nothing is repaired within a View. When the membership or a link changes, the group agrees on a
//! new View, opens new links and drops the old ones. The proposer chooses everything in a View and
//! sends it; no member derives any of it again.

#[cfg(any(fuzzing, test))]
pub(crate) use testing::{member_id, view_of};

use super::ballot::Ballot;
use super::committed_op::CommittedOp;
use super::engine::{EngineChoice, EngineKind, EngineReason};
use super::failed_op::FailedOp;
#[cfg(test)]
use super::failed_op::Failure;
use super::history::History;
#[cfg(test)]
use super::op_id::{Lane, OpId};
use super::plan::Plan;
use super::rank::{MEMBERS_MAX, Rank};
use super::rank_set::RankSet;
use super::sizes::Sizes;
use super::view_id::{ViewDigest, ViewId};
use crate::identity::{MemberId, Name};
use crate::wire::layout::{List, layout};
use crate::wire::{Decode, Encode, Malformed, Reader};
use sha2::{Digest, Sha256};

/// Most undecided operations that a member has called; the next call is refused with
/// `TooManyInFlight`.
pub const OPS_IN_FLIGHT_MAX: usize = if cfg!(potluck_tight) { 4 } else { 64 };

/// Most of these that may be operations of some members only: messages (`send`, `recv`), and calls
/// of sub-groups.
pub const OF_SOME_IN_FLIGHT_MAX: usize = if cfg!(potluck_tight) { 2 } else { 32 };

/// Most called operations that a member keeps on its list: those in flight, and those decided here
/// that some other member has not reported as decided. A call beyond it is refused with
/// `TooManyInFlight`, but a member is at most 64 operations ahead of the slowest, so
/// `OPS_IN_FLIGHT_MAX` is reached first.
pub const OPS_LISTED_MAX: usize = if cfg!(potluck_tight) { 4 } else { 256 };

/// Most operations of its parent that a View names, as committed or as failed: those that all
/// members list, those of some members in flight at one of them, and such ones that an adopted
/// successor has committed.
pub const OPS_DECIDED_MAX: usize = OPS_LISTED_MAX + 2 * MEMBERS_MAX * OF_SOME_IN_FLIGHT_MAX;

/// One member of a View.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The node and its boot.
    pub id: MemberId,
    /// Its display name.
    pub name: Name,
    /// It has no state to keep in sync, see `Builder::stateless`.
    pub stateless: bool,
    /// Its history is the View's.
    pub in_sync: bool,
    /// The sizes of the group that it asks for.
    pub sizes: Sizes,
}

layout!(Member { id, name, [stateless, in_sync], sizes });

/// An agreed membership, see the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// The ballot under which it was agreed; it grows from View to View of a member.
    pub ballot: Ballot,
    /// The View whose operations this one decides; `None` if no member has installed one.
    pub parent: Option<ViewId>,
    /// The committed operations of the parent. Every other undecided one fails or is aborted.
    pub committed: Vec<CommittedOp>,
    /// The operations of the parent that fail although members hold results of them.
    pub failed: Vec<FailedOp>,
    /// The ranks of the parent by whose reports this View decides, or by whose reports a View did
    /// whose decision is adopted here. It decides an operation if one of its participants is among
    /// them; about any other one it says nothing, since its members may still commit that.
    pub decided_by: RankSet,
    /// The winning history among the members.
    pub history: Option<History>,
    /// The members in rank order.
    pub members: Vec<Member>,
    /// The group has begun: this View has as many members as each of them wants for that, or one of
    /// them comes from a View that had begun.
    pub begun: bool,
    /// How the members communicate.
    pub plan: Plan,
    /// The engine that all of them run, and the reason for it.
    pub engine: EngineChoice,
    /// Pairs without a direct link, lower rank first, in ascending order. They have no data link,
    /// and the plan sends nothing directly between them.
    pub no_direct_link: Vec<(Rank, Rank)>,
}

layout! {
    View {
        ballot,
        parent,
        committed: List(OPS_DECIDED_MAX),
        failed: List(OPS_DECIDED_MAX.saturating_sub(committed.len())),
        decided_by,
        history,
        members: List(MEMBERS_MAX),
        [begun],
        plan,
        engine,
        no_direct_link: Pairs,
    }
    if View::is_consistent
}

/// Pairs of ranks. Their count is one byte: 16 ranks have 16 * 15 / 2 = 120 pairs.
struct Pairs;

impl Pairs {
    fn put(&self, pairs: &[(Rank, Rank)], out: &mut Vec<u8>) {
        (pairs.len() as u8).encode(out);
        pairs.iter().for_each(|pair| pair.encode(out));
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<Vec<(Rank, Rank)>, Malformed> {
        let count = usize::from(r.u8()?);
        if count > MEMBERS_MAX * (MEMBERS_MAX - 1) / 2 {
            return Err(Malformed::TooLong);
        }
        (0..count).map(|_| <(Rank, Rank)>::decode(r)).collect()
    }
}

impl View {
    /// The View's identifier.
    pub fn id(&self) -> ViewId {
        ViewId { ballot: self.ballot, digest: self.digest() }
    }

    /// SHA-256 of the canonical encoding.
    pub fn digest(&self) -> ViewDigest {
        ViewDigest(Sha256::digest(self.to_bytes()).into())
    }

    /// How many members it has.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The rank of a member, if it is one.
    pub fn rank_of(&self, id: MemberId) -> Option<Rank> {
        self.members.iter().position(|m| m.id == id).and_then(|i| u8::try_from(i).ok()).map(Rank)
    }

    /// The member at a rank.
    pub fn member(&self, rank: Rank) -> Option<&Member> {
        self.members.get(rank.index())
    }

    /// Whether this boot of this node is a member.
    pub fn contains(&self, id: MemberId) -> bool {
        self.rank_of(id).is_some()
    }

    /// All ranks in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.members.len()).filter_map(|i| u8::try_from(i).ok()).map(Rank)
    }

    /// Whether plans of this View may use this engine. A View always allows its own engine. A View
    /// of more than two members allows both if the links decided its engine (all have Gloo, none
    /// demands it).
    pub fn runs(&self, engine: EngineKind) -> bool {
        let goes_by_links =
            matches!(self.engine.why, EngineReason::AllHaveGloo | EngineReason::Heterogeneous);
        engine == self.engine.kind || goes_by_links && self.size() > 2
    }

    /// The engine of calls under a plan of this View, and the reason for it.
    pub fn engine_under(&self, plan: &Plan) -> EngineChoice {
        match plan.engine() {
            kind if kind == self.engine.kind => self.engine,
            kind @ EngineKind::Gloo => EngineChoice { kind, why: EngineReason::AllHaveGloo },
            kind @ EngineKind::Native => EngineChoice { kind, why: EngineReason::Heterogeneous },
        }
    }

    /// Whether these two have no direct link.
    pub fn lack_direct_link(&self, a: Rank, b: Rank) -> bool {
        self.no_direct_link.binary_search(&(a.min(b), a.max(b))).is_ok()
    }

    /// The members with which a group of these begins that has no history.
    pub fn to_begin(&self) -> usize {
        self.members.iter().map(|m| m.sizes.members()).max().unwrap_or(0)
    }

    /// The most members that a View with these may have.
    pub fn at_most(&self) -> usize {
        self.members.iter().map(|m| m.sizes.max_members()).min().unwrap_or(MEMBERS_MAX)
    }

    /// Whether a node that goes on with this many members hands it out.
    pub fn is_enough_for(&self, min_members: usize) -> bool {
        self.begun && self.size() >= min_members
    }

    /// The others that this rank has a data link to.
    pub fn linked_with(&self, me: Rank) -> impl Iterator<Item = Rank> {
        self.ranks().filter(move |peer| *peer != me && !self.lack_direct_link(me, *peer))
    }

    /// Whether the members share one history. Without it, calls need a `sync` first.
    pub fn in_sync(&self) -> bool {
        self.members.iter().all(|m| m.in_sync) || self.members.iter().all(|m| m.stateless)
    }

    /// Whether an honest member may have made it: members are distinct nodes, the proposer is one
    /// of them, the parent is older and present if its operations are decided, all members allow
    /// the size, the group has begun if the size is enough for that, `no_direct_link` is sorted,
    /// and plan and engine fit the size, each other and the pairs without a link.
    pub fn is_consistent(&self) -> bool {
        let distinct = self
            .members
            .iter()
            .enumerate()
            .all(|(i, m)| self.members[..i].iter().all(|o| o.id.node != m.id.node));
        let parent_is_older = self.parent.is_none_or(|p| p.ballot < self.ballot);
        let decides_none =
            self.committed.is_empty() && self.failed.is_empty() && self.decided_by.is_empty();
        distinct
            && parent_is_older
            && (decides_none || self.parent.is_some())
            && self.contains(self.ballot.proposer)
            && self.size() <= self.at_most()
            && (self.begun || self.size() < self.to_begin())
            && self.plan.fits(self.size())
            && self.plan.is_for(self.engine.kind)
            && self.engine.fits(self.size())
            && self.is_apart_in_order()
            && self.plan.avoids(&self.no_direct_link)
    }

    fn is_apart_in_order(&self) -> bool {
        let ascending = self.no_direct_link.windows(2).all(|two| two[0] < two[1]);
        ascending && self.no_direct_link.iter().all(|(a, b)| a < b && b.index() < self.size())
    }
}

#[cfg(any(fuzzing, test))]
pub(crate) mod testing {
    use crate::identity::Boot;
    use crate::identity::NodeId;

    use super::*;

    /// Member `n` of the tests.
    pub(crate) fn member_id(n: u8) -> MemberId {
        MemberId { node: NodeId([n; 32]), boot: Boot(u64::from(n)) }
    }

    /// A View of the members `1..=n` without a parent.
    pub(crate) fn view_of(n: u8) -> View {
        let members = (1..=n)
            .map(|i| Member {
                id: member_id(i),
                name: Name::from_lossy(&format!("n{i}")),
                stateless: false,
                in_sync: true,
                sizes: Sizes::default(),
            })
            .collect();
        View {
            ballot: Ballot { round: 1, proposer: member_id(1) },
            parent: None,
            committed: Vec::new(),
            failed: Vec::new(),
            decided_by: RankSet::EMPTY,
            history: None,
            members,
            begun: true,
            plan: Plan::mesh(usize::from(n)),
            engine: EngineChoice::NATIVE,
            no_direct_link: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{member_id, view_of};
    use super::*;
    use crate::topology::{LinkMap, Path, arrange};
    use crate::wire::assert_codec;

    /// A View of three members in a row: ranks 0 and 2 have no direct link.
    fn row() -> View {
        let mut links = LinkMap::new();
        for (a, b) in [(1, 2), (2, 1), (2, 3), (3, 2)] {
            links.observe(member_id(a), member_id(b), Path::unmeasured(100));
        }
        let arranged = arrange(
            &(1..=3).map(|n| (member_id(n), super::super::engine::Engines::NATIVE)).collect(),
            None,
            None,
            &links,
        );
        View {
            plan: arranged.plan,
            engine: arranged.engine,
            no_direct_link: arranged.no_direct_link,
            ..view_of(3)
        }
    }

    #[test]
    fn who_has_no_direct_link_is_told_in_one_form_and_the_plan_keeps_to_it() {
        let view = row();
        assert_codec(&view);
        assert!(
            view.lack_direct_link(Rank(0), Rank(2))
                && view.lack_direct_link(Rank(2), Rank(0))
                && !view.lack_direct_link(Rank(0), Rank(1))
        );
        assert_eq!(view.linked_with(Rank(0)).collect::<Vec<_>>(), [Rank(1)]);
        assert_eq!(view.linked_with(Rank(1)).collect::<Vec<_>>(), [Rank(0), Rank(2)]);
        let [last, first] = [(Rank(0), Rank(2)), (Rank(0), Rank(1))];
        for no_direct_link in [
            vec![(Rank(2), Rank(0))],
            vec![last, last],
            vec![last, first],
            vec![(Rank(0), Rank(3))],
            vec![first],
        ] {
            let bent = View { no_direct_link, ..row() };
            assert_eq!(
                View::from_bytes(&bent.to_bytes()),
                Err(Malformed::Inconsistent),
                "{:?}",
                bent.no_direct_link
            );
        }
        assert_eq!(
            View::from_bytes(&View { no_direct_link: vec![last], ..view_of(3) }.to_bytes()),
            Err(Malformed::Inconsistent)
        );
        let mut long = view_of(3).to_bytes();
        *long.last_mut().expect("it ends with their number") = 121;
        assert_eq!(View::from_bytes(&long), Err(Malformed::TooLong));
    }

    #[test]
    fn a_view_survives_the_wire() {
        let mut view = view_of(3);
        view.ballot.round = 9;
        view.parent = Some(view_of(2).id());
        let op = |number| OpId { lane: Lane::tagged(3).messages(Rank(0), Rank(1)), number };
        view.committed = vec![CommittedOp { op: op(17), digest: u128::MAX - 5 }];
        let failures = [None, Some(Rank(2))].map(Failure::Disputed);
        let failures = failures.into_iter().chain([Failure::Indeterminate]);
        view.failed = failures.map(|failure| FailedOp { op: op(18), failure }).collect();
        view.decided_by = RankSet::of_bits(3);
        view.history = Some(History { ops: 5, lineage: [9; 32] });
        assert_codec(&view);
    }

    #[test]
    fn a_view_that_contradicts_itself_is_refused() {
        let twice = View {
            members: vec![view_of(1).members[0].clone(), view_of(1).members[0].clone()],
            ..view_of(2)
        };
        let without_proposer =
            View { ballot: Ballot { round: 1, proposer: member_id(9) }, ..view_of(2) };
        let orphan = View {
            committed: vec![CommittedOp { op: OpId { lane: Lane::MAIN, number: 0 }, digest: 0 }],
            ..view_of(2)
        };
        let by_ranks_of_no_view = View { decided_by: RankSet::of_bits(1), ..view_of(2) };
        let failure = Failure::Disputed(None);
        let in_dispute_with_nobody = View {
            failed: vec![FailedOp { op: OpId { lane: Lane::MAIN, number: 0 }, failure }],
            ..view_of(2)
        };
        let parent =
            View { ballot: Ballot { round: 5, proposer: member_id(1) }, ..view_of(2) }.id();
        let older_than_parent = View { parent: Some(parent), ..view_of(2) };
        let failure = Failure::Indeterminate;
        let in_doubt_for_all = View {
            parent: Some(view_of(1).id()),
            failed: vec![FailedOp { op: OpId { lane: Lane::MAIN, number: 0 }, failure }],
            ..view_of(2)
        };
        for bad in [
            twice,
            without_proposer,
            orphan,
            by_ranks_of_no_view,
            in_dispute_with_nobody,
            in_doubt_for_all,
            older_than_parent,
        ] {
            assert_eq!(View::from_bytes(&bad.to_bytes()), Err(Malformed::Inconsistent));
        }
    }

    /// Members that want other sizes of the group are in one View where it fits all of them.
    #[test]
    fn a_view_keeps_to_the_sizes_of_its_members() {
        let with = |begun, sizes: [[usize; 3]; 3]| {
            let mut view = View { begun, ..view_of(3) };
            for (member, [members, min, max]) in view.members.iter_mut().zip(sizes) {
                member.sizes = Sizes::new(members, min, max).expect("they are in order");
            }
            view
        };
        let (usual, begins_with_four) = ([2, 2, 16], [4, 1, 4]);
        for (begun, sizes, is_consistent) in [
            (true, [usual, [3, 3, 3], usual], true),
            (true, [usual, usual, [2, 2, 2]], false),
            (false, [usual, usual, usual], false),
            (false, [usual, begins_with_four, usual], true),
            (true, [usual, begins_with_four, usual], true),
        ] {
            let view = with(begun, sizes);
            assert_eq!(view.is_consistent(), is_consistent, "{begun}, {sizes:?}");
            assert_eq!(View::from_bytes(&view.to_bytes()).is_ok(), is_consistent);
        }
        let view = with(false, [usual, begins_with_four, usual]);
        assert_eq!((view.to_begin(), view.at_most()), (4, 4));
        assert!(!view.is_enough_for(2));
        let begun = View { begun: true, ..view };
        assert!(begun.is_enough_for(3) && !begun.is_enough_for(4));
    }

    #[test]
    fn committed_and_failed_operations_share_one_limit() {
        let op = |number| OpId { lane: Lane::MAIN.messages(Rank(0), Rank(1)), number };
        let of = |committed: usize, failed: usize| View {
            parent: Some(ViewId { ballot: Ballot::ZERO, digest: ViewDigest([0; 32]) }),
            committed: (0..committed as u64)
                .map(|n| CommittedOp { op: op(n), digest: 1 })
                .collect(),
            failed: (0..failed as u64)
                .map(|n| FailedOp { op: op(n), failure: Failure::Indeterminate })
                .collect(),
            ..view_of(2)
        };
        for committed in [0, 1, OPS_DECIDED_MAX] {
            let full = of(committed, OPS_DECIDED_MAX - committed);
            assert_eq!(View::from_bytes(&full.to_bytes()), Ok(full));
            let over = of(committed, OPS_DECIDED_MAX - committed + 1);
            assert_eq!(View::from_bytes(&over.to_bytes()), Err(Malformed::TooLong));
        }
    }

    #[test]
    fn the_digest_covers_the_rank_order() {
        let view = view_of(3);
        let mut swapped = view.clone();
        swapped.members.swap(0, 1);
        assert_ne!(view.digest(), swapped.digest());
    }
}
