//! Mutants: deliberate violations of protocol rules, which prove that the checks find them.
//!
//! Only tests can have one, and nodes of a build with `--cfg potluck_mutants`. In other builds
//! [`Mutation`] has no size, and every query is `false` at compile time.

/// A protocol rule that a test can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Mutant {
    /// Promises and acceptances are sent at once and never written to disk.
    PromiseNotDurable,
    /// A View is installed after more than half of its members have accepted it.
    EarlyInstall,
    /// Ballots of the same round have no order.
    NoTieBreak,
    /// An operation is committed if any member knows it as committed.
    AnyoneCommitted,
    /// A restarted acceptor counts as a witness that holds no result.
    RestartedCounts,
    /// The decision of an accepted successor is ignored and made again.
    NoAdoption,
    /// The parent of an accepted View does not count as installed.
    TipOfInstalled,
    /// The disk keeps promises, but not acceptances.
    AcceptedNotDurable,
    /// An operation is aborted at the first `Abort` vote.
    EarlyAbort,
    /// A member that has voted `Abort` after `Done` still lists the result.
    KeepsDone,
    /// An operation committed by an accepted successor counts in the history of every member of the
    /// same View, even without the result.
    AdoptedCounts,
    /// An operation that a View commits is answered `Ok` without a result.
    OkWithoutResult,
    /// The history with the most members wins, however short.
    MostMembersWin,
    /// A member that was cut off installs a View it accepted before.
    CutOffGoesOn,
    /// A member that a sync brought up to date keeps the history it joined with.
    OwnBase,
    /// A member that will install the newest View late counts as left behind.
    LateIsBehind,
    /// A member never votes. The others end its calls by time.
    WithholdsVotes,
    /// Over a new control link nothing is said again.
    SaysNothingAgain,
    /// A call that is made while calls are held for another plan runs under the present one.
    CallsInAHold,
    /// A call that was held stays held after the switch.
    KeepsHeld,
    /// An honest member may have no more operations open at another one than it may list itself,
    /// although it answers operations that others have given up.
    NarrowAdmission,
    /// A node outside a running View begins one beside it.
    BeginsBeside,
    /// A node outside a running View agrees to begin one beside it.
    AgreesBeside,
    /// A member does not say that its group has begun, so the next View begins anew.
    ForgetsBeginning,
    /// An operation of a sub-group is committed by a View only if all its members hold the result.
    AllDecideGroups,
    /// The decision of an accepted successor is adopted for all operations, also for those of which
    /// no participant has reported to its proposer; an operation that it does not name is aborted.
    AdoptsAll,
    /// An operation that an accepted successor does not name is aborted, also at a participant that
    /// had not reported to its proposer.
    SilenceAborts,
    /// A node whose disk does not answer waits with its calls for as long as that takes, also when
    /// the others have gone on. Not one of `ALL`, like the following ones: they break rules that
    /// the model leaves out.
    WaitsForItsDisk,
    /// A result that a member holds is committed there without the votes of the others.
    CommitsAlone,
    /// A sync ends as `Ok` and leaves the state as it was.
    SyncKeepsState,
    /// A member holds other bits than the others as the result of each operation.
    HoldsOtherBits,
    /// A reduction leaves contributions out, one operation in sixteen.
    DropsContributions,
    /// A member votes for two different results of each operation.
    VotesTwice,
    /// A member lies to the others: see `node::lies`.
    Lies,
}

/// The broken rule of one node, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mutation {
    #[cfg(any(test, potluck_mutants))]
    mutant: Option<Mutant>,
}

impl Mutation {
    /// No mutant.
    pub(crate) const NONE: Mutation = Mutation {
        #[cfg(any(test, potluck_mutants))]
        mutant: None,
    };

    /// Whether this rule is broken.
    #[inline]
    pub(crate) fn has(self, mutant: Mutant) -> bool {
        #[cfg(any(test, potluck_mutants))]
        return self.mutant == Some(mutant);
        #[cfg(not(any(test, potluck_mutants)))]
        {
            let _ = mutant;
            false
        }
    }
}

#[cfg(any(test, potluck_mutants))]
impl From<Option<Mutant>> for Mutation {
    fn from(mutant: Option<Mutant>) -> Mutation {
        Mutation { mutant }
    }
}

#[cfg(any(test, potluck_mutants))]
impl Mutant {
    /// The mutant with this name on the command line of the soak, or of the simulation.
    pub(crate) fn named(name: &str) -> Option<Mutant> {
        match name {
            "engine" => Some(Mutant::DropsContributions),
            "sync" => Some(Mutant::SyncKeepsState),
            "replay" => Some(Mutant::SaysNothingAgain),
            "ledger" => Some(Mutant::CommitsAlone),
            "silent" => Some(Mutant::WithholdsVotes),
            "lies" => Some(Mutant::Lies),
            _ => None,
        }
    }
}

#[cfg(test)]
impl Mutant {
    /// Those that the model has to find.
    pub(crate) const ALL: [Mutant; 27] = [
        Mutant::PromiseNotDurable,
        Mutant::EarlyInstall,
        Mutant::NoTieBreak,
        Mutant::AnyoneCommitted,
        Mutant::RestartedCounts,
        Mutant::NoAdoption,
        Mutant::TipOfInstalled,
        Mutant::AcceptedNotDurable,
        Mutant::EarlyAbort,
        Mutant::KeepsDone,
        Mutant::AdoptedCounts,
        Mutant::OkWithoutResult,
        Mutant::MostMembersWin,
        Mutant::CutOffGoesOn,
        Mutant::OwnBase,
        Mutant::LateIsBehind,
        Mutant::WithholdsVotes,
        Mutant::SaysNothingAgain,
        Mutant::CallsInAHold,
        Mutant::KeepsHeld,
        Mutant::NarrowAdmission,
        Mutant::BeginsBeside,
        Mutant::AgreesBeside,
        Mutant::ForgetsBeginning,
        Mutant::AllDecideGroups,
        Mutant::AdoptsAll,
        Mutant::SilenceAborts,
    ];
}
