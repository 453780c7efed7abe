//! Why a call of a foreign program has no result.

use potluck::Error;
use std::fmt;
use std::io;

/// Why a call has no result. All buffers are as they were.
#[derive(Debug)]
pub enum Failure {
    /// The call has ended with this error.
    Call(Error),
    /// An argument is none that the call can have; nothing was called.
    Argument(String),
    /// The program gave the call up before it ended.
    GivenUp,
    /// A wait inside a function that `potluck-calls` has called, which would wait for itself.
    InCallback,
    /// This process is a fork of the one that joined. It has none of its threads.
    Forked,
    /// No thread could be started.
    Thread(io::Error),
    /// potluck has a fault.
    Panic(String),
}

impl Failure {
    /// A stable code: that of [`Error::code`], or one of `argument`, `given-up`, `in-callback`,
    /// `forked`, `thread` and `panic`.
    pub fn code(&self) -> &'static str {
        match self {
            Failure::Call(error) => error.code(),
            Failure::Argument(_) => "argument",
            Failure::GivenUp => "given-up",
            Failure::InCallback => "in-callback",
            Failure::Forked => "forked",
            Failure::Thread(_) => "thread",
            Failure::Panic(_) => "panic",
        }
    }

    /// See [`Error::can_renew`].
    pub fn can_renew(&self) -> bool {
        matches!(self, Failure::Call(error) if error.can_renew())
    }

    /// See [`Error::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        matches!(self, Failure::Call(error) if error.is_retryable())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Call(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Call(error) => error.fmt(f),
            Failure::Argument(problem) => f.write_str(problem),
            Failure::GivenUp => f.write_str("the program dropped the call before it ended"),
            Failure::InCallback => f.write_str(
                "a function that is called when a call has ended must not wait for another one; \
                 wait in another thread",
            ),
            Failure::Forked => f.write_str(
                "this process is a fork of the one that joined, and has no node; start a new \
                 process in place of a fork, or make calls in the parent only",
            ),
            Failure::Thread(error) => write!(f, "no thread could be started: {error}"),
            Failure::Panic(message) => {
                write!(f, "potluck has a fault, please report it: {message}")
            }
        }
    }
}

impl std::error::Error for Failure {}
