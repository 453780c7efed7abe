//! The state of a program that all members hold.

use crate::memory::{Element, bytes_of, bytes_of_mut};
use half::{bf16, f16};
use std::io::{Error, ErrorKind, Read, Result};

/// A state that all members of a group hold, and that a member can send to another one: as bytes.
/// [`Cluster::elastic`](crate::Cluster::elastic) needs it.
///
/// It is implemented for all [`Element`]s, for `usize`, for tuples of two to four states, for
/// arrays of states, and for vectors of states that have a [`Default`] and save at least one byte
/// each. A struct names its fields twice:
///
/// ```
/// use potluck::SharedState;
///
/// struct Model {
///     step: u64,
///     weights: Vec<f32>,
///     layers: Vec<Vec<f32>>,
/// }
///
/// impl SharedState for Model {
///     fn save(&self, out: &mut Vec<u8>) {
///         self.step.save(out);
///         self.weights.save(out);
///         self.layers.save(out);
///     }
///
///     fn load(&mut self, saved: &mut &[u8]) -> std::io::Result<()> {
///         self.step.load(saved)?;
///         self.weights.load(saved)?;
///         self.layers.load(saved)
///     }
/// }
/// ```
pub trait SharedState {
    /// Appends the bytes of this state to `out`.
    fn save(&self, out: &mut Vec<u8>);

    /// Replaces this state by the one at the start of `saved`, and leaves in `saved` the bytes
    /// behind it.
    ///
    /// # Errors
    /// The bytes are no such state, for example because another member runs another program. This
    /// state is then unspecified.
    fn load(&mut self, saved: &mut &[u8]) -> Result<()>;

    /// [`save`](SharedState::save) for each of these states, one after the other.
    #[doc(hidden)]
    fn save_all(states: &[Self], out: &mut Vec<u8>)
    where
        Self: Sized,
    {
        states.iter().for_each(|state| state.save(out));
    }

    /// [`load`](SharedState::load) for each of these states, one after the other.
    #[doc(hidden)]
    fn load_all(states: &mut [Self], saved: &mut &[u8]) -> Result<()>
    where
        Self: Sized,
    {
        states.iter_mut().try_for_each(|state| state.load(saved))
    }
}

macro_rules! elements {
    ($($element:ty)*) => {
        $(
            impl SharedState for $element {
                fn save(&self, out: &mut Vec<u8>) {
                    save_elements(std::slice::from_ref(self), out);
                }

                fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
                    saved.read_exact(bytes_of_mut(std::slice::from_mut(self)))
                }

                fn save_all(states: &[Self], out: &mut Vec<u8>) {
                    save_elements(states, out);
                }

                fn load_all(states: &mut [Self], saved: &mut &[u8]) -> Result<()> {
                    saved.read_exact(bytes_of_mut(states))
                }
            }
        )*
    };
}

elements!(f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64);

fn save_elements<T: Element>(elements: &[T], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes_of(elements));
}

impl SharedState for usize {
    fn save(&self, out: &mut Vec<u8>) {
        (*self as u64).save(out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
        let mut wide = 0u64;
        wide.load(saved)?;
        *self = usize::try_from(wide).map_err(|_| unfit())?;
        Ok(())
    }
}

impl SharedState for bool {
    fn save(&self, out: &mut Vec<u8>) {
        u8::from(*self).save(out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
        let mut byte = 0u8;
        byte.load(saved)?;
        *self = byte != 0;
        Ok(())
    }
}

impl<S: SharedState, const N: usize> SharedState for [S; N] {
    fn save(&self, out: &mut Vec<u8>) {
        S::save_all(self, out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
        S::load_all(self, saved)
    }
}

/// With its length. Loading changes the length to the saved one.
impl<S: SharedState + Default> SharedState for Vec<S> {
    fn save(&self, out: &mut Vec<u8>) {
        out.reserve(size_of_val(self.as_slice()));
        self.len().save(out);
        S::save_all(self, out);
    }

    fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
        let mut len = 0usize;
        len.load(saved)?;
        // Each element takes a byte or more, so the bytes that are there bound the memory.
        if len > saved.len() {
            return Err(unfit());
        }
        self.resize_with(len, S::default);
        S::load_all(self, saved)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => {
        $(
            impl<$($name: SharedState),*> SharedState for ($($name,)*) {
                fn save(&self, out: &mut Vec<u8>) {
                    $(self.$index.save(out);)*
                }

                fn load(&mut self, saved: &mut &[u8]) -> Result<()> {
                    $(self.$index.load(saved)?;)*
                    Ok(())
                }
            }
        )*
    };
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

fn unfit() -> Error {
    Error::from(ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_comes_back_and_a_shorter_one_is_refused() {
        type All = (u64, (bool, usize), Vec<Vec<f32>>, [f16; 2]);
        let state: All =
            (7, (true, 9), vec![vec![1.5, -0.0], vec![], vec![f32::NAN]], [f16::ONE, f16::MAX]);
        let mut bytes = Vec::new();
        state.save(&mut bytes);
        let mut back = All::default();
        let mut left = &bytes[..];
        back.load(&mut left).expect("it is one");
        let mut again = Vec::new();
        back.save(&mut again);
        assert!(left.is_empty() && again == bytes && back.1 == (true, 9) && back.2.len() == 3);
        for cut in 0..bytes.len() {
            assert!(All::default().load(&mut &bytes[..cut]).is_err(), "of {cut} bytes");
        }
    }

    #[test]
    fn a_length_that_is_not_there_takes_no_memory() {
        let mut bytes = Vec::new();
        u64::MAX.save(&mut bytes);
        assert!(Vec::<f32>::new().load(&mut &bytes[..]).is_err());
        bytes.clear();
        (1u64 << 40).save(&mut bytes);
        bytes.extend([0; 64]);
        assert!(Vec::<Vec<f32>>::new().load(&mut &bytes[..]).is_err());
    }
}
