//! The two messages after the code has been proven: the cluster, and whether it was stored. Both
//! have a fixed length, so a sealed message shows nothing of a name's length.

use crate::identity::{ClusterKey, Name, NamespaceName};
use crate::wire::{Decode, Malformed, Reader};
use zeroize::Zeroizing;

/// The inviter's message: its cluster and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The cluster key.
    pub key: ClusterKey,
    /// The name of the namespace on the inviter's machine.
    pub namespace: NamespaceName,
    /// The inviter's name.
    pub name: Name,
}

/// The joiner's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Whether it has stored the key.
    pub kept: KeyOutcome,
    /// The joiner's name.
    pub name: Name,
}

/// Whether the joiner has stored the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It has.
    Stored,
    /// It has not, because it has another key or could not write the file.
    Declined,
}

impl Welcome {
    /// Length of its encoding in bytes.
    pub const BYTES: usize = ClusterKey::BYTES + padded(NAMESPACE_BYTES) + padded(NAME_BYTES);

    /// Encodes it.
    /// ```text
    /// key(32) namespace length(2) namespace(32) name length(2) name(128)     unused bytes are zero
    /// ```
    pub fn to_bytes(&self) -> Zeroizing<[u8; Welcome::BYTES]> {
        let mut out = Zeroizing::new([0; Welcome::BYTES]);
        let (key, rest) = out.split_at_mut(ClusterKey::BYTES);
        let (namespace, name) = rest.split_at_mut(padded(NAMESPACE_BYTES));
        key.copy_from_slice(self.key.bytes());
        put_padded(namespace, self.namespace.as_str());
        put_padded(name, self.name.as_str());
        out
    }

    /// Decodes it; the encoding is unique.
    pub fn from_bytes(bytes: &[u8]) -> Result<Welcome, Malformed> {
        let mut r = Reader::new(bytes);
        let key = r.take(ClusterKey::BYTES)?.try_into().map_err(|_| Malformed::Truncated)?;
        let namespace = take_padded(&mut r, NAMESPACE_BYTES)?;
        let namespace = std::str::from_utf8(namespace).map_err(|_| Malformed::Inconsistent)?;
        let namespace = NamespaceName::parse(namespace).map_err(|_| Malformed::Inconsistent)?;
        let name = take_name(&mut r)?;
        r.finish()?;
        Ok(Welcome { key: ClusterKey::from_bytes(key), namespace, name })
    }
}

impl Receipt {
    /// Length of its encoding in bytes.
    pub const BYTES: usize = 1 + padded(NAME_BYTES);

    /// Encodes it.
    /// ```text
    /// stored(1) name length(2) name(128)     unused bytes are zero
    /// ```
    pub fn to_bytes(&self) -> [u8; Receipt::BYTES] {
        let mut out = [0; Receipt::BYTES];
        out[0] = match self.kept {
            KeyOutcome::Stored => STORED,
            KeyOutcome::Declined => DECLINED,
        };
        put_padded(&mut out[1..], self.name.as_str());
        out
    }

    /// Decodes it; the encoding is unique.
    pub fn from_bytes(bytes: &[u8]) -> Result<Receipt, Malformed> {
        let mut r = Reader::new(bytes);
        let kept = match r.u8()? {
            STORED => KeyOutcome::Stored,
            DECLINED => KeyOutcome::Declined,
            _ => return Err(Malformed::UnknownTag),
        };
        let name = take_name(&mut r)?;
        r.finish()?;
        Ok(Receipt { kept, name })
    }
}

/// Length of a text of at most `max` bytes behind its length.
const fn padded(max: usize) -> usize {
    2 + max
}

/// Writes a text behind its length. `out` is zero before, and has room for the longest text.
fn put_padded(out: &mut [u8], text: &str) {
    let len = text.len().min(out.len() - 2);
    out[..2].copy_from_slice(&(len as u16).to_le_bytes());
    out[2..2 + len].copy_from_slice(&text.as_bytes()[..len]);
}

fn take_padded<'a>(r: &mut Reader<'a>, max: usize) -> Result<&'a [u8], Malformed> {
    let text = r.blob(max)?;
    let unused = r.take(max - text.len())?;
    if unused.iter().any(|byte| *byte != 0) {
        return Err(Malformed::Inconsistent);
    }
    Ok(text)
}

/// A name, as a handshake's introduction has it.
fn take_name(r: &mut Reader<'_>) -> Result<Name, Malformed> {
    let text = take_padded(r, NAME_BYTES)?;
    let mut blob = Vec::with_capacity(padded(text.len()));
    crate::wire::put_blob(&mut blob, text);
    Name::from_bytes(&blob)
}

const NAMESPACE_BYTES: usize = 32;
const NAME_BYTES: usize = 4 * Name::CHARS_MAX;
const STORED: u8 = 1;
const DECLINED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn welcome(namespace: &str, name: &str) -> Welcome {
        Welcome {
            key: ClusterKey::from_bytes(&[7; 32]),
            namespace: NamespaceName::parse(namespace).expect("a name"),
            name: Name::from_lossy(name),
        }
    }

    #[test]
    fn what_is_given_is_read_back_and_nothing_shorter_or_longer() {
        let names = ["ada", &"x".repeat(32), &"\u{10400}".repeat(32)];
        for (namespace, name) in ["a", &"n".repeat(32), "default"].into_iter().zip(names) {
            let welcome = welcome(namespace, name);
            let bytes = welcome.to_bytes();
            assert_eq!(Welcome::from_bytes(&*bytes).as_ref(), Ok(&welcome));
            for end in 0..bytes.len() {
                assert!(Welcome::from_bytes(&bytes[..end]).is_err(), "accepted {end} bytes");
            }
            assert_eq!(Welcome::from_bytes(&[&bytes[..], &[0]].concat()), Err(Malformed::Trailing));
            for kept in [KeyOutcome::Stored, KeyOutcome::Declined] {
                let receipt = Receipt { kept, name: welcome.name.clone() };
                let bytes = receipt.to_bytes();
                assert_eq!(Receipt::from_bytes(&bytes), Ok(receipt));
                for end in 0..bytes.len() {
                    assert!(Receipt::from_bytes(&bytes[..end]).is_err(), "accepted {end} bytes");
                }
            }
        }
    }

    #[test]
    fn a_second_form_of_the_same_is_refused() {
        let bytes = welcome("default", "ada").to_bytes();
        let bent = |at: usize, byte: u8| {
            let mut bent = bytes.clone();
            bent[at] = byte;
            Welcome::from_bytes(&*bent)
        };
        assert_eq!(bent(Welcome::BYTES - 1, 1), Err(Malformed::Inconsistent));
        assert_eq!(bent(32, 33), Err(Malformed::TooLong));
        assert_eq!(bent(34, b'/'), Err(Malformed::Inconsistent), "a path as a namespace");
        assert_eq!(bent(68, 0x1b), Err(Malformed::Inconsistent), "a control character in a name");
        assert_eq!(Receipt::from_bytes(&[0; Receipt::BYTES]), Err(Malformed::UnknownTag));
    }

    #[test]
    fn neither_shows_the_key() {
        let shown = format!("{:?}", welcome("default", "ada"));
        crate::identity::assert_hides(&shown, &[7; 32]);
    }

    proptest! {
        #[test]
        fn what_is_accepted_after_a_change_is_canonical(
            key: [u8; 32],
            namespace in "[a-z0-9-]{1,32}",
            name in ".{0,40}",
            at in 0..Welcome::BYTES,
            byte: u8,
        ) {
            let key = ClusterKey::from_bytes(&key);
            let mut bytes = Welcome { key, ..welcome(&namespace, &name) }.to_bytes();
            prop_assert!(Welcome::from_bytes(&*bytes).is_ok());
            bytes[at] = byte;
            if let Ok(welcome) = Welcome::from_bytes(&*bytes) {
                prop_assert_eq!(&welcome.to_bytes()[..], &bytes[..]);
            }
            let mut bytes =
                Receipt { kept: KeyOutcome::Stored, name: Name::from_lossy(&name) }.to_bytes();
            bytes[at % Receipt::BYTES] = byte;
            if let Ok(receipt) = Receipt::from_bytes(&bytes) {
                prop_assert_eq!(&receipt.to_bytes()[..], &bytes[..]);
            }
        }

        #[test]
        fn garbage_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..=Welcome::BYTES),
        ) {
            let _ = (Welcome::from_bytes(&bytes), Receipt::from_bytes(&bytes));
        }
    }
}
