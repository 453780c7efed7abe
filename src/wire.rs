//! Encoding of messages and files: fixed little-endian layouts, declared in [`layout`].
//!
//! Every decoder reads from a [`Reader`], which only moves forward within its slice. A length is
//! checked against its limit, and the length of a blob also against the bytes left, before anything
//! is allocated. No input can make a decoder panic or recurse, and its memory use is proportional
//! to the size of the input.

pub(crate) mod layout;

#[cfg(test)]
pub(crate) use testing::assert_codec;

use derive_more::Display;
use std::sync::Arc;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Malformed {
    /// The input ended inside a value.
    #[display("the message ends too early")]
    Truncated,
    /// Bytes follow the value.
    #[display("the message has bytes behind its end")]
    Trailing,
    /// A count or length exceeds its limit.
    #[display("a length exceeds its limit")]
    TooLong,
    /// This version does not know the tag or enum value.
    #[display("a tag is unknown to this version")]
    UnknownTag,
    /// The parts are readable but contradict each other.
    #[display("the message contradicts itself")]
    Inconsistent,
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

    /// A `u16` length of at most `max`, then that many bytes.
    pub fn blob(&mut self, max: usize) -> Result<&'a [u8], Malformed> {
        let len = usize::from(self.u16()?);
        if len > max {
            return Err(Malformed::TooLong);
        }
        self.take(len)
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

macro_rules! integers {
    ($($Int:ident)+) => {
        $(
            /// Little-endian.
            impl Encode for $Int {
                fn encode(&self, out: &mut Vec<u8>) {
                    out.extend_from_slice(&self.to_le_bytes());
                }
            }

            impl Decode for $Int {
                fn decode(r: &mut Reader<'_>) -> Result<$Int, Malformed> {
                    r.array().map($Int::from_le_bytes)
                }
            }
        )+
    };
}

integers!(u8 u16 u32 u64 u128);

/// A byte that must be 0 or 1.
impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<bool, Malformed> {
        match r.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::UnknownTag),
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl<const N: usize> Decode for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<[u8; N], Malformed> {
        r.array()
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<(A, B), Malformed> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}

/// A presence byte (0 or 1), then the value if it is 1.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        self.iter().for_each(|value| value.encode(out));
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::decode(r)? { Some(T::decode(r)?) } else { None })
    }
}

macro_rules! pointers {
    ($($Pointer:ident)+) => {
        $(
            /// The value.
            impl<T: Encode> Encode for $Pointer<T> {
                fn encode(&self, out: &mut Vec<u8>) {
                    T::encode(self, out);
                }
            }

            impl<T: Decode> Decode for $Pointer<T> {
                fn decode(r: &mut Reader<'_>) -> Result<$Pointer<T>, Malformed> {
                    T::decode(r).map($Pointer::new)
                }
            }
        )+
    };
}

pointers!(Box Arc);

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
        assert_eq!(bool::from_bytes(&[2]), Err(Malformed::UnknownTag));
    }
}
