//! The secret shared by all members of a cluster, and its text form for people.

use derive_more::Display;
use std::fmt;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

/// The 256-bit key that admits a node to a cluster. Every holder is admitted. Clones share one copy
/// of the key in memory, which is wiped when the last of them is dropped.
///
/// The text form is `plk1`, the key in lower-case base32 (52 characters) and a 20-bit checksum (4
/// characters). Comparing keys takes constant time.
#[derive(Clone)]
pub struct ClusterKey(Arc<Secret>);

/// The bytes at their only place. A value that is moved would leave a copy where it was.
struct Secret([u8; ClusterKey::BYTES]);

/// Why a text is not a cluster key. Never contains the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum KeyTextError {
    /// It does not begin with `plk1`.
    #[display("a cluster key begins with plk1; copy the whole key")]
    Prefix,
    /// It has this many characters instead of 60, without white space.
    #[display(
        "a cluster key has {} characters, this has {_0}; copy the whole key",
        ClusterKey::TEXT_CHARS
    )]
    Length(usize),
    /// The character at this position, counted from 1 without white space, is not one of `a-z2-7`.
    #[display("character {_0} of the cluster key is not one of a-z and 2-7; copy the key again")]
    Character(usize),
    /// The checksum does not match: a character is wrong, or two are swapped.
    #[display("a character of the cluster key is wrong; copy the key again")]
    Checksum,
    /// For the environment only: the variable is not Unicode text.
    #[display("the cluster key is not text; copy the key again")]
    NotText,
}

impl ClusterKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;
    /// Length of its text form in characters.
    pub const TEXT_CHARS: usize = 4 + KEY_SYMBOLS + SUM_SYMBOLS;

    /// A key of 32 bytes, which must come from the operating system's randomness.
    pub fn from_bytes(bytes: &[u8; ClusterKey::BYTES]) -> ClusterKey {
        ClusterKey::made_by(|key| key.copy_from_slice(bytes))
    }

    /// Parses the text form. Ignores white space anywhere and the case of letters.
    ///
    /// Always detects one or two wrong characters, and more of them with probability 1 - 2^-20.
    ///
    /// # Errors
    /// [`KeyTextError`] names the fault of the text.
    pub fn parse(text: &str) -> Result<ClusterKey, KeyTextError> {
        let body = body_of(text)?;
        let symbols = symbols_of(&body)?;
        let (key, sum) = symbols.split_at(KEY_SYMBOLS);
        if sum != checksum(key) {
            return Err(KeyTextError::Checksum);
        }
        let parsed = ClusterKey::made_by(|bytes| set_symbols(bytes, key));
        // 52 characters carry 260 bits; the last four must be zero, as in the output of `to_text`.
        if *parsed.symbols() == *key { Ok(parsed) } else { Err(KeyTextError::Checksum) }
    }

    /// The text form, to be typed on another machine and stored in the key file.
    pub fn to_text(&self) -> Zeroizing<String> {
        // Allocated at full size, because a growing `String` would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(ClusterKey::TEXT_CHARS));
        text.push_str(PREFIX);
        let symbols = self.symbols();
        let sum = checksum(&*symbols);
        text.extend(
            symbols.iter().chain(&sum).map(|symbol| char::from(ALPHABET[usize::from(*symbol)])),
        );
        text
    }

    /// A key whose bytes are written where they stay.
    fn made_by(write: impl FnOnce(&mut [u8; ClusterKey::BYTES])) -> ClusterKey {
        let mut secret = Arc::new(Secret([0; ClusterKey::BYTES]));
        // No other reference exists yet.
        if let Some(secret) = Arc::get_mut(&mut secret) {
            write(&mut secret.0);
        }
        ClusterKey(secret)
    }

    /// The raw key, for deriving other keys and for handing it on, sealed.
    pub(crate) fn bytes(&self) -> &[u8; ClusterKey::BYTES] {
        &self.0.0
    }

    fn symbols(&self) -> Zeroizing<[u8; KEY_SYMBOLS]> {
        let mut symbols = Zeroizing::new([0; KEY_SYMBOLS]);
        for (i, symbol) in symbols.iter_mut().enumerate() {
            let (byte, shift) = (5 * i / 8, 5 * i % 8);
            let pair =
                u16::from(self.0.0[byte]) << 8 | u16::from(*self.0.0.get(byte + 1).unwrap_or(&0));
            *symbol = (pair >> (11 - shift)) as u8 & 31;
        }
        symbols
    }
}

fn set_symbols(key: &mut [u8; ClusterKey::BYTES], symbols: &[u8]) {
    for (i, symbol) in symbols.iter().take(KEY_SYMBOLS).enumerate() {
        let (byte, shift) = (5 * i / 8, 5 * i % 8);
        let [high, low] = (u16::from(*symbol) << (11 - shift)).to_be_bytes();
        key[byte] |= high;
        if let Some(next) = key.get_mut(byte + 1) {
            *next |= low;
        }
    }
}

impl PartialEq for ClusterKey {
    fn eq(&self, other: &ClusterKey) -> bool {
        self.bytes().ct_eq(other.bytes()).into()
    }
}

impl Eq for ClusterKey {}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(hidden)")
    }
}

impl std::error::Error for KeyTextError {}

/// The part after the prefix, in lower case and without white space.
fn body_of(text: &str) -> Result<Zeroizing<String>, KeyTextError> {
    // Counted first, so that a text longer than a key is never copied.
    let chars = text.chars().filter(|c| !c.is_whitespace()).count();
    let mut kept = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase());
    if !PREFIX.chars().all(|expected| kept.next() == Some(expected)) {
        return Err(KeyTextError::Prefix);
    }
    if chars != ClusterKey::TEXT_CHARS {
        return Err(KeyTextError::Length(chars));
    }
    let mut body = Zeroizing::new(String::with_capacity(4 * ClusterKey::TEXT_CHARS));
    body.extend(kept);
    Ok(body)
}

fn symbols_of(body: &str) -> Result<Zeroizing<[u8; KEY_SYMBOLS + SUM_SYMBOLS]>, KeyTextError> {
    let mut symbols = Zeroizing::new([0; KEY_SYMBOLS + SUM_SYMBOLS]);
    for (i, (symbol, c)) in symbols.iter_mut().zip(body.chars()).enumerate() {
        *symbol = match c {
            'a'..='z' => c as u8 - b'a',
            '2'..='7' => c as u8 - b'2' + 26,
            _ => return Err(KeyTextError::Character(PREFIX.len() + i + 1)),
        };
    }
    Ok(symbols)
}

/// CRC-20 over the 5-bit symbols. The polynomial was chosen because over 56 symbols it detects all
/// combinations of one or two wrong symbols, the typical typing errors. A hash would only detect
/// almost all of them.
fn checksum(symbols: &[u8]) -> [u8; SUM_SYMBOLS] {
    let mut rest = CRC_MASK;
    for symbol in symbols {
        rest ^= u32::from(*symbol) << (CRC_BITS - 5);
        for _ in 0..5 {
            let overflow = rest >> (CRC_BITS - 1) & 1;
            rest = (rest << 1 & CRC_MASK) ^ (CRC_POLYNOMIAL * overflow);
        }
    }
    [15, 10, 5, 0].map(|shift| (rest >> shift & 31) as u8)
}

const PREFIX: &str = "plk1";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const KEY_SYMBOLS: usize = 52;
const SUM_SYMBOLS: usize = 4;
const CRC_BITS: u32 = 20;
const CRC_MASK: u32 = (1 << CRC_BITS) - 1;
const CRC_POLYNOMIAL: u32 = 0x8359f;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> ClusterKey {
        ClusterKey::from_bytes(&std::array::from_fn(|i| (i * 37 + 11) as u8))
    }

    fn replaced(text: &str, place: usize, with: u8) -> String {
        let mut bytes = text.as_bytes().to_vec();
        bytes[place] = with;
        String::from_utf8(bytes).unwrap_or_default()
    }

    #[test]
    fn the_text_form_never_changes() {
        // Must never change: keys are stored on paper and in password stores.
        let expected = "plk1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
        let text = ClusterKey::from_bytes(&[0; 32]).to_text();
        assert_eq!(&text[..56], expected);
        assert_eq!(text.len(), ClusterKey::TEXT_CHARS);
        assert_eq!(&text[56..], "gxdk");
    }

    #[test]
    fn blanks_and_case_do_not_matter() {
        let text = key().to_text().to_uppercase();
        let spaced: String = text.chars().flat_map(|c| [c, ' ']).chain("\r\n\t".chars()).collect();
        assert_eq!(ClusterKey::parse(&spaced), Ok(key()));
    }

    #[test]
    fn any_one_wrong_character_and_any_two_swapped_are_caught() {
        let text = key().to_text();
        for place in 4..text.len() {
            for with in ALPHABET.iter().copied().filter(|with| *with != text.as_bytes()[place]) {
                assert_eq!(
                    ClusterKey::parse(&replaced(&text, place, with)),
                    Err(KeyTextError::Checksum)
                );
            }
            for other in 4..place {
                let (a, b) = (text.as_bytes()[place], text.as_bytes()[other]);
                let swapped = replaced(&replaced(&text, place, b), other, a);
                assert_eq!(ClusterKey::parse(&swapped).is_ok(), a == b);
            }
        }
    }

    #[test]
    fn each_fault_has_its_own_name() {
        let text = key().to_text();
        assert_eq!(ClusterKey::parse(""), Err(KeyTextError::Prefix));
        assert_eq!(ClusterKey::parse(&text[1..]), Err(KeyTextError::Prefix));
        assert_eq!(ClusterKey::parse(&text[..59]), Err(KeyTextError::Length(59)));
        assert_eq!(ClusterKey::parse(&format!("{}a", *text)), Err(KeyTextError::Length(61)));
        assert_eq!(ClusterKey::parse(&replaced(&text, 10, b'0')), Err(KeyTextError::Character(11)));
        assert_eq!(
            ClusterKey::parse(&text.replacen(&text[20..22], "é", 1)),
            Err(KeyTextError::Length(59))
        );
        for fault in [
            KeyTextError::Prefix,
            KeyTextError::Length(1),
            KeyTextError::Character(1),
            KeyTextError::Checksum,
        ] {
            assert!(fault.to_string().contains("copy"), "{fault}");
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "ClusterKey(hidden)");
    }

    proptest! {
        #[test]
        fn every_key_survives_its_text(bytes: [u8; 32]) {
            let key = ClusterKey::from_bytes(&bytes);
            prop_assert_eq!(ClusterKey::parse(&key.to_text()), Ok(key));
        }

        #[test]
        fn two_wrong_characters_are_caught(
            bytes: [u8; 32],
            a in 4usize..60,
            b in 4usize..60,
            x in 0usize..32,
            y in 0usize..32,
        ) {
            let text = ClusterKey::from_bytes(&bytes).to_text();
            let wrong = replaced(&replaced(&text, a, ALPHABET[x]), b, ALPHABET[y]);
            prop_assert_eq!(ClusterKey::parse(&wrong).is_ok(), wrong == *text);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}", tail in "[a-z2-7]{50,60}") {
            let _ = ClusterKey::parse(&text);
            let _ = ClusterKey::parse(&format!("plk1{tail}"));
        }
    }
}
