//! Layer: Core.
//!
//! A buffer that begins as another one without being a copy of it.
//!
//! Gloo's all-reduce works in place: its buffer holds the contribution first and the result at the
//! end. What of it is not written yet is read from the caller's input instead, so that nothing is
//! ever copied just to be overwritten.

use crate::collective::Block;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// What a buffer began as, and which of its bytes have been written since.
pub struct Overlay {
    original: Block,
    /// By beginning: the ends of the written ranges, which neither meet nor overlap.
    written: Mutex<BTreeMap<usize, usize>>,
}

/// Where bytes are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the original: none of them is written.
    Original,
    /// In the buffer: all of them are.
    Buffer,
    /// Some here, some there.
    Both,
}

impl Overlay {
    /// Over `original`, nothing of which is written.
    pub fn new(original: Block) -> Overlay {
        Overlay { original, written: Mutex::default() }
    }

    /// What the buffer began as.
    pub fn original(&self) -> &[u8] {
        self.original.bytes()
    }

    /// Where the bytes of a range are. Nothing is in the buffer.
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

    /// A range is written.
    pub fn wrote(&self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut start, mut end) = (range.start, range.end);
        // Those that it meets become one with it.
        while let Some((s, e)) =
            written.range(..=end).next_back().map(|(s, e)| (*s, *e)).filter(|(_, e)| *e >= start)
        {
            written.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        written.insert(start, end);
    }

    /// Whether the original is not needed any more.
    pub fn is_covered(&self) -> bool {
        self.source(&(0..self.original.len())) == Source::Buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Pool;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_from_the_buffer() {
        let overlay = Overlay::new(Pool::new().block(100));
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
        fn ranges_are_those_of_a_plain_list(steps in prop::collection::vec((0usize..60, 0usize..20, any::<bool>()), 0..60)) {
            let (overlay, mut plain) = (Overlay::new(Pool::new().block(80)), [false; 80]);
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
