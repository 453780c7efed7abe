//! The macro [`layout!`], and the forms of fields that it can name.

use super::{Decode, Encode, Malformed, Reader, put_blob};

/// Declares the layout of a type once, and implements [`Encode`] and [`Decode`] from it.
///
/// ```text
/// layout!(Ballot { round, proposer });             the fields in the order of the wire
/// layout!(Boot(number));                           a tuple struct
/// layout!(tags Mode { 0 => PerOp, 1 => PerStep }); an enum without fields: a byte; has `tag()`
/// layout! {
///     enum Vote {                                  an enum with fields: a byte, then the fields
///         1 => Done { digest },
///         2 => Abort(cause),
///     }
/// }
/// layout! {
///     Plan {
///         revision,
///         reason: Text(600),                       a field in a form that its type does not imply
///         [is_new, is_last],                       fields of type bool in one byte, the first in
///     }                                            bit 0; a higher bit is an `UnknownTag`
///     if |plan| plan.revision > 0                  or else the value is `Inconsistent`
/// }
/// ```
///
/// The compiler refuses a layout without one of the fields, and warns of a tag that is there twice.
/// A form is a value with these two methods. Its expression may use the fields before it.
///
/// ```text
/// fn put(&self, value: &T, out: &mut Vec<u8>);
/// fn read(&self, r: &mut Reader<'_>) -> Result<T, Malformed>;
/// ```
macro_rules! layout {
    (tags $Type:ident { $($tag:literal => $Variant:ident),+ $(,)? }) => {
        impl $Type {
            /// The byte that stands for this variant on the wire.
            pub(crate) fn tag(self) -> u8 {
                match self {
                    $(Self::$Variant => $tag),+
                }
            }
        }

        impl $crate::wire::Encode for $Type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.push(self.tag());
            }
        }

        impl $crate::wire::Decode for $Type {
            fn decode(r: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::Malformed> {
                match r.u8()? {
                    $($tag => Ok(Self::$Variant),)+
                    _ => Err($crate::wire::Malformed::UnknownTag),
                }
            }
        }
    };

    (
        enum $Type:ident {
            $($tag:literal => $Variant:ident $(($($tuple:tt)*))? $({$($named:tt)*})?),+ $(,)?
        }
        $(if $check:expr)?
    ) => {
        impl $crate::wire::Encode for $Type {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(layout!(@value Self::$Variant, $(($($tuple)*))? $({$($named)*})?) => {
                        out.push($tag);
                        layout!(@put out, $($($tuple)*)? $($($named)*)?);
                    })+
                }
            }
        }

        impl $crate::wire::Decode for $Type {
            fn decode(r: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::Malformed> {
                let value = match r.u8()? {
                    $($tag => {
                        layout!(@read r, $($($tuple)*)? $($($named)*)?);
                        layout!(@value Self::$Variant, $(($($tuple)*))? $({$($named)*})?)
                    })+
                    _ => return Err($crate::wire::Malformed::UnknownTag),
                };
                $($crate::wire::layout::check(&value, $check)?;)?
                Ok(value)
            }
        }
    };

    ($Type:ident $(($($tuple:tt)*))? $({$($named:tt)*})? $(if $check:expr)?) => {
        impl $crate::wire::Encode for $Type {
            fn encode(&self, out: &mut Vec<u8>) {
                let layout!(@value Self, $(($($tuple)*))? $({$($named)*})?) = self;
                layout!(@put out, $($($tuple)*)? $($($named)*)?);
            }
        }

        impl $crate::wire::Decode for $Type {
            fn decode(r: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::Malformed> {
                layout!(@read r, $($($tuple)*)? $($($named)*)?);
                let value = layout!(@value Self, $(($($tuple)*))? $({$($named)*})?);
                $($crate::wire::layout::check(&value, $check)?;)?
                Ok(value)
            }
        }
    };

    // A value with its fields by name: as a pattern in `encode`, as an expression in `decode`.
    (@value $Type:ident $(::$Variant:ident)?,) => { $Type $(::$Variant)? };
    (@value $Type:ident $(::$Variant:ident)?, ($($field:ident $(: $form:expr)?),*)) => {
        $Type $(::$Variant)? ($($field),*)
    };
    (
        @value $Type:ident $(::$Variant:ident)?,
        {$($([$($bit:ident),+])? $($field:ident $(: $form:expr)?)?),+}
    ) => {
        $Type $(::$Variant)? {$($($($bit,)+)? $($field,)?)*}
    };

    // The statements that write the fields, and those that read them.
    (@put $out:ident, $($([$($bit:ident),+])? $($field:ident $(: $form:expr)?)?),+) => {
        $(
            $($crate::wire::layout::Flags.put([$(*$bit),+], $out);)?
            $(layout!(@form $($form)?).put($field, $out);)?
        )*
    };
    (@read $r:ident, $($([$($bit:ident),+])? $($field:ident $(: $form:expr)?)?),+) => {
        $(
            $(let [$($bit),+] = $crate::wire::layout::Flags.read($r)?;)?
            $(let $field = layout!(@form $($form)?).read($r)?;)?
        )*
    };

    (@form) => { $crate::wire::layout::Plain };
    (@form $form:expr) => { $form };
}

pub(crate) use layout;

/// Refuses a value whose parts contradict each other.
pub(crate) fn check<T>(value: &T, is_consistent: impl Fn(&T) -> bool) -> Result<(), Malformed> {
    if is_consistent(value) { Ok(()) } else { Err(Malformed::Inconsistent) }
}

/// The form of a field whose type has a layout.
pub(crate) struct Plain;

impl Plain {
    pub(crate) fn put<T: Encode>(&self, value: &T, out: &mut Vec<u8>) {
        value.encode(out);
    }

    pub(crate) fn read<T: Decode>(&self, r: &mut Reader<'_>) -> Result<T, Malformed> {
        T::decode(r)
    }
}

/// Up to eight bits in one byte, the first in the lowest place. The others are zero.
pub(crate) struct Flags;

impl Flags {
    pub(crate) fn put<const N: usize>(&self, bits: [bool; N], out: &mut Vec<u8>) {
        out.push(bits.into_iter().zip(0..).map(|(bit, place)| u8::from(bit) << place).sum());
    }

    pub(crate) fn read<const N: usize>(&self, r: &mut Reader<'_>) -> Result<[bool; N], Malformed> {
        let bits = u32::from(r.u8()?);
        if bits >> N != 0 {
            return Err(Malformed::UnknownTag);
        }
        Ok(std::array::from_fn(|place| bits >> place & 1 != 0))
    }
}

/// A `u16` count of at most this, then that many values.
pub(crate) struct List(pub usize);

impl List {
    /// A length above `u16::MAX` is a bug of the caller; the rest is cut off.
    pub(crate) fn put<T: Encode>(&self, values: &[T], out: &mut Vec<u8>) {
        let count = values.len().min(usize::from(u16::MAX));
        (count as u16).encode(out);
        values[..count].iter().for_each(|value| value.encode(out));
    }

    pub(crate) fn read<T: Decode>(&self, r: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
        let count = usize::from(r.u16()?);
        if count > self.0 {
            return Err(Malformed::TooLong);
        }
        // No reservation: a value takes at least one byte, so the input bounds the growth.
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(T::decode(r)?);
        }
        Ok(values)
    }
}

/// A `u16` length of at most this, then that many bytes.
pub(crate) struct Blob(pub usize);

impl Blob {
    pub(crate) fn put(&self, bytes: &[u8], out: &mut Vec<u8>) {
        put_blob(out, bytes);
    }

    pub(crate) fn read<T>(&self, r: &mut Reader<'_>) -> Result<T, Malformed>
    where
        T: for<'a> From<&'a [u8]>,
    {
        r.blob(self.0).map(T::from)
    }
}

/// A [`Blob`] of UTF-8 text.
pub(crate) struct Text(pub usize);

impl Text {
    pub(crate) fn put(&self, text: &str, out: &mut Vec<u8>) {
        put_blob(out, text.as_bytes());
    }

    pub(crate) fn read(&self, r: &mut Reader<'_>) -> Result<String, Malformed> {
        String::from_utf8(Blob(self.0).read(r)?).map_err(|_| Malformed::Inconsistent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::assert_codec;

    #[derive(Debug, PartialEq)]
    enum Sample {
        Empty,
        Pair(u16, u8),
        Flagged { head: Vec<u8>, a: bool, b: bool, tail: Vec<u8> },
    }

    layout! {
        enum Sample {
            1 => Empty,
            4 => Pair(low, high),
            5 => Flagged { head: List(3), [a, b], tail: Blob(3 - head.len()) },
        }
        if |sample| *sample != Sample::Pair(0, 0)
    }

    #[test]
    fn a_layout_is_what_it_says() {
        let flagged = Sample::Flagged { head: vec![7], a: false, b: true, tail: vec![8, 9] };
        for (sample, bytes) in [
            (Sample::Empty, &[1][..]),
            (Sample::Pair(0x0102, 3), &[4, 2, 1, 3]),
            (flagged, &[5, 1, 0, 7, 2, 2, 0, 8, 9]),
        ] {
            assert_codec(&sample);
            assert_eq!(sample.to_bytes(), bytes);
        }
    }

    #[test]
    fn what_a_layout_does_not_allow_is_refused() {
        for (bytes, why) in [
            (&[2][..], Malformed::UnknownTag),
            (&[4, 0, 0, 0], Malformed::Inconsistent),
            (&[5, 4, 0], Malformed::TooLong),
            (&[5, 1, 0, 7, 4], Malformed::UnknownTag),
            (&[5, 1, 0, 7, 2, 3, 0], Malformed::TooLong),
        ] {
            assert_eq!(Sample::from_bytes(bytes), Err(why), "{bytes:?}");
        }
    }
}
