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
    /// The operations of the parent that are committed. Of its other operations that this View
    /// decides, those in `failed` fail, and the rest are aborted.
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

/// Pairs of ranks, at most all of a View.
struct Pairs;

impl Pairs {
    fn put(&self, pairs: &[(Rank, Rank)], out: &mut Vec<u8>) {
        (pairs.len() as u16).encode(out);
        pairs.iter().for_each(|pair| pair.encode(out));
    }

    fn read(&self, r: &mut Reader<'_>) -> Result<Vec<(Rank, Rank)>, Malformed> {
        let count = usize::from(r.u16()?);
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

    /// The number of members with which a group of these members begins.
    pub fn to_begin(&self) -> usize {
        self.members.iter().map(|m| m.sizes.members()).max().unwrap_or(0)
    }

    /// The most members that a View with these may have.
    pub fn at_most(&self) -> usize {
        self.members.iter().map(|m| m.sizes.max_members()).min().unwrap_or(MEMBERS_MAX)
    }

    /// Whether a node with this `min_members` hands the View to its program.
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
            && self.orders_pairs_without_a_link()
            && self.plan.avoids(&self.no_direct_link)
    }

    fn orders_pairs_without_a_link(&self) -> bool {
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
mod tests;
