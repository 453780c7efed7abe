//! A buffer that starts with the contents of another one without a copy.
//!
//! Gloo's all-reduce works in place: its buffer holds the contribution first and the result at the
//! end. Here, reads of bytes that are not written yet go to the caller's input instead, so no byte
//! is copied only to be overwritten.

use crate::memory::Block;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The original contents of a buffer, and the ranges of it that have been written since.
pub struct Overlay {
    original: Block,
    /// Written ranges as start to end; they neither touch nor overlap.
    written: Mutex<BTreeMap<usize, usize>>,
}

/// The place to read a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The original: no byte of the range has been written.
    Original,
    /// The buffer: all bytes of the range have been written.
    Buffer,
    /// Some bytes in the original, some in the buffer.
    Both,
}

impl Overlay {
    /// Makes an overlay of `original` without any written range.
    pub fn new(original: Block) -> Overlay {
        Overlay { original, written: Mutex::default() }
    }

    /// The buffer's original contents.
    pub fn original(&self) -> &[u8] {
        self.original.bytes()
    }

    /// The place of the bytes of a range. An empty range counts as written.
    pub fn source(&self, range: &Range<usize>) -> Source {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let before = written.range(..range.end).next_back();
        match before {
            Some((start, end)) if *start <= range.start && range.end <= *end => Source::Buffer,
            Some((_, end)) if *end > range.start => Source::Both,
            _ if range.is_empty() => Source::Buffer,
            _ => Source::Original,
        }
    }

    /// Records that a range has been written.
    pub fn wrote(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut start, mut end) = (range.start, range.end);
        // Merge all ranges that overlap or touch it.
        while let Some((s, e)) =
            written.range(..=end).next_back().map(|(s, e)| (*s, *e)).filter(|(_, e)| *e >= start)
        {
            written.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        written.insert(start, end);
    }

    /// Whether the whole buffer has been written.
    pub fn is_covered(&self) -> bool {
        self.source(&(0..self.original.len())) == Source::Buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pool;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_from_the_buffer() {
        let overlay = Overlay::new(Pool::new().block(100).expect("there is memory"));
        assert_eq!(
            (overlay.source(&(0..100)), overlay.source(&(5..5))),
            (Source::Original, Source::Buffer)
        );
        overlay.wrote(10..20);
        overlay.wrote(30..40);
        for (range, source) in [
            (10..20, Source::Buffer),
            (12..13, Source::Buffer),
            (20..30, Source::Original),
            (0..10, Source::Original),
            (9..11, Source::Both),
            (19..31, Source::Both),
            (0..100, Source::Both),
        ] {
            assert_eq!(overlay.source(&range), source, "{range:?}");
        }
        overlay.wrote(20..30);
        assert_eq!(overlay.source(&(10..40)), Source::Buffer);
        overlay.wrote(0..100);
        assert!(overlay.is_covered());
    }

    proptest! {
        #[test]
        fn ranges_are_those_of_a_plain_list(
            steps in prop::collection::vec((0usize..60, 0usize..20, any::<bool>()), 0..60),
        ) {
            let (overlay, mut plain) = (Overlay::new(Pool::new().block(80).expect("there is \
                memory")), [false; 80]);
            for (start, len, write) in steps {
                let range = start..start + len;
                if write {
                    overlay.wrote(range.clone());
                    plain[range].fill(true);
                } else {
                    let of = &plain[range.clone()];
                    let expected = match (of.contains(&true), of.contains(&false)) {
                        (true, true) => Source::Both,
                        (false, true) => Source::Original,
                        _ => Source::Buffer,
                    };
                    prop_assert_eq!(overlay.source(&range), expected, "{:?}", range);
                }
            }
        }
    }
}
