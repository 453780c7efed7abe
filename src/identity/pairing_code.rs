//! The short code that a person carries from one machine to another.

use derive_more::Display;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The code of an invitation: two digits that select the invitation among those on the network, and
/// eight secret ones. Its text form is `42-1234-5678`.
///
/// It is good for one invitation only. Clones share one copy in memory, which is wiped when the
/// last of them is dropped.
#[derive(Clone)]
pub struct PairingCode {
    selector: Selector,
    secret: Arc<Zeroizing<[u8; SECRET_DIGITS]>>,
}

/// The public part of a code, 0 to 99: which invitation is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(u8);

/// Why a text is not a pairing code. Never contains the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum CodeTextError {
    /// It has this many digits instead of ten.
    #[display("a pairing code has ten digits, this has {_0}; type the whole code, as 42-1234-5678")]
    Digits(usize),
    /// The character at this position, counted from 1 without blanks and dashes, is not a digit.
    #[display(
        "character {_0} of the pairing code is not a digit; type the code again, as \
             42-1234-5678"
    )]
    Character(usize),
}

impl PairingCode {
    /// A code from 16 random bytes, which must come from the operating system.
    pub(crate) fn of_random(random: &[u8; 16]) -> PairingCode {
        // Of 2^128 numbers each code has the same share, up to one in 10^28.
        let number = u128::from_le_bytes(*random) % 10u128.pow(DIGITS as u32);
        let mut digits = Zeroizing::new([0; DIGITS]);
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        PairingCode::of_digits(&digits)
    }

    /// Parses the text form. Ignores blanks and dashes, wherever they are.
    ///
    /// # Errors
    /// [`CodeTextError`] if the rest is not ten digits.
    pub fn parse(text: &str) -> Result<PairingCode, CodeTextError> {
        let kept = || text.chars().filter(|c| !is_gap(*c));
        if let Some(place) = kept().position(|c| !c.is_ascii_digit()) {
            return Err(CodeTextError::Character(place + 1));
        }
        let count = kept().count();
        if count != DIGITS {
            return Err(CodeTextError::Digits(count));
        }
        let mut digits = Zeroizing::new([0; DIGITS]);
        for (digit, c) in digits.iter_mut().zip(kept()) {
            *digit = c as u8;
        }
        Ok(PairingCode::of_digits(&digits))
    }

    /// The text form, to be typed on the other machine. It is wiped when it is dropped.
    pub fn to_text(&self) -> impl Deref<Target = String> + use<> {
        let mut text = Zeroizing::new(String::with_capacity(DIGITS + 2));
        text.extend(self.selector.digits().map(char::from));
        for half in self.secret.chunks(SECRET_DIGITS / 2) {
            text.push('-');
            text.extend(half.iter().copied().map(char::from));
        }
        text
    }

    /// The part that may be seen on the network.
    pub(crate) fn selector(&self) -> Selector {
        self.selector
    }

    /// The eight secret digits.
    pub(crate) fn secret(&self) -> &[u8; SECRET_DIGITS] {
        &self.secret
    }

    fn of_digits(digits: &[u8; DIGITS]) -> PairingCode {
        let [tens, ones, secret @ ..] = digits;
        let selector = Selector(10 * (tens - b'0') + (ones - b'0'));
        // Copied to where it stays: a value that is moved would leave a copy where it was.
        let mut kept = Arc::new(Zeroizing::new([0; SECRET_DIGITS]));
        if let Some(kept) = Arc::get_mut(&mut kept) {
            kept.copy_from_slice(secret);
        }
        PairingCode { selector, secret: kept }
    }
}

impl Selector {
    /// The selector of this number, if it is below 100.
    pub fn of(number: u8) -> Option<Selector> {
        (number < 100).then_some(Selector(number))
    }

    /// Parses exactly two digits.
    pub fn parse(text: &[u8]) -> Option<Selector> {
        match text {
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
                Some(Selector(10 * (tens - b'0') + (ones - b'0')))
            }
            _ => None,
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    fn digits(self) -> [u8; 2] {
        [b'0' + self.0 / 10, b'0' + self.0 % 10]
    }
}

/// Whether people write this between digits: blanks, and the dashes that editors and messengers
/// make of a hyphen.
fn is_gap(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}')
}

impl PartialEq for PairingCode {
    fn eq(&self, other: &PairingCode) -> bool {
        self.selector == other.selector && bool::from(self.secret.ct_eq(&**other.secret))
    }
}

impl Eq for PairingCode {}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(hidden)")
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}", self.0)
    }
}

impl std::error::Error for CodeTextError {}

const SECRET_DIGITS: usize = 8;
const DIGITS: usize = 2 + SECRET_DIGITS;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_code_is_read_as_people_type_it() {
        let code = PairingCode::parse("42-1234-5678").expect("a code");
        assert_eq!((code.selector().number(), code.secret()), (42, b"12345678"));
        for text in
            ["4212345678", " 42 1234 5678\n", "4-2-1-2-3-4-5-6-7-8", "42\u{2013}1234\u{2011}5678"]
        {
            assert_eq!(PairingCode::parse(text), Ok(code.clone()), "{text:?}");
        }
        assert_eq!(*code.to_text(), "42-1234-5678");
        assert_eq!(*PairingCode::parse("0000000001").expect("a code").to_text(), "00-0000-0001");
    }

    #[test]
    fn each_fault_has_its_own_name() {
        assert_eq!(PairingCode::parse(""), Err(CodeTextError::Digits(0)));
        assert_eq!(PairingCode::parse("42-1234-567"), Err(CodeTextError::Digits(9)));
        assert_eq!(PairingCode::parse(&"1".repeat(99)), Err(CodeTextError::Digits(99)));
        assert_eq!(PairingCode::parse("42-1234-567x"), Err(CodeTextError::Character(10)));
        assert_eq!(PairingCode::parse("\u{664}2-1234-5678"), Err(CodeTextError::Character(1)));
    }

    #[test]
    fn random_bytes_give_every_digit() {
        assert_eq!(*PairingCode::of_random(&[0; 16]).to_text(), "00-0000-0000");
        let of = |number: u128| PairingCode::of_random(&number.to_le_bytes()).to_text().clone();
        assert_eq!(of(9_876_543_210), "98-7654-3210");
        assert_eq!(of(10_000_000_007), "00-0000-0007");
    }

    #[test]
    fn a_code_shows_itself_only_when_asked() {
        let code = PairingCode::parse("42-1234-5678").expect("a code");
        let shown = format!("{code:?} {:?} {:?}", Some(&code), PairingCode::parse("42-1234-56789"));
        assert!(!shown.contains("1234") && !shown.contains("[49"), "{shown}");
    }

    #[test]
    fn a_selector_has_two_digits() {
        let good = |text: &str| Selector::parse(text.as_bytes()).map(|s| s.to_string());
        assert_eq!((good("07"), good("99")), (Some("07".to_owned()), Some("99".to_owned())));
        for bad in ["", "7", "007", "+7", " 7", "7 ", "a1", "1:"] {
            assert_eq!(good(bad), None, "{bad:?}");
        }
        assert_eq!((Selector::of(100), Selector::of(99).map(Selector::number)), (None, Some(99)));
    }

    proptest! {
        #[test]
        fn every_code_is_read_back(random: [u8; 16]) {
            let code = PairingCode::of_random(&random);
            prop_assert_eq!(PairingCode::parse(&code.to_text()), Ok(code.clone()));
            prop_assert_eq!(code.to_text().len(), 12);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,40}|[0-9 -]{0,20}") {
            if let Ok(code) = PairingCode::parse(&text) {
                prop_assert_eq!(PairingCode::parse(&code.to_text()), Ok(code));
            }
        }
    }
}
