//! Layer: Words.
//!
//! Ways in which the protocol can be wrong on purpose, so that its checks can be seen to find them.
//!
//! Only tests can seed one. Elsewhere [`Seeded`] is of no size and every question about it is
//! answered `false` at compile time.

/// One rule of the protocol, broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Defect {
    /// A promise or an acceptance leaves at once, and the disk never hears of it.
    PromiseNotDurable,
    /// A View is installed when more than half of its members have accepted it.
    EarlyInstall,
    /// Of two ballots of one round neither is higher.
    NoTieBreak,
    /// An operation is committed when any member knows it as committed.
    AnyoneCommitted,
    /// A restarted member counts as one that was in the View and holds nothing.
    RestartedCounts,
    /// What an accepted successor has decided is decided again.
    NoAdoption,
    /// Only an installed View counts as the newest.
    TipOfInstalled,
    /// The disk keeps what was promised, and not what was accepted.
    AcceptedNotDurable,
    /// An operation is aborted at the first vote against it.
    EarlyAbort,
    /// Who has voted `Abort` after `Done` still lists the result.
    KeepsDone,
    /// What an accepted successor has committed counts for everybody who comes from the same View,
    /// whether he holds it or not.
    AdoptedCounts,
    /// An operation that a View commits is answered `Ok` without a result.
    OkWithoutResult,
    /// Of several histories that of most members wins, however short.
    MostMembersWin,
    /// Who was cut off installs the View that it had accepted before.
    CutOffGoesOn,
    /// Whoever was brought in step by a sync is on the history with which he came.
    OwnBase,
    /// Who will install the newest View late counts as left behind.
    LateIsBehind,
    /// A member never votes. Not one of [`ALL`](Defect::ALL): the others end its calls by time, of
    /// which the model has none.
    WithholdsVotes,
}

/// The defect of one node, if a test has seeded one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Seeded {
    #[cfg(test)]
    defect: Option<Defect>,
}

impl Seeded {
    /// The code as it is.
    pub(crate) const NONE: Seeded = Seeded {
        #[cfg(test)]
        defect: None,
    };

    /// Whether this rule is broken.
    #[inline]
    pub(crate) fn has(self, defect: Defect) -> bool {
        #[cfg(test)]
        return self.defect == Some(defect);
        #[cfg(not(test))]
        {
            let _ = defect;
            false
        }
    }
}

#[cfg(test)]
impl From<Option<Defect>> for Seeded {
    fn from(defect: Option<Defect>) -> Seeded {
        Seeded { defect }
    }
}

#[cfg(test)]
impl Defect {
    /// Those that the model has to find.
    pub(crate) const ALL: [Defect; 16] = [
        Defect::PromiseNotDurable,
        Defect::EarlyInstall,
        Defect::NoTieBreak,
        Defect::AnyoneCommitted,
        Defect::RestartedCounts,
        Defect::NoAdoption,
        Defect::TipOfInstalled,
        Defect::AcceptedNotDurable,
        Defect::EarlyAbort,
        Defect::KeepsDone,
        Defect::AdoptedCounts,
        Defect::OkWithoutResult,
        Defect::MostMembersWin,
        Defect::CutOffGoesOn,
        Defect::OwnBase,
        Defect::LateIsBehind,
    ];
}
