//! The claims of the protocol, and the record of a run that is needed to check them.
//!
//! The model and the simulation of elections report the acts of their nodes to a [`History`], which
//! knows the broken claims.

use crate::collective::Ledger;
use crate::election::Decides;
use crate::identity::{MemberId, NodeId};
use crate::protocol::{Ballot, Member, OpId, Outcome, View, ViewDigest, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A claim; see "Guarantees" in ARCHITECTURE.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(super) enum Claim {
    /// S1: one ballot, one View.
    OneViewPerBallot,
    /// S2: the ballots of the Views that a node installs grow, across restarts too.
    ViewsGrow,
    /// S3: only members install a View, and only after all members have accepted it.
    AllHaveAccepted,
    /// S4: data links are open only for the installed View and the one about to be installed.
    OneViewIsOpen,
    /// S5: a member's report on a View it left does not change, and it casts no more votes there.
    FrozenStays,
    /// A1: members that go on together have one outcome for every operation.
    TogetherAlike,
    /// A2u: an operation committed by the votes of all is aborted nowhere.
    UnanimousStands,
    /// A2, under `Majority` only: one definite outcome of an operation across all members.
    OneOutcome,
    /// Members that a View calls in sync have seen the same operations committed.
    InSync,
    /// An operation ends once on each member.
    EndsOnce,
    /// A member that answers `Ok` holds the result.
    OkHolds,
    /// A4: a View takes the history with the most operations.
    MostWins,
    /// A5, without time: no View is begun of nodes outside a running View if one of them has been
    /// told of that View by all its members. The simulation of groups checks A5 with a clock.
    OneHistory,
    /// No operation runs under two plans.
    OnePlan,
    /// L1, without time: once no message, write or result is on its way, no call that all members
    /// have made is open, and each member may make the next one.
    Answered,
    /// No honest member is taken for one that breaks the protocol.
    Honest,
    /// S6: no View has more members than each of them allows. One that has begun has as many as
    /// each of them wants for that, or a member from such a View; and a member from such a View, if
    /// it ran there, is in no View that has not begun.
    SizesHold,
}

impl Claim {
    pub(super) const ALL: [Claim; 17] = [
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
        Claim::OneHistory,
        Claim::OnePlan,
        Claim::Answered,
        Claim::Honest,
        Claim::SizesHold,
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
            Claim::OneHistory => "A5",
            Claim::OnePlan => "one plan",
            Claim::Answered => "L1",
            Claim::Honest => "honest",
            Claim::SizesHold => "S6",
        }
    }
}

/// An observable act of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Act {
    /// It has sent its acceptance, which is durable.
    Accepted(ViewId),
    /// It installs a View. Precedes the outcomes that the View decides.
    Installs { before: Option<ViewId>, view: Arc<View>, decides: Decides },
    /// It has installed the View. Follows those outcomes.
    Installed { before: Option<ViewId>, view: Arc<View> },
    /// An operation of a View has ended. `next` is the View that decided it; `None` if votes did,
    /// or if it was cut off.
    Ended { op: (ViewId, OpId), ending: Ending, next: Option<ViewId> },
    /// It may call operations of this View, which it has just installed.
    Runs(ViewId),
    /// An operation of this View runs here under this revision of the plan.
    RunsUnder((ViewId, OpId), u32),
    /// It has broken a claim that is checked on each member alone.
    Breaks(Claim),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Accepted(id) => write!(f, "has accepted {}", id.ballot.round),
            Act::Installs { view, .. } => {
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
            Act::Installed { .. } => write!(f, "has installed it"),
            Act::Ended { op: (view, op), ending, next } => {
                let by = if next.is_some() { "by the View" } else { "by votes" };
                write!(f, "{op} of {} ends {by}: {ending}", view.ballot.round)
            }
            Act::Runs(id) => write!(f, "runs {}", id.ballot.round),
            Act::RunsUnder((view, op), revision) => {
                write!(f, "runs {op} of {} under plan {revision}", view.ballot.round)
            }
            Act::Breaks(claim) => write!(f, "breaks {}", claim.name()),
        }
    }
}

/// The end of an operation on one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Answer {
    who: MemberId,
    end: End,
    /// No View decided it.
    by_votes: bool,
    /// The successor of the operation's View, if this member has installed it.
    next: Option<ViewId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Ok,
    Aborted,
    /// The members hold different results.
    Disputed,
    Unknown,
}

/// The operations that a member's state has seen commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Applied {
    before: Summary,
    /// Committed in its current View.
    here: BTreeSet<OpId>,
}

/// Summary of the operations that a state has seen commit: their number and a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Summary {
    ops: usize,
    hash: u64,
}

/// The first of the Views of a member that had begun, without a gap up to its newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Beginning {
    installed: Ballot,
    /// The first of them that ran there.
    ran: Option<Ballot>,
}

/// The record of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct History {
    views: BTreeMap<Ballot, ViewId>,
    accepted: BTreeSet<(MemberId, ViewId)>,
    newest: BTreeMap<NodeId, Ballot>,
    /// The members whose newest View has begun.
    began: BTreeMap<MemberId, Beginning>,
    /// The members that have run each View.
    running: BTreeMap<ViewId, BTreeSet<MemberId>>,
    answers: BTreeMap<(ViewId, OpId), Vec<Answer>>,
    applied: BTreeMap<MemberId, Applied>,
    /// By View: the state of its in-sync members when they installed it.
    synced: BTreeMap<ViewId, Summary>,
    /// By View: the most operations that an out-of-sync member had seen commit when it installed
    /// it.
    others: BTreeMap<ViewId, usize>,
    /// By operation: the revision of the plan under which it runs.
    plans: BTreeMap<(ViewId, OpId), u32>,
    /// Broken claims, one bit each.
    broken: u32,
    /// Ends seen so far, one bit for each [`EndKind`].
    seen: u8,
    /// Two parts of a split group have decided one operation differently. Allowed under `Continue`
    /// only.
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
        self.broken |= u32::from(!holds) << claim as u8;
    }

    /// Records an act and checks the claims it concerns.
    pub(super) fn note(&mut self, who: MemberId, act: &Act) {
        match act {
            Act::Accepted(id) => self.accepted(who, *id),
            Act::Installs { before, view, decides } => {
                self.installs(who, *before, view, view.id(), *decides);
            }
            Act::Installed { before, view } => self.installed(who, *before, view, view.id()),
            Act::Ended { op, ending, next } => self.ended(who, *op, *ending, *next),
            Act::Runs(id) => {
                self.runs(who, *id);
                self.began.entry(who).and_modify(|it| _ = it.ran.get_or_insert(id.ballot));
            }
            Act::RunsUnder(op, revision) => {
                let known = *self.plans.entry(*op).or_insert(*revision);
                self.expect(Claim::OnePlan, known == *revision);
            }
            Act::Breaks(claim) => self.expect(*claim, false),
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
        self.keeps_to_sizes(who, view);
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

    fn keeps_to_sizes(&mut self, who: MemberId, view: &View) {
        let is_small = view.size() <= view.at_most();
        let mut before = view.members.iter().filter_map(|m| self.began.get(&m.id));
        let came_from = before.clone().any(|it| it.installed < view.ballot);
        let ran = before.any(|it| it.ran.is_some_and(|ran| ran < view.ballot));
        let has_reason = view.size() >= view.to_begin() || came_from;
        let holds = is_small && if view.begun { has_reason } else { !ran };
        self.expect(Claim::SizesHold, holds);
        if view.begun {
            let new = Beginning { installed: view.ballot, ran: None };
            self.began.entry(who).or_insert(new);
        } else {
            self.began.remove(&who);
        }
    }

    fn installed(&mut self, who: MemberId, before: Option<ViewId>, view: &View, id: ViewId) {
        let applied = self.applied.entry(who).or_default();
        if !applied.here.is_empty() {
            let before = Summary {
                ops: applied.before.ops + applied.here.len(),
                hash: hash(&(before, applied.before, &applied.here)),
            };
            *applied = Applied { before, ..Applied::default() };
        }
        let summary = applied.before;
        if view.rank_of(who).and_then(|r| view.member(r)).is_some_and(|m| m.in_sync) {
            let common = *self.synced.entry(id).or_insert(summary);
            self.expect(Claim::InSync, common == summary);
        } else {
            let most = self.others.entry(id).or_default();
            *most = summary.ops.max(*most);
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
        let end = match ending.outcome {
            Outcome::Committed => End::Ok,
            Outcome::Aborted(_) => End::Aborted,
            Outcome::DigestMismatch { .. } => End::Disputed,
            Outcome::Indeterminate => End::Unknown,
        };
        let all = self.answers.entry(op).or_default();
        let once = all.iter().all(|a| a.who != who);
        // Sorted, so that the record does not depend on the order of events.
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
            (End::Aborted | End::Disputed, _) => 4,
            (End::Unknown, _) => 8,
        };
        self.compare(op);
        let common = self.synced.get(&op.0).copied();
        let applied = self.applied.entry(who).or_default();
        if let (End::Ok, true, Some(common)) = (end, ending.is_sync, common) {
            applied.before = common;
        }
        // An operation that only some members see is no part of a state that is synced.
        if end == End::Ok && op.1.lane.is_of_all() {
            applied.here.insert(op.1);
        }
    }

    /// Whether some operation has ended in this way.
    pub(super) fn has_seen(&self, kind: EndKind) -> bool {
        self.seen >> kind as u8 & 1 == 1
    }

    fn compare(&mut self, op: (ViewId, OpId)) {
        let Some(all) = self.answers.get(&op) else { return };
        let aborted = all.iter().any(|a| matches!(a.end, End::Aborted | End::Disputed));
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

/// A way in which an operation can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EndKind {
    CommittedByVotes,
    CommittedByView,
    Aborted,
    Unknown,
}

/// The end of an operation on a member, as its ledger reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ending {
    outcome: Outcome,
    /// It moves every member to the history of the in-sync members.
    is_sync: bool,
    /// The member holds the result.
    held: bool,
}

impl Ending {
    /// Reads the end of `op` from the member's ledger.
    pub(super) fn of(ledger: &Ledger, op: OpId, outcome: Outcome) -> Ending {
        Ending { outcome, is_sync: ledger.is_of_sync(op), held: ledger.holds(op) }
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

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
