//! The error type of all calls, its causes, and the texts shown to people.

use crate::identity::{IdentityProblem, Name, NodeId};
use crate::pairing::PairingProblem;
use crate::protocol::{Call, EngineFault, OpId, Rank, Rejection, RosterProblem, SizesProblem};
use derive_more::Display;
use std::fmt;
use std::time::Duration;

/// A result with potluck's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. On every error the caller's buffer is unchanged.
#[derive(Debug, Display)]
#[non_exhaustive]
pub enum Error {
    /// The operation never took effect on any member that continues. [`Error::is_retryable`] says
    /// whether the same call may be repeated.
    #[display("the operation was aborted, {cause}; the buffer is unchanged")]
    Aborted {
        /// The cause, and the member it occurred on.
        cause: Cause,
    },
    /// The View was replaced before this call began. Take `ctx.renewed()` and repeat the call.
    #[display("the group has changed before this call; take ctx.renewed() and call again")]
    ViewChanged,
    /// The outcome is unknown: this member was left out of the group while the operation ran, or
    /// could not reach enough others to continue. Also returned if the operation took effect on the
    /// others and this member does not have the result, or if it was a message or a call of a
    /// sub-group and the members that knew its outcome have gone. Take `ctx.renewed()`, `sync` your
    /// state, then continue.
    #[display(
        "this node was cut off during the operation, or those that know its outcome have gone; \
             renew the context and sync"
    )]
    Indeterminate,
    /// The members do not hold the same state yet. Nothing was sent; call `ctx.sync(version, &mut
    /// state)` first.
    #[display(
        "the members do not hold the same state yet; call ctx.sync(version, &mut state) first"
    )]
    NeedsSync,
    /// The future of an earlier call of this lane was dropped after this member's vote. Nothing was
    /// sent; take or discard that result first
    /// ([`Context::take_result`](crate::Context::take_result)).
    #[display(
        "the result of operation {op} was decided after its call was dropped; take or discard \
             it first"
    )]
    LostResult {
        /// The dropped operation.
        op: OpId,
    },
    /// Two ranks made different calls at the same place of the program. No buffer was changed; this
    /// is a bug in the calling program.
    #[display("{_0}")]
    Mismatch(Box<Mismatched>),
    /// The call is invalid on its own; this is a bug in the calling program. A rejected collective
    /// still takes its number in the lane and is aborted for all members, so that later calls
    /// match; a rejected message takes none.
    #[display("the call cannot be carried out: {_0}")]
    Rejected(Rejection),
    /// 64 operations are in flight, or 32 messages and calls of groups. Nothing was sent; await
    /// some of them first.
    #[display(
        "64 operations are under way, or 32 messages and calls of groups; wait for some of them \
             first"
    )]
    TooManyInFlight,
    /// Too few members came within the given time. Nothing changed; wait longer, or read
    /// `cluster.status()`.
    #[display("{present} of {wanted} members came within {:.1} s; `potluck status` lists the nodes \
             seen",
            waited.as_secs_f64())]
    NotEnoughPeers {
        /// Members in the group now, this one included.
        present: usize,
        /// Members required.
        wanted: usize,
        /// The time waited.
        waited: Duration,
    },
    /// The configuration is invalid. Detected before the node runs.
    #[display("{_0}")]
    Config(ConfigProblem),
    /// The identity file or a key file cannot be used. No file was changed.
    #[display("{_0}")]
    Identity(IdentityProblem),
    /// A pairing code has led to no cluster key. No file was changed.
    #[display("{_0}")]
    Pairing(PairingProblem),
    /// The engine failed in a way that a retry will not cure.
    #[display("{}", what_engine_failed(*_0))]
    Engine(EngineFault),
    /// The node has left the group. Final.
    #[display("this node has left the group")]
    Closed,
}

/// A member, as errors and reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// Its rank in the View, or in the [`group`](crate::Context::group) whose Context reports it.
    pub rank: Rank,
    /// Its display name.
    pub name: Name,
    /// Its public key.
    pub node: NodeId,
}

/// Two calls that do not match.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mismatched {
    /// The lower rank, and its call.
    pub one: (Peer, Call),
    /// The higher rank, and its call.
    pub other: (Peer, Call),
}

/// Why an operation was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum Cause {
    /// The View was replaced while the operation ran, usually because a member was lost, and the
    /// next View found that not every member held the result.
    #[display("because {} while it ran", what_was_lost(lost))]
    MemberLost {
        /// Members of the View that are not in its successor, with their ranks in the old View,
        /// also in a call of a [`group`](crate::Context::group), to which they need not belong.
        /// Empty if all of them are in the successor; then links between them had broken.
        lost: Vec<Peer>,
    },
    /// A deadline passed: this rank's (`None`) or another rank's. If another rank's deadline passed
    /// first but at least half of this rank's own has elapsed, this is `None` too, so that equal
    /// deadlines give equal errors on all ranks.
    #[display(
        "because {} passed",
        own_or(of, "its deadline", |peer| format!("the deadline of {peer}"))
    )]
    Deadline {
        /// The other rank, if the deadline was not this rank's own.
        of: Option<Peer>,
    },
    /// A call with [`reject_non_finite`](crate::calls::AllReduce::reject_non_finite) found a NaN or
    /// an infinity in a contribution or in the result. A retry with the same numbers fails again.
    #[display(
        "because there is a NaN or an infinity in {} or in the result",
        own_or(on, "this rank's numbers", |peer| format!("the numbers of {peer}"))
    )]
    NonFinite {
        /// The rank that found it, if not this one.
        on: Option<Peer>,
    },
    /// The weights of a [weighted mean](crate::calls::WeightedMean) are all zero, or their sum is
    /// infinite. A retry with the same weights fails again.
    #[display("because the sum of all weights is 0 or infinite")]
    Weights,
    /// The call's future was dropped before this was decided: here (`None`) or on another rank.
    #[display(
        "because {}",
        own_or(by, "the call was dropped", |peer| format!("{peer} dropped its call"))
    )]
    Dropped {
        /// The other rank, if it was not dropped here.
        by: Option<Peer>,
    },
    /// A member's engine could not complete the operation.
    ///
    /// A fault that is [`EngineFault::Memory`] is the same for all members: that member has no
    /// memory for its part. A retry with buffers of the same size fails again.
    #[display("because {}", what_failed(on, *fault))]
    Engine {
        /// That member.
        on: Peer,
        /// The fault, if the member is this one, or if it has no memory.
        fault: Option<EngineFault>,
    },
}

/// The defect of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// There is no cluster key.
    #[display(
        "there is no cluster key: run `potluck up` on the first machine to make one, and \
             `potluck join` on this one to enter it, with the code that `potluck invite` shows \
             there"
    )]
    NoClusterKey,
    /// The text of a cluster key cannot be read.
    #[display("the cluster key cannot be used: {_0}")]
    BadKey(String),
    /// The namespace's name is invalid.
    #[display("the namespace cannot be used: {_0}")]
    BadNamespace(String),
    /// The job's name is invalid.
    #[display("the job cannot be used: {_0}")]
    BadJob(String),
    /// The address of a configured peer is invalid.
    #[display("a peer cannot be used: {_0}")]
    BadPeer(String),
    /// The interface filter is invalid, or matches no interface.
    #[display("the interfaces cannot be used: {_0}")]
    BadInterfaces(String),
    /// The sizes of the group contradict each other, the roster, or the limits.
    #[display("{_0}")]
    BadSizes(SizesProblem),
    /// The text of `POTLUCK_MEMBERS` cannot be read.
    #[display(
        "POTLUCK_MEMBERS cannot be used: {_0}; it must be N (begin with), M..K (go on with, at \
             most; either may be left out) or N,M..K"
    )]
    BadMembers(String),
    /// The text of `POTLUCK_PARTITION` cannot be read.
    #[display(
        "POTLUCK_PARTITION cannot be used: {_0}; it must be continue, majority:ID,ID,... or \
             all:ID,ID,... with the public keys of all nodes"
    )]
    BadPartition(String),
    /// The roster of a [`Partition`](crate::Partition) cannot be used.
    #[display("the roster cannot be used: {_0}")]
    BadRoster(RosterProblem),
    /// `POTLUCK_ENGINE` is none of `auto`, `native` and `gloo`.
    #[display("POTLUCK_ENGINE is {_0:?}; it must be auto, native or gloo")]
    BadEngine(String),
    /// The configuration requires Gloo, and this build does not contain it.
    #[display(
        "this build of potluck has no Gloo: build it with the feature `gloo`, see docs/gloo.md"
    )]
    NoGloo,
    /// No TCP port could be opened.
    #[display("no TCP port could be opened ({_0}); is networking up?")]
    NoPort(std::io::ErrorKind),
    /// Multicast could not be set up and no peer is configured.
    #[display("discovery cannot start: {_0}")]
    NoDiscovery(String),
    /// There is no directory for files: neither `POTLUCK_HOME` nor `HOME` is set.
    #[display("there is no place for files: set HOME or POTLUCK_HOME")]
    NoHome,
}

impl Error {
    /// A stable code, for logs and programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Aborted { cause } if cause.is_lack_of_memory() => "memory",
            Error::Engine(EngineFault::Memory { .. }) => "memory",
            Error::Aborted { .. } => "aborted",
            Error::ViewChanged => "view-changed",
            Error::Indeterminate => "indeterminate",
            Error::NeedsSync => "needs-sync",
            Error::LostResult { .. } => "lost-result",
            Error::Mismatch(_) => "mismatch",
            Error::Rejected(_) => "rejected",
            Error::TooManyInFlight => "too-many-in-flight",
            Error::NotEnoughPeers { .. } => "not-enough-peers",
            Error::Config(ConfigProblem::NoClusterKey) => "no-cluster-key",
            Error::Config(_) => "config",
            Error::Identity(_) => "identity",
            Error::Pairing(_) => "pairing",
            Error::Engine(_) => "engine",
            Error::Closed => "closed",
        }
    }

    /// Whether a program that continues while members come and go should take a new Context
    /// ([`Cluster::context`](crate::Cluster::context) or
    /// [`Context::renewed`](crate::Context::renewed)), [`sync`](crate::Context::sync) its state,
    /// and go on. This is all that the loop of such a program asks after a failed call.
    ///
    /// | error | answer | reason |
    /// | --- | --- | --- |
    /// | [`Aborted`](Error::Aborted): a member was lost, dropped its call, or its engine failed | true | The call had no effect. |
    /// | [`Aborted`](Error::Aborted): the deadline of another rank | true | The call had no effect. |
    /// | [`ViewChanged`](Error::ViewChanged) | true | The call did not begin. |
    /// | [`NeedsSync`](Error::NeedsSync) | true | The call did not begin; the sync comes first. |
    /// | [`Indeterminate`](Error::Indeterminate) | true | The sync brings the outcome here. |
    /// | [`Aborted`](Error::Aborted): this rank's own deadline | false | The program has set that bound. |
    /// | [`Aborted`](Error::Aborted): a NaN or an infinity, weights whose sum is 0 or infinite, or no memory | false | The same call fails again. |
    /// | [`Engine`](Error::Engine) | false | The same call fails again. |
    /// | [`Mismatch`](Error::Mismatch), [`Rejected`](Error::Rejected) | false | The program is wrong. |
    /// | [`LostResult`](Error::LostResult) | false | The program must take or discard a result first. |
    /// | [`TooManyInFlight`](Error::TooManyInFlight) | false | The program must await calls first. |
    /// | [`NotEnoughPeers`](Error::NotEnoughPeers) | false | The program has set that bound. |
    /// | [`Config`](Error::Config), [`Identity`](Error::Identity), [`Pairing`](Error::Pairing) | false | The setup is wrong. |
    /// | [`Closed`](Error::Closed) | false | The node has left. |
    ///
    /// It differs from [`is_retryable`](Error::is_retryable) in
    /// [`Indeterminate`](Error::Indeterminate) only: that call must not be repeated before the
    /// sync, because the others may have its result.
    pub fn can_renew(&self) -> bool {
        self.is_retryable() || matches!(self, Error::Indeterminate)
    }

    /// Whether the right reaction is to take `ctx.renewed()`, `sync` if needed, and repeat the
    /// same call. A loop that syncs before each step asks [`can_renew`](Error::can_renew).
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::ViewChanged | Error::NeedsSync => true,
            Error::Aborted { cause } => {
                !matches!(
                    cause,
                    Cause::Deadline { of: None } | Cause::NonFinite { .. } | Cause::Weights
                ) && !cause.is_lack_of_memory()
            }
            _ => false,
        }
    }
}

impl Cause {
    fn is_lack_of_memory(&self) -> bool {
        matches!(self, Cause::Engine { fault: Some(EngineFault::Memory { .. }), .. })
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Mismatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((one, its), (other, theirs)) = (&self.one, &self.other);
        write!(
            f,
            "{one} called {its} where {other} called {theirs}; make the program call the same on \
             every rank"
        )
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({} {})", self.rank, self.name, self.node)
    }
}

fn own_or(peer: &Option<Peer>, own: &str, theirs: impl Fn(&Peer) -> String) -> String {
    peer.as_ref().map_or_else(|| own.to_owned(), theirs)
}

fn what_failed(on: &Peer, fault: Option<EngineFault>) -> String {
    match fault {
        None => format!("the engine of {on} could not finish it"),
        Some(EngineFault::Memory { bytes }) => format!(
            "{on} could not allocate {bytes} bytes of memory: free memory there, raise the limit \
             of its process, or use smaller buffers on all ranks"
        ),
        Some(fault) => format!("{fault} (seen by {on})"),
    }
}

fn what_engine_failed(fault: EngineFault) -> String {
    match fault {
        EngineFault::Memory { .. } => format!("{fault}; the buffer is unchanged"),
        fault => format!("the engine failed: {fault}"),
    }
}

fn what_was_lost(lost: &[Peer]) -> String {
    match lost {
        [] => "the links of the group broke".to_owned(),
        [one] => format!("{one} was lost"),
        [one, other] => format!("{one} and {other} were lost"),
        [one, others @ ..] => format!("{one} and {} others were lost", others.len()),
    }
}

impl From<IdentityProblem> for Error {
    fn from(problem: IdentityProblem) -> Error {
        Error::Identity(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_is_told_alike_to_all_and_is_not_tried_again() {
        let on = Peer { rank: Rank(1), name: Name::from_lossy("bob"), node: NodeId([7; 32]) };
        let fault = EngineFault::Memory { bytes: 4096 };
        let aborted =
            Error::Aborted { cause: Cause::Engine { on: on.clone(), fault: Some(fault) } };
        for error in [&aborted, &Error::Engine(fault)] {
            assert_eq!((error.code(), error.is_retryable()), ("memory", false));
            let sentence = error.to_string();
            let says = |what: &str| assert!(sentence.contains(what), "{sentence}");
            says("4096 bytes of memory");
            says("the buffer is unchanged");
            says("use smaller buffers");
        }
        assert!(aborted.to_string().contains("rank 1 (\"bob\""), "{aborted}");
        let other = Error::Aborted { cause: Cause::Engine { on, fault: None } };
        assert_eq!((other.code(), other.is_retryable()), ("aborted", true));
    }

    #[test]
    fn a_loop_renews_where_the_call_may_count_or_can_be_made_again() {
        let peer = Peer { rank: Rank(1), name: Name::from_lossy("bob"), node: NodeId([7; 32]) };
        let of = |cause| Error::Aborted { cause };
        let op = OpId { lane: crate::protocol::Lane::MAIN, number: 0 };
        let memory = EngineFault::Memory { bytes: 1 };
        let renewed = [
            of(Cause::MemberLost { lost: vec![] }),
            of(Cause::Deadline { of: Some(peer.clone()) }),
            of(Cause::Dropped { by: None }),
            of(Cause::Dropped { by: Some(peer.clone()) }),
            of(Cause::Engine { on: peer.clone(), fault: None }),
            Error::ViewChanged,
            Error::NeedsSync,
            Error::Indeterminate,
        ];
        let final_ones = [
            of(Cause::Deadline { of: None }),
            of(Cause::NonFinite { on: None }),
            of(Cause::Weights),
            of(Cause::Engine { on: peer, fault: Some(memory) }),
            Error::Engine(memory),
            Error::Rejected(Rejection::StepTooLong),
            Error::LostResult { op },
            Error::TooManyInFlight,
            Error::NotEnoughPeers { present: 1, wanted: 2, waited: Duration::ZERO },
            Error::Config(ConfigProblem::NoHome),
            Error::Closed,
        ];
        assert!(renewed.iter().all(Error::can_renew));
        assert!(!final_ones.iter().any(Error::can_renew));
        let differs = |error: &&Error| error.can_renew() != error.is_retryable();
        let differing: Vec<&Error> = renewed.iter().chain(&final_ones).filter(differs).collect();
        assert!(matches!(differing[..], [Error::Indeterminate]), "{differing:?}");
    }
}
