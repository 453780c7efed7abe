//! The name of a node, for people.

use crate::wire::layout::{Text, layout};
use std::fmt;

/// A node's name: 1 to 32 printable characters, by default the host name.
///
/// It is sent inside the authenticated handshake and displayed in quotes beside the short
/// [`NodeId`](super::node_id::NodeId). The peer chooses it freely, so no decision may depend on it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

// A correct peer sends only names that `from_lossy` leaves unchanged.
layout! {
    Name(text: Text(4 * Name::CHARS_MAX))
    if |name| Name::from_lossy(&name.0) == *name
}

impl Name {
    /// Most characters of a name.
    pub const CHARS_MAX: usize = 32;

    /// Keeps the printable characters of `text`, at most 32; "unnamed" if none is left.
    pub fn from_lossy(text: &str) -> Name {
        let kept: String = text.chars().filter(|c| printable(*c)).take(Name::CHARS_MAX).collect();
        let kept = kept.trim();
        Name(if kept.is_empty() { "unnamed".to_owned() } else { kept.to_owned() })
    }

    /// The text without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

fn printable(c: char) -> bool {
    // Quotes could make the name look like the text around it, and format characters can reorder a
    // terminal line.
    c == ' ' || (c.is_alphanumeric() || c.is_ascii_punctuation()) && c != '"'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Decode, assert_codec, put_blob};

    #[test]
    fn names_are_cut_to_what_a_terminal_can_show() {
        assert_eq!(Name::from_lossy("studio\u{1b}[31m\n").as_str(), "studio[31m");
        assert_eq!(Name::from_lossy("\u{202e}").as_str(), "unnamed");
        assert_eq!(Name::from_lossy(&"x".repeat(99)).as_str().len(), 32);
    }

    #[test]
    fn a_name_survives_the_wire_and_a_forged_one_does_not() {
        assert_codec(&Name::from_lossy("mini-2"));
        let mut forged = Vec::new();
        put_blob(&mut forged, b"a\x1bb");
        assert!(Name::from_bytes(&forged).is_err());
    }
}
