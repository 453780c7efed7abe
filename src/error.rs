//! Layer: Words.
//!
//! What can go wrong, as decisions for the caller.

use crate::collective::{Call, EngineFault, Rejection};
use crate::identity::{IdentityProblem, Name, NodeId};
use crate::partition::RosterProblem;
use crate::view::{OpId, Rank};
use std::fmt;
use std::time::Duration;

/// Short for a result with potluck's [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what it was asked. On every error the caller's buffer is as it was before
/// the call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operation never happened, on any member that goes on. Your buffer is untouched; see
    /// [`Error::is_retryable`] for whether the same call may be made again.
    Aborted {
        /// What happened, and where.
        cause: Cause,
    },
    /// The View was replaced before this call began. Your buffer is untouched; take `ctx.renewed()`
    /// and call again.
    ViewChanged,
    /// This member was left out of the group while the operation ran, or could not reach enough
    /// others to go on, and cannot know whether it happened; or it knows that it happened for
    /// others and has not got the result. Your buffer is untouched; take `ctx.renewed()`, `sync`
    /// your state, then go on.
    Indeterminate,
    /// The members do not hold the same state yet. Nothing was sent; call `ctx.sync(version, &mut
    /// state)` first.
    NeedsSync,
    /// An earlier call of this lane was dropped after its result was decided. Nothing was sent;
    /// take or discard that result first.
    LostResult {
        /// The dropped operation.
        op: OpId,
    },
    /// Two ranks called different things at the same place of the program. Nobody's buffer was
    /// touched; this is a bug in the calling program.
    Mismatch(Box<Mismatched>),
    /// The call makes no sense as it stands; this is a bug in the calling program. Your buffer is
    /// untouched. The call has its place in the lane all the same and is given up for all members,
    /// so that the next ones still meet.
    Rejected(Rejection),
    /// 64 operations are under way, or 32 messages. Nothing was sent; wait for some of them first.
    TooManyInFlight,
    /// Not enough members came in the time you gave. Nothing changed; wait longer, or look at
    /// `cluster.status()`.
    NotEnoughPeers {
        /// Members in the group now, this one included.
        present: usize,
        /// Members asked for.
        wanted: usize,
        /// How long was waited.
        waited: Duration,
    },
    /// The configuration cannot work. Found before anything runs.
    Config(ConfigProblem),
    /// The identity or a key file cannot be used. No file was changed.
    Identity(IdentityProblem),
    /// The engine failed in a way that calling again will not cure. Your buffer is untouched.
    Engine(EngineFault),
    /// The node has left the group. Final.
    Closed,
}

/// A member as errors and reports name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its rank in the View.
    pub rank: Rank,
    /// What it calls itself.
    pub name: Name,
    /// Its key.
    pub node: NodeId,
}

/// Two calls that do not ask for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatched {
    /// The lower rank, and what it called.
    pub one: (Peer, Call),
    /// The higher rank, and what it called.
    pub other: (Peer, Call),
}

/// Why an operation was aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The View was replaced while it ran, mostly because a member was lost, and the next one
    /// decided that not everybody held the result.
    MemberLost {
        /// Who is in the next View no more, with the rank in the one before. Empty where all are,
        /// and what links them had broken.
        who: Vec<Peer>,
    },
    /// A deadline passed: this rank's own (`None`) or that of another. Where half of this rank's
    /// own time was over as well, its own is said to have passed: the same deadline on all ranks
    /// ends in the same error on all.
    Deadline {
        /// Whose, if not this rank's own.
        of: Option<Peer>,
    },
    /// A call that asked for it ([`reject_non_finite`](crate::AllReduce::reject_non_finite)) met a
    /// NaN or an infinity, in what was handed in or in the result. Calling again with the same
    /// numbers ends the same way.
    NonFinite {
        /// On which rank, if not on this one.
        on: Option<Peer>,
    },
    /// The call was dropped before it was done: here (`None`) or on another rank.
    Dropped {
        /// Where, if not here.
        by: Option<Peer>,
    },
    /// The engine of a member could not finish it.
    Engine {
        /// Where.
        on: Peer,
        /// What it was, if it was here.
        fault: Option<EngineFault>,
    },
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// There is no cluster key.
    NoClusterKey,
    /// The text of a cluster key cannot be read.
    BadKey(String),
    /// The name of a namespace is not valid.
    BadNamespace(String),
    /// A fixed peer's address is not valid.
    BadPeer(String),
    /// The interface filter is not valid, or leaves no interface.
    BadInterfaces(String),
    /// `min_members` is not between 1 and 16.
    BadMinMembers(usize),
    /// The text of `POTLUCK_PARTITION` cannot be read.
    BadPartition(String),
    /// The roster of a [`Partition`](crate::Partition) cannot be used.
    BadRoster(RosterProblem),
    /// `POTLUCK_ENGINE` is none of `auto`, `native` and `gloo`.
    BadEngine(String),
    /// Gloo is asked for, and this build has none.
    NoGloo,
    /// No port could be opened.
    NoPort(std::io::ErrorKind),
    /// Multicast could not be set up and no peer is named.
    NoDiscovery(String),
    /// There is no place for files: neither `POTLUCK_HOME` nor `HOME` is set.
    NoHome,
}

impl Error {
    /// A short code that never changes, for logs and programs.
    pub fn code(&self) -> &'static str {
        match self {
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
            Error::Engine(_) => "engine",
            Error::Closed => "closed",
        }
    }

    /// Whether taking `ctx.renewed()` and calling again, with a `sync` before it, is the right
    /// answer.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::ViewChanged | Error::NeedsSync => true,
            Error::Aborted { cause } => {
                !matches!(cause, Cause::Deadline { of: None } | Cause::NonFinite { .. })
            }
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Aborted { cause } => write!(f, "the operation was given up, {cause}; the buffer is untouched"),
            Error::ViewChanged => f.write_str("the group has changed before this call; take ctx.renewed() and call again"),
            Error::Indeterminate => {
                f.write_str("this node was cut off during the operation and cannot know its outcome; renew the context and sync")
            }
            Error::NeedsSync => {
                f.write_str("the members do not hold the same state yet; call ctx.sync(version, &mut state) first")
            }
            Error::LostResult { op } => {
                write!(f, "the result of operation {op} was decided after its call was dropped; take or discard it first")
            }
            Error::Mismatch(calls) => calls.fmt(f),
            Error::Rejected(rejection) => write!(f, "the call cannot be carried out: {rejection}"),
            Error::TooManyInFlight => f.write_str("64 operations are under way, or 32 messages; wait for some of them first"),
            Error::NotEnoughPeers { present, wanted, waited } => {
                let seconds = waited.as_secs_f64();
                write!(f, "{present} of {wanted} members came within {seconds:.1} s; see `potluck status` for who is seen")
            }
            Error::Config(problem) => problem.fmt(f),
            Error::Identity(problem) => problem.fmt(f),
            Error::Engine(fault) => write!(f, "the engine failed: {fault}"),
            Error::Closed => f.write_str("this node has left the group"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Mismatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((one, its), (other, theirs)) = (&self.one, &self.other);
        write!(
            f,
            "{one} called {its} where {other} called {theirs}; make the program call the same on every rank"
        )
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} ({} {})", self.rank, self.name, self.node)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::MemberLost { who } => match &who[..] {
                [] => f.write_str("because the links of the group broke while it ran"),
                [one] => write!(f, "because {one} was lost while it ran"),
                [one, others @ ..] => {
                    write!(f, "because {one} and {} others were lost while it ran", others.len())
                }
            },
            Cause::Deadline { of: None } => f.write_str("because its deadline passed"),
            Cause::Deadline { of: Some(peer) } => {
                write!(f, "because the deadline of {peer} passed")
            }
            Cause::NonFinite { on: None } => f.write_str(
                "because there is a NaN or an infinity in this rank's numbers or in the result",
            ),
            Cause::NonFinite { on: Some(peer) } => {
                write!(
                    f,
                    "because there is a NaN or an infinity in the numbers of {peer} or in the result"
                )
            }
            Cause::Dropped { by: None } => f.write_str("because the call was dropped"),
            Cause::Dropped { by: Some(peer) } => write!(f, "because {peer} dropped its call"),
            Cause::Engine { on, fault: None } => {
                write!(f, "because the engine of {on} could not finish it")
            }
            Cause::Engine { on, fault: Some(fault) } => write!(f, "because {fault} (seen by {on})"),
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigProblem::NoClusterKey => f.write_str(
                "there is no cluster key: run `potluck up` on the first machine to make one, and `potluck join` on this one to enter it",
            ),
            ConfigProblem::BadKey(why) => write!(f, "the cluster key cannot be used: {why}"),
            ConfigProblem::BadNamespace(why) => write!(f, "the namespace cannot be used: {why}"),
            ConfigProblem::BadPeer(why) => write!(f, "a peer cannot be used: {why}"),
            ConfigProblem::BadInterfaces(why) => write!(f, "the interfaces cannot be used: {why}"),
            ConfigProblem::BadMinMembers(n) => write!(f, "min_members is {n}; it must be between 1 and 16"),
            ConfigProblem::BadPartition(why) => write!(
                f,
                "POTLUCK_PARTITION cannot be used: {why}; it must be continue:N, majority:ID,ID,... or all:ID,ID,... with the public keys \
                 of all nodes"
            ),
            ConfigProblem::BadRoster(problem) => write!(f, "the roster cannot be used: {problem}"),
            ConfigProblem::BadEngine(text) => write!(f, "POTLUCK_ENGINE is {text:?}; it must be auto, native or gloo"),
            ConfigProblem::NoGloo => f.write_str("this build of potluck has no Gloo: build it with the feature `gloo`, see docs/gloo.md"),
            ConfigProblem::NoPort(kind) => write!(f, "no TCP port could be opened ({kind}); is networking up?"),
            ConfigProblem::NoDiscovery(why) => write!(f, "discovery cannot start: {why}"),
            ConfigProblem::NoHome => f.write_str("there is no place for files: set HOME or POTLUCK_HOME"),
        }
    }
}

impl From<IdentityProblem> for Error {
    fn from(problem: IdentityProblem) -> Error {
        Error::Identity(problem)
    }
}
