//! The exit codes of the commands, and their mapping from errors.

use potluck::keys::{IdentityProblem, PairingProblem};
use potluck::report::ConfigProblem;
use potluck::{Cause, Error};
use std::fmt;

/// The text on exit codes in `--help`.
pub const HELP: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no or too few peers, 4 a \
peer was lost, 5 another version, 6 the cluster key or the pairing code is missing or wrong, 7 \
`doctor` has found a fault, 130 interrupted. `run` ends with the code of the program that failed \
first.";

/// An exit code. The numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// Failed for a reason without a code of its own.
    Failed,
    /// The command line or the environment is wrong.
    Usage,
    /// No peers, too few peers, or no node runs on this machine; no invitation, or no machine came.
    NoPeers,
    /// A peer was lost.
    PeerLost,
    /// The other nodes run another protocol version.
    OtherVersion,
    /// The cluster key or the pairing code is missing or wrong.
    Key,
    /// `doctor` has found a fault.
    Fault,
    /// Ended by Ctrl-C.
    Interrupted,
    /// A program that the command ran has ended with this code.
    Program(u8),
}

impl Exit {
    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::NoPeers => 3,
            Exit::PeerLost => 4,
            Exit::OtherVersion => 5,
            Exit::Key => 6,
            Exit::Fault => 7,
            Exit::Interrupted => 130,
            Exit::Program(code) => code,
        }
    }
}

/// An exit that a command has decided on.
#[derive(Debug)]
pub struct Stop {
    /// The exit code of the process.
    pub exit: Exit,
    /// A stable code.
    pub code: &'static str,
    /// The event, and the action that the user can take.
    pub sentence: String,
}

impl Stop {
    /// The same as an error for `?`.
    pub fn with(exit: Exit, code: &'static str, sentence: impl Into<String>) -> anyhow::Error {
        Stop { exit, code, sentence: sentence.into() }.into()
    }

    /// A wrong command line.
    pub fn usage(sentence: impl Into<String>) -> anyhow::Error {
        Stop::with(Exit::Usage, "usage", sentence)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Stop {}

/// The exit code and the stable code of an error.
pub fn of(error: &anyhow::Error) -> (Exit, &'static str) {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return (stop.exit, stop.code);
    }
    match error.downcast_ref::<Error>() {
        Some(error) => (of_library(error), error.code()),
        None => (Exit::Failed, "failed"),
    }
}

fn of_library(error: &Error) -> Exit {
    use ConfigProblem as C;
    use IdentityProblem as I;
    use PairingProblem as P;
    match error {
        Error::NotEnoughPeers { .. } | Error::Pairing(P::NotFound | P::Unreachable { .. }) => {
            Exit::NoPeers
        }
        Error::Pairing(P::OtherVersion { .. }) => Exit::OtherVersion,
        Error::Aborted { cause: Cause::MemberLost { .. } } => Exit::PeerLost,
        Error::Config(C::NoClusterKey | C::BadKey(_))
        | Error::Pairing(P::Refused | P::Forged)
        | Error::Identity(
            I::NotAKey { .. } | I::NotAKeyVariable { .. } | I::OtherKeyStored { .. },
        ) => Exit::Key,
        Error::Config(
            C::BadNamespace(_)
            | C::BadJob(_)
            | C::BadPeer(_)
            | C::BadInterfaces(_)
            | C::BadSizes(_)
            | C::BadMembers(_)
            | C::BadPartition(_)
            | C::BadRoster(_)
            | C::BadEngine(_)
            | C::NoGloo,
        ) => Exit::Usage,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_says_becomes_an_exit_code() {
        let exit = |error: Error| of(&error.into());
        assert_eq!(exit(Error::Config(ConfigProblem::NoClusterKey)), (Exit::Key, "no-cluster-key"));
        assert_eq!(
            exit(Error::Config(ConfigProblem::BadMembers("0".to_owned()))),
            (Exit::Usage, "config")
        );
        assert_eq!(
            exit(Error::Config(ConfigProblem::BadPartition("none".to_owned()))),
            (Exit::Usage, "config")
        );
        assert_eq!(exit(Error::Identity(IdentityProblem::NoHome)), (Exit::Failed, "identity"));
        assert_eq!(exit(Error::Pairing(PairingProblem::NotFound)), (Exit::NoPeers, "pairing"));
        assert_eq!(exit(Error::Pairing(PairingProblem::Refused)), (Exit::Key, "pairing"));
        assert_eq!(of(&anyhow::anyhow!("anything else")), (Exit::Failed, "failed"));
        assert_eq!(
            of(&Stop::with(Exit::NoPeers, "not-running", "no")),
            (Exit::NoPeers, "not-running")
        );
    }
}
