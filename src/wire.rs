//! Encoding of messages and files: fixed little-endian layouts, written by hand.
//!
//! Every decoder reads from a [`Reader`], which only moves forward within its slice. A length is
//! checked against its limit, and the length of a blob also against the bytes left, before anything
//! is allocated. No input can make a decoder panic or recurse, and its memory use is proportional
//! to the size of the input.

#[cfg(test)]
pub(crate) use testing::assert_codec;

use std::fmt;

/// Version of the wire protocol. Peers with another version are listed, but never joined.
pub const PROTOCOL_VERSION: u8 = 1;

/// A value with one canonical byte form.
pub trait Encode {
    /// Appends the canonical form to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// The canonical form alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// A value that can be read back from its canonical form.
pub trait Decode: Sized {
    /// Reads one value; the reader stops right after it.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Reads one value that must fill `bytes` exactly.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The input ended inside a value.
    Truncated,
    /// Bytes follow the value.
    Trailing,
    /// A count or length exceeds its limit.
    TooLong,
    /// This version does not know the tag or enum value.
    UnknownTag,
    /// The parts are readable but contradict each other.
    Inconsistent,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Truncated => "the message ends too early",
            Malformed::Trailing => "the message has bytes behind its end",
            Malformed::TooLong => "a length exceeds its limit",
            Malformed::UnknownTag => "a tag is unknown to this version",
            Malformed::Inconsistent => "the message contradicts itself",
        })
    }
}

impl std::error::Error for Malformed {}

/// A cursor over received bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Number of unread bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        if n > self.rest.len() {
            return Err(Malformed::Truncated);
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Truncated)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// A little-endian `u16`.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// A little-endian `u32`.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// A little-endian `u64`.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A byte that must be 0 or 1.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::UnknownTag),
        }
    }

    /// A `u16` length of at most `max`, then that many bytes.
    pub fn blob(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(Malformed::TooLong);
        }
        self.take(len)
    }

    /// A `u16` length of at most `max` bytes, then UTF-8 text.
    pub fn text(&mut self, max: usize) -> Result<String, Malformed> {
        let bytes = self.blob(max)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Malformed::Inconsistent),
        }
    }

    /// A `u16` count of at most `max`, then that many values.
    pub fn list<T: Decode>(&mut self, max: usize) -> Result<Vec<T>, Malformed> {
        let count = usize::from(self.u16()?);
        if count > max {
            return Err(Malformed::TooLong);
        }
        // No reservation: a value takes at least one byte, so the input bounds the growth.
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(T::decode(self)?);
        }
        Ok(values)
    }

    /// A presence byte (0 or 1), then the value if it is 1.
    pub fn option<T: Decode>(&mut self) -> Result<Option<T>, Malformed> {
        Ok(if self.bool()? { Some(T::decode(self)?) } else { None })
    }

    /// Checks that all bytes have been read.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// Appends a blob as [`Reader::blob`] reads it. A length above `u16::MAX` is a bug of the caller;
/// the rest is cut off.
pub fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(len as u16).to_le_bytes());
    out.extend_from_slice(&bytes[..len]);
}

/// Appends a list as [`Reader::list`] reads it. A length above `u16::MAX` is a bug of the caller;
/// the rest is cut off.
pub fn put_list<T: Encode>(out: &mut Vec<u8>, values: &[T]) {
    let count = values.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(count as u16).to_le_bytes());
    for value in &values[..count] {
        value.encode(out);
    }
}

/// Appends an option as [`Reader::option`] reads it.
pub fn put_option<T: Encode>(out: &mut Vec<u8>, value: Option<&T>) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        value.encode(out);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::{Decode, Encode};
    use std::fmt::Debug;

    /// Checks the round trip, truncation at every byte, and one trailing byte.
    pub(crate) fn assert_codec<T: Encode + Decode + PartialEq + Debug>(value: &T) {
        let bytes = value.to_bytes();
        assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
        for end in 0..bytes.len() {
            assert!(
                T::from_bytes(&bytes[..end]).is_err(),
                "accepted {end} of {} bytes",
                bytes.len()
            );
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(T::from_bytes(&longer).is_err(), "accepted a trailing byte");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_refused_before_it_is_allocated() {
        let mut r = Reader::new(&[0xff, 0xff, 1, 2]);
        assert_eq!(r.clone().blob(16), Err(Malformed::TooLong));
        assert_eq!(r.blob(usize::MAX), Err(Malformed::Truncated));
    }

    #[test]
    fn a_bool_is_zero_or_one() {
        assert_eq!(Reader::new(&[2]).bool(), Err(Malformed::UnknownTag));
    }
}
