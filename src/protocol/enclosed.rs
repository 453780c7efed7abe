//! A contribution that travels with its descriptor.

use crate::wire::layout::{Blob, layout};
use std::fmt;

/// Most bytes of an enclosed contribution: small enough for one control record that does not delay
/// the records behind it.
pub const ENCLOSED_BYTES_MAX: usize = 4 * 1024;

/// The one small chunk that a member's schedule sends to all others alike.
///
/// Enclosing it saves one of two messages to each member, and neither end has to wake the threads
/// of its data links.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Enclosed {
    /// The flow of the operation's schedule.
    pub flow: u32,
    /// The chunk of the flow.
    pub chunk: u32,
    /// Whether it is a result instead of a contribution.
    pub is_result: bool,
    /// The chunk, at most [`ENCLOSED_BYTES_MAX`] bytes.
    pub bytes: Box<[u8]>,
}

layout!(Enclosed { flow, chunk, is_result, bytes: Blob(ENCLOSED_BYTES_MAX) });

impl fmt::Debug for Enclosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Enclosed { flow, chunk, is_result, bytes } = self;
        write!(
            f,
            "Enclosed {{ flow: {flow}, chunk: {chunk}, is_result: {is_result}, bytes: {} }}",
            bytes.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Decode, Encode, Malformed, assert_codec};

    fn of(len: usize) -> Enclosed {
        Enclosed { flow: 3, chunk: u32::MAX, is_result: true, bytes: vec![7; len].into() }
    }

    #[test]
    fn one_of_any_size_survives_the_wire_and_a_larger_one_is_refused() {
        [0, 1, ENCLOSED_BYTES_MAX].into_iter().for_each(|len| assert_codec(&of(len)));
        let larger = of(ENCLOSED_BYTES_MAX + 1).to_bytes();
        assert_eq!(Enclosed::from_bytes(&larger), Err(Malformed::TooLong));
    }

    #[test]
    fn it_does_not_print_what_it_holds() {
        assert_eq!(
            format!("{:?}", of(2)),
            "Enclosed { flow: 3, chunk: 4294967295, is_result: true, bytes: 2 }"
        );
    }
}
