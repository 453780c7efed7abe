//! C++ exceptions thrown by Gloo, and the errors of callbacks that become such exceptions.

use crate::collective::BoardFault;
use crate::protocol::EngineFault;
use std::fmt;

/// A C++ exception. The text is for the log; C++ provides nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The origin.
    pub kind: ExceptionKind,
    /// The message.
    pub text: String,
}

/// The origin of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// The message layer.
    Links,
    /// The View's board.
    Board,
    /// A member's address on the board does not belong to its rank.
    Address,
    /// A panic in a callback.
    Panic,
    /// A failed assertion of Gloo (`EnforceNotMet`).
    Enforce,
    /// Gloo's `IoException`.
    Io,
    /// Gloo's `InvalidOperationException`, or a wrong use of a callback.
    Invalid,
    /// Out of memory.
    Memory,
    /// Anything else.
    Other,
}

/// The error of a callback. Its `Display` form starts with the kind and a bar, as
/// [`Exception::parse`] expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thrown {
    /// A fault of the message layer.
    Links(EngineFault),
    /// A fault of the board.
    Board(BoardFault),
    /// The board's entry for this rank is not an address of it.
    Address(i32),
    /// The callback panicked.
    Panic,
    /// Gloo called while no operation ran, or with a rank or range that does not exist.
    Misuse,
}

impl Exception {
    /// An exception for unexpected behaviour of Gloo.
    pub fn of_gloo(text: &str) -> Exception {
        Exception { kind: ExceptionKind::Other, text: text.to_string() }
    }

    /// Parses a text with its kind in front of a bar; a text without a known kind gets
    /// [`ExceptionKind::Other`].
    pub fn parse(what: &str) -> Exception {
        let (word, text) = what.split_once('|').unwrap_or(("other", what));
        let kind = match word {
            "links" => ExceptionKind::Links,
            "board" => ExceptionKind::Board,
            "address" => ExceptionKind::Address,
            "panic" => ExceptionKind::Panic,
            "enforce" => ExceptionKind::Enforce,
            "io" => ExceptionKind::Io,
            "invalid" => ExceptionKind::Invalid,
            "memory" => ExceptionKind::Memory,
            _ => ExceptionKind::Other,
        };
        Exception { kind, text: text.to_string() }
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thrown::Links(fault) => write!(f, "links|{fault}"),
            Thrown::Board(fault) => write!(f, "board|{fault}"),
            Thrown::Address(rank) => {
                write!(f, "address|the board holds no address of rank {rank} where it should")
            }
            Thrown::Panic => f.write_str("panic|a callback has panicked: report this as a bug"),
            Thrown::Misuse => {
                f.write_str("invalid|no operation runs, or it has no such rank or range")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_thrown_is_read_again() {
        for (thrown, kind) in [
            (Thrown::Links(EngineFault::Closed), ExceptionKind::Links),
            (Thrown::Address(3), ExceptionKind::Address),
            (Thrown::Panic, ExceptionKind::Panic),
            (Thrown::Misuse, ExceptionKind::Invalid),
        ] {
            let exception = Exception::parse(&thrown.to_string());
            assert_eq!(exception.kind, kind);
            assert!(thrown.to_string().ends_with(&exception.text));
        }
    }

    #[test]
    fn a_text_without_a_kind_is_kept_whole() {
        assert_eq!(
            Exception::parse("so"),
            Exception { kind: ExceptionKind::Other, text: "so".to_string() }
        );
        assert_eq!(Exception::parse("std|a|b").text, "a|b");
        // As shim.h writes it.
        assert_eq!(Exception::parse("memory|std::bad_alloc").kind, ExceptionKind::Memory);
    }
}
