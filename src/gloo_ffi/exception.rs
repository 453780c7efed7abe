//! Layer: Doors.
//!
//! C++ exceptions that came out of Gloo, and the errors of callbacks on their way into it.

use crate::collective::{BoardFault, EngineFault};
use std::fmt;

/// What was thrown. Its text is for the log: C++ knows no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Where it comes from.
    pub kind: ExceptionKind,
    /// What it says.
    pub text: String,
}

/// Where an exception comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExceptionKind {
    /// The message layer.
    Links,
    /// The View's board.
    Board,
    /// Another member says something else about itself than its links do.
    Address,
    /// A panic in a callback.
    Panic,
    /// One of Gloo's own checks.
    Enforce,
    /// Gloo, about what it calls input and output.
    Io,
    /// Gloo, about being used wrongly.
    Invalid,
    /// Memory has run out.
    Memory,
    /// Anything else.
    Other,
}

/// Why a callback ends with an exception. Shown with its kind in front, as [`Exception`] reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thrown {
    /// The message layer has a fault.
    Links(EngineFault),
    /// The board has.
    Board(BoardFault),
    /// What the board holds for this rank is no address of it.
    Address(i32),
    /// The callback has panicked.
    Panic,
    /// Gloo has called while no operation runs, or with a rank or range that does not exist.
    Misuse,
}

impl Exception {
    /// What Gloo has done, and should not have.
    pub fn of_gloo(text: &str) -> Exception {
        Exception { kind: ExceptionKind::Other, text: text.to_string() }
    }

    /// Reads a text with its kind in front of a bar.
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
    }
}
