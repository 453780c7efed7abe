//! Layer: Core.
//!
//! What the protocol claims, and everything that has to be remembered of a run to see whether it
//! holds.
//!
//! The model and the simulation tell a [`History`] what their nodes do; it says which claims are
//! broken.

use super::Decides;
use crate::collective::{Ledger, Outcome};
use crate::identity::{MemberId, NodeId};
use crate::view::{Ballot, Member, OpId, View, ViewDigest, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// One claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Claim {
    /// S1: one ballot, one View.
    OneViewPerBallot,
    /// S2: the Views of a node grow, across restarts too.
    ViewsGrow,
    /// S3: a View is installed by its members, and after all of them have accepted it.
    AllHaveAccepted,
    /// S4: data links are open for the View a node is in or is about to install, and no other.
    OneViewIsOpen,
    /// S5: what a member has reported of a View it left does not change, and it votes there no
    /// more.
    FrozenStays,
    /// A1: members that go on together have one outcome for every operation.
    TogetherAlike,
    /// A2u: what all held is nowhere aborted.
    UnanimousStands,
    /// A2, where Views are majorities: one outcome of an operation, whoever goes on with whom.
    OneOutcome,
    /// Members that a View calls in sync have seen the same operations committed.
    InSync,
    /// An operation ends once on each member.
    EndsOnce,
    /// Who answers `Ok` holds the result.
    OkHolds,
    /// A View takes the state of those who have lived through most.
    MostWins,
}

impl Claim {
    pub(super) const ALL: [Claim; 12] = [
        Claim::OneViewPerBallot,
        Claim::ViewsGrow,
        Claim::AllHaveAccepted,
        Claim::OneViewIsOpen,
        Claim::FrozenStays,
        Claim::TogetherAlike,
        Claim::UnanimousStands,
        Claim::OneOutcome,
        Claim::InSync,
        Claim::EndsOnce,
        Claim::OkHolds,
        Claim::MostWins,
    ];

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Claim::OneViewPerBallot => "S1",
            Claim::ViewsGrow => "S2",
            Claim::AllHaveAccepted => "S3",
            Claim::OneViewIsOpen => "S4",
            Claim::FrozenStays => "S5",
            Claim::TogetherAlike => "A1",
            Claim::UnanimousStands => "A2u",
            Claim::OneOutcome => "A2",
            Claim::InSync => "in sync",
            Claim::EndsOnce => "ends once",
            Claim::OkHolds => "Ok holds",
            Claim::MostWins => "most wins",
        }
    }
}

/// Something that a member does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Deed {
    /// Its acceptance has left, and is durable.
    Accepted(ViewId),
    /// It goes on to a View. Comes before what that one decides.
    Installs { before: Option<ViewId>, view: Arc<View>, decides: Decides },
    /// It has gone on. Comes after it.
    Installed { before: Option<ViewId>, view: Arc<View> },
    /// An operation of a View has ended: `next` is the View that decided it, none when the votes
    /// did.
    Ended { op: (ViewId, OpId), ending: Ending, next: Option<ViewId> },
    /// It may call operations of this View, which it has just installed.
    Runs(ViewId),
    /// It has broken a claim about each member.
    Breaks(Claim),
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Accepted(id) => write!(f, "has accepted {}", id.ballot.round),
            Deed::Installs { view, .. } => {
                let parent = view.parent.map_or(0, |v| v.ballot.round);
                let member = |m: &Member| {
                    format!(
                        "{}.{}{}",
                        m.id.node.0[0],
                        m.id.boot.0,
                        if m.in_sync { "" } else { "*" }
                    )
                };
                let members: Vec<String> = view.members.iter().map(member).collect();
                let history = view.history;
                write!(
                    f,
                    "installs {} of {parent}, [{}], commits {:?}, {history:?}",
                    view.ballot.round,
                    members.join(" "),
                    view.committed
                )
            }
            Deed::Installed { .. } => write!(f, "has installed it"),
            Deed::Ended { op: (view, op), ending, next } => {
                let by = if next.is_some() { "by the View" } else { "by votes" };
                write!(f, "{op} of {} ends {by}: {ending}", view.ballot.round)
            }
            Deed::Runs(id) => write!(f, "runs {}", id.ballot.round),
            Deed::Breaks(claim) => write!(f, "breaks {}", claim.name()),
        }
    }
}

/// How an operation ended on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    who: MemberId,
    end: End,
    /// The votes of all decided it, not a View.
    by_votes: bool,
    /// The View made of the operation's, if this member went on to it.
    next: Option<ViewId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Ok,
    Aborted,
    Unknown,
}

/// What of its program's state a member has lived through, as a hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Life {
    before: Lived,
    /// Committed in the View it is in.
    here: BTreeSet<OpId>,
}

/// What a state has lived through: how many operations, and a hash of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Lived {
    ops: usize,
    hash: u64,
}

/// What has happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    views: BTreeMap<Ballot, ViewId>,
    accepted: BTreeSet<(MemberId, ViewId)>,
    newest: BTreeMap<NodeId, Ballot>,
    /// Who has run which View.
    running: BTreeMap<ViewId, BTreeSet<MemberId>>,
    answers: BTreeMap<(ViewId, OpId), Vec<Answer>>,
    lives: BTreeMap<MemberId, Life>,
    /// What those lived through whom a View calls in sync, when they installed it.
    synced: BTreeMap<ViewId, Lived>,
    /// Most operations that somebody whom a View calls out of sync had lived through, when he
    /// installed it.
    others: BTreeMap<ViewId, usize>,
    /// By claim, a bit each.
    broken: u16,
    /// Which ends were seen, a bit each.
    seen: u8,
    /// Halves of a parted group that decided one operation differently: allowed, but for
    /// majorities.
    pub(super) halves_differ: bool,
}

impl History {
    pub(super) fn is_broken(&self, claim: Claim) -> bool {
        self.broken >> claim as u8 & 1 == 1
    }

    pub(super) fn broken(&self) -> impl Iterator<Item = Claim> {
        Claim::ALL.into_iter().filter(|claim| self.is_broken(*claim))
    }

    pub(super) fn expect(&mut self, claim: Claim, holds: bool) {
        self.broken |= u16::from(!holds) << claim as u8;
    }

    /// A member has done something.
    pub(super) fn note(&mut self, who: MemberId, deed: &Deed) {
        match deed {
            Deed::Accepted(id) => self.accepted(who, *id),
            Deed::Installs { before, view, decides } => {
                self.installs(who, *before, view, view.id(), *decides)
            }
            Deed::Installed { before, view } => self.installed(who, *before, view, view.id()),
            Deed::Ended { op, ending, next } => self.ended(who, *op, *ending, *next),
            Deed::Runs(id) => self.runs(who, *id),
            Deed::Breaks(claim) => self.expect(*claim, false),
        }
    }

    fn runs(&mut self, who: MemberId, id: ViewId) {
        self.running.entry(id).or_default().insert(who);
    }

    /// Whether all members of a View have run it, so that all may have called its operations.
    pub(super) fn all_have_run(&self, view: &View) -> bool {
        let mut running =
            self.running.range(ViewId { ballot: view.ballot, digest: ViewDigest([0; 32]) }..);
        running.next().is_some_and(|(id, who)| id.ballot == view.ballot && who.len() == view.size())
    }

    fn accepted(&mut self, who: MemberId, id: ViewId) {
        self.accepted.insert((who, id));
    }

    fn installs(
        &mut self,
        who: MemberId,
        before: Option<ViewId>,
        view: &View,
        id: ViewId,
        decides: Decides,
    ) {
        let known = *self.views.entry(view.ballot).or_insert(id);
        self.expect(Claim::OneViewPerBallot, known == id);
        let newest = self.newest.insert(who.node, view.ballot);
        self.expect(Claim::ViewsGrow, newest.is_none_or(|newest| newest < view.ballot));
        let all =
            view.contains(who) && view.members.iter().all(|m| self.accepted.contains(&(m.id, id)));
        self.expect(Claim::AllHaveAccepted, all);
        if decides == Decides::Parent {
            let answers = self.answers.iter_mut().filter(|((view, _), _)| Some(*view) == before);
            answers
                .flat_map(|(_, all)| all)
                .filter(|a| a.who == who)
                .for_each(|a| a.next = Some(id));
        }
    }

    fn installed(&mut self, who: MemberId, before: Option<ViewId>, view: &View, id: ViewId) {
        let life = self.lives.entry(who).or_default();
        if !life.here.is_empty() {
            let lived = Lived {
                ops: life.before.ops + life.here.len(),
                hash: hash(&(before, life.before, &life.here)),
            };
            *life = Life { before: lived, ..Life::default() };
        }
        let lived = life.before;
        if view.rank_of(who).and_then(|r| view.member(r)).is_some_and(|m| m.in_sync) {
            let common = *self.synced.entry(id).or_insert(lived);
            self.expect(Claim::InSync, common == lived);
        } else {
            let most = self.others.entry(id).or_default();
            *most = lived.ops.max(*most);
        }
        if let (Some(common), Some(most)) = (self.synced.get(&id), self.others.get(&id)) {
            let holds = common.ops >= *most;
            self.expect(Claim::MostWins, holds);
        }
        if let Some(before) = before {
            let ops: Vec<(ViewId, OpId)> =
                self.answers.keys().filter(|(view, _)| *view == before).copied().collect();
            ops.into_iter().for_each(|op| self.compare(op));
        }
    }

    fn ended(&mut self, who: MemberId, op: (ViewId, OpId), ending: Ending, next: Option<ViewId>) {
        let counts = ending.counts;
        let end = match ending.outcome {
            Outcome::Committed => End::Ok,
            Outcome::Aborted(_) => End::Aborted,
            Outcome::Indeterminate | Outcome::DigestMismatch => End::Unknown,
        };
        let all = self.answers.entry(op).or_default();
        let once = all.iter().all(|a| a.who != who);
        // Kept in order, for the same history by whatever way.
        let at = all.partition_point(|a| a.who < who);
        all.insert(
            at,
            Answer {
                who,
                end,
                by_votes: next.is_none(),
                next: next.filter(|_| end != End::Unknown),
            },
        );
        self.expect(Claim::EndsOnce, once);
        self.expect(Claim::OkHolds, end != End::Ok || ending.held);
        self.seen |= match (end, next) {
            (End::Ok, None) => 1,
            (End::Ok, Some(_)) => 2,
            (End::Aborted, _) => 4,
            (End::Unknown, _) => 8,
        };
        if counts == Counts::Alone {
            self.answers.remove(&op);
            return;
        }
        self.compare(op);
        if counts == Counts::ForTwo {
            return;
        }
        let common = self.synced.get(&op.0).copied();
        let life = self.lives.entry(who).or_default();
        if let (End::Ok, Counts::AsSync, Some(common)) = (end, counts, common) {
            life.before = common;
        }
        if end == End::Ok {
            life.here.insert(op.1);
        }
    }

    /// Whether some operation has ended in this way.
    pub(super) fn has_seen(&self, way: Way) -> bool {
        self.seen >> way as u8 & 1 == 1
    }

    fn compare(&mut self, op: (ViewId, OpId)) {
        let Some(all) = self.answers.get(&op) else { return };
        let aborted = all.iter().any(|a| a.end == End::Aborted);
        let ok = all.iter().any(|a| a.end == End::Ok);
        let unanimous = all.iter().any(|a| a.end == End::Ok && a.by_votes);
        let definite = |a: &&Answer| a.end != End::Unknown && a.next.is_some();
        let alike =
            |a: &Answer| all.iter().filter(definite).all(|b| a.next != b.next || a.end == b.end);
        let together = all.iter().filter(definite).all(alike);
        self.expect(Claim::TogetherAlike, together);
        self.expect(Claim::UnanimousStands, !(unanimous && aborted));
        self.halves_differ |= ok && aborted;
    }
}

/// A way in which an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    CommittedByVotes,
    CommittedByView,
    Aborted,
    Unknown,
}

/// How an operation ends on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) counts: Counts,
    /// The member holds a result.
    held: bool,
}

impl Ending {
    /// As the member's ledger has it.
    pub(super) fn of(ledger: &Ledger, op: OpId, outcome: Outcome) -> Ending {
        let counts = match () {
            () if op.lane.ends().is_some() => Counts::ForTwo,
            () if ledger.is_of_sync(op) => Counts::AsSync,
            () => Counts::ForAll,
        };
        Ending { outcome, counts, held: ledger.holds(op) }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.outcome {
            Outcome::Committed => f.write_str("Ok"),
            Outcome::Aborted(_) => f.write_str("Aborted"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What an operation is to the common history of a View's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Counts {
    /// A part of it.
    ForAll,
    /// The same; and it brings everybody to the history of those in sync.
    AsSync,
    /// A message, of which two know.
    ForTwo,
    /// Decided by each member for itself.
    Alone,
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
