//! The keys of a cluster, two of them while the key is being changed.

use super::cluster_key::{ClusterKey, KeyTextError};
use zeroize::Zeroizing;

/// The key that a node shows and, while the cluster changes its key, the next one, which it accepts
/// as well.
///
/// A cluster changes its key without a pause: every machine gets the next key as its second one,
/// and when all have it, every machine drops the first. A machine with both is admitted by those
/// that have only one of them, and admits them.
///
/// The text form is that of a [`ClusterKey`] per line, the current one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterKeys {
    /// The key that this node shows to others first.
    pub current: ClusterKey,
    /// The key that will be the only one when the change is over.
    pub next: Option<ClusterKey>,
}

impl ClusterKeys {
    /// One key, which is not being changed.
    pub fn only(current: ClusterKey) -> ClusterKeys {
        ClusterKeys { current, next: None }
    }

    /// Parses the text form. Ignores white space anywhere and the case of letters.
    pub fn parse(text: &str) -> Result<ClusterKeys, KeyTextError> {
        let ends = || {
            let chars = text.char_indices().filter(|(_, c)| !c.is_whitespace());
            chars.map(|(at, c)| at + c.len_utf8())
        };
        if ends().count() != 2 * ClusterKey::TEXT_CHARS {
            return ClusterKey::parse(text).map(ClusterKeys::only);
        }
        let middle = ends().nth(ClusterKey::TEXT_CHARS - 1).unwrap_or(text.len());
        let (current, next) = text.split_at(middle);
        let (current, next) = (ClusterKey::parse(current)?, ClusterKey::parse(next)?);
        let next = Some(next).filter(|next| *next != current);
        Ok(ClusterKeys { current, next })
    }

    /// The text form, each key followed by a line break.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Allocated at full size, because a growing `String` would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(2 * (ClusterKey::TEXT_CHARS + 1)));
        for key in self.iter() {
            text.push_str(&key.to_text());
            text.push('\n');
        }
        text
    }

    /// The keys, the current one first.
    pub fn iter(&self) -> impl Iterator<Item = &ClusterKey> {
        [&self.current].into_iter().chain(&self.next)
    }

    /// The key that a new machine should get: the one that stays.
    pub fn lasting(&self) -> &ClusterKey {
        self.next.as_ref().unwrap_or(&self.current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(byte: u8) -> ClusterKey {
        ClusterKey::from_bytes(&[byte; 32])
    }

    #[test]
    fn one_line_or_two_are_read_back() {
        let one = ClusterKeys::only(key(1));
        let two = ClusterKeys { next: Some(key(2)), ..one.clone() };
        for keys in [&one, &two] {
            assert_eq!(ClusterKeys::parse(&keys.to_text()), Ok(keys.clone()));
        }
        assert_eq!((two.lasting(), one.lasting()), (&key(2), &key(1)));
        let twice = format!("{}{}", *one.to_text(), *one.to_text());
        assert_eq!(ClusterKeys::parse(&twice), Ok(one));
    }

    #[test]
    fn a_text_that_is_neither_is_refused() {
        let text = ClusterKeys { current: key(1), next: Some(key(2)) }.to_text();
        assert_eq!(ClusterKeys::parse(""), Err(KeyTextError::Prefix));
        assert_eq!(ClusterKeys::parse(&text[..100]), Err(KeyTextError::Length(99)));
        let broken = text.replacen("\nplk1", "\nplk2", 1);
        assert_eq!(ClusterKeys::parse(&broken), Err(KeyTextError::Prefix));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,130}|[a-z2-7 \n]{110,130}") {
            let _ = ClusterKeys::parse(&text);
        }
    }
}
