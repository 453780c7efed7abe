//! The buffer of a result: one stretch of memory that threads write part by part, send from, and
//! hand out in the end.
//!
//! Each part is written by the thread that claims it, and only read once it has landed. The memory
//! is handed out when no other reference to it is left. All unsafe code about results is in this
//! file.
//!
//! ```text
//! BLANK --claim--> CLAIMED --land--> LANDED (readable, never written again)
//!   ^                 |
//!   '---give_back-----'     a dropped claim leaves the part CLAIMED for ever
//! ```

#![allow(
    unsafe_code,
    reason = "several threads write to different parts of one caller's memory, which cannot be \
        split by value"
)]

#[cfg(all(test, potluck_threads))]
mod memory_model;
#[cfg(all(test, potluck_threads))]
mod schedules;

use super::out_of_memory::{OutOfMemory, listed};
use super::pool::Memory;
use crate::os::{Access, AtomicU8, Race};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The buffer of a result in progress.
pub struct ResultBuffer {
    start: *mut u8,
    /// The end offset of each part; the next part begins there.
    ends: Vec<usize>,
    parts: Vec<Part>,
    /// The owner of the memory at `start`. Not accessed until it is taken out again.
    memory: Memory,
}

/// One part of a result.
struct Part {
    state: AtomicU8,
    bytes: Access,
}

/// The exclusive right to write one part. Dropping it before it has [landed](PartWriter::land)
/// leaves the part unusable: it can be neither claimed nor read again.
pub struct PartWriter {
    result_buffer: Arc<ResultBuffer>,
    part: usize,
}

/// A written part, for reading.
#[derive(Clone)]
pub struct WrittenPart {
    result_buffer: Arc<ResultBuffer>,
    part: usize,
}

/// The part is not claimed.
const BLANK: u8 = 0;
/// One claim may write the part, and no other thread accesses it.
const CLAIMED: u8 = 1;
/// The part is written, and no thread ever writes it again.
const LANDED: u8 = 2;

// SAFETY: `start` is only dereferenced by a `PartWriter`, of which there is at most one per part,
// and in parts that have landed, for which there is no claim. The memory belongs to the result
// buffer, so both keep it alive; any thread may use it.
unsafe impl Send for ResultBuffer {}
// SAFETY: as above; the states order the write of a part before every read.
unsafe impl Sync for ResultBuffer {}

impl ResultBuffer {
    /// A buffer over `memory` in as many parts as there are `lengths`. `None` if these do not add
    /// up to the length of the memory.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        mut memory: Memory,
        lengths: impl Iterator<Item = usize> + Clone,
    ) -> Result<Option<Arc<ResultBuffer>>, OutOfMemory> {
        let mut end = Some(0usize);
        let count = lengths.clone().count();
        let ends = listed(
            count,
            lengths.map_while(|length| {
                end = end?.checked_add(length);
                end
            }),
        )?;
        if end != Some(memory.len()) {
            return Ok(None);
        }
        let part = |_| Part { state: AtomicU8::new(BLANK), bytes: Access::new() };
        let parts = listed(count, ends.iter().map(part))?;
        let start = memory.bytes_mut().as_mut_ptr();
        Ok(Some(Arc::new(ResultBuffer { start, ends, parts, memory })))
    }

    /// The right to write a part. It is given once, unless it is [given
    /// back](PartWriter::give_back).
    pub fn claim(self: &Arc<ResultBuffer>, part: usize) -> Option<PartWriter> {
        self.parts.get(part)?.take()?;
        Some(PartWriter { result_buffer: Arc::clone(self), part })
    }

    /// These bytes, if all parts that they touch have landed.
    pub fn landed(&self, range: Range<usize>) -> Option<&[u8]> {
        let first = self.ends.partition_point(|end| *end <= range.start);
        let touched =
            (first..self.ends.len()).take_while(|part| self.range(*part).start < range.end);
        for part in touched {
            if self.parts[part].state.load(Ordering::Acquire) != LANDED {
                return None;
            }
            self.parts[part].bytes.read();
        }
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // SAFETY: The range is inside of the memory, which is initialised and lives as long as this
        // result buffer. A landed part is not written again, and the `Acquire` loads of the states
        // make the earlier writes visible here.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// The byte range of a part.
    pub fn range(&self, part: usize) -> Range<usize> {
        let start = part.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[part]
    }

    /// The memory, if there is no other reference to the result buffer.
    ///
    /// # Errors
    /// The result buffer, while a [`PartWriter`] or a [`WrittenPart`] refers to it.
    pub fn take(self: Arc<ResultBuffer>) -> Result<Memory, Arc<ResultBuffer>> {
        // Both hold a reference to the result buffer. If this is the only one, `start` is not
        // dereferenced any more.
        Arc::try_unwrap(self).map(|result_buffer| result_buffer.memory)
    }
}

impl Part {
    fn take(&self) -> Option<()> {
        if Race::ClaimInTwoSteps.is_seeded() {
            let is_blank = self.state.load(Ordering::Acquire) == BLANK;
            return is_blank.then(|| self.state.store(CLAIMED, Ordering::Relaxed));
        }
        let claimed =
            self.state.compare_exchange(BLANK, CLAIMED, Ordering::Acquire, Ordering::Relaxed);
        claimed.ok().map(drop)
    }

    /// Ends a claim.
    fn leave_as(&self, state: u8) {
        let order =
            if Race::UnorderedLanding.is_seeded() { Ordering::Relaxed } else { Ordering::Release };
        self.state.store(state, order);
    }
}

impl PartWriter {
    /// The part's bytes; before the first write those that its memory had.
    pub fn bytes(&self) -> &[u8] {
        let range = self.result_buffer.range(self.part);
        self.result_buffer.parts[self.part].bytes.read();
        // SAFETY: The range is inside of the memory, which is initialised and which the result
        // buffer keeps alive. This claim is the only one of the part, no other part shares its
        // bytes, and no part is read before it has landed.
        unsafe {
            std::slice::from_raw_parts(self.result_buffer.start.add(range.start), range.len())
        }
    }

    /// The part's bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.result_buffer.range(self.part);
        self.result_buffer.parts[self.part].bytes.write();
        // SAFETY: As for `bytes`; the claim is mutably borrowed while they are written.
        unsafe {
            std::slice::from_raw_parts_mut(self.result_buffer.start.add(range.start), range.len())
        }
    }

    /// Allows another thread to claim the part.
    pub fn give_back(self) {
        self.result_buffer.parts[self.part].leave_as(BLANK);
    }

    /// Marks the part as written.
    pub fn land(self) -> WrittenPart {
        self.result_buffer.parts[self.part].leave_as(LANDED);
        WrittenPart { result_buffer: self.result_buffer, part: self.part }
    }
}

impl WrittenPart {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // A `WrittenPart` only exists for a part that has landed.
        self.result_buffer.landed(self.range()).unwrap_or_default()
    }

    /// The byte range in the result.
    pub fn range(&self) -> Range<usize> {
        self.result_buffer.range(self.part)
    }

    /// The result that contains the part.
    pub fn result_buffer(&self) -> &Arc<ResultBuffer> {
        &self.result_buffer
    }
}

impl fmt::Debug for ResultBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultBuffer({} bytes, {} parts)", self.len(), self.ends.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::Pool;
    use super::*;
    use proptest::prelude::*;

    fn result_buffer(lengths: &[usize]) -> Arc<ResultBuffer> {
        result_buffer_of(block(lengths.iter().sum()), lengths).expect("they fit")
    }

    fn result_buffer_of(memory: Memory, lengths: &[usize]) -> Option<Arc<ResultBuffer>> {
        ResultBuffer::new(memory, lengths.iter().copied()).expect("there is memory")
    }

    fn block(len: usize) -> Memory {
        Pool::new().memory(len).expect("there is memory")
    }

    #[test]
    fn a_part_is_claimed_once_and_read_when_it_has_landed() {
        let result_buffer = result_buffer(&[3, 0, 5]);
        let mut writer = result_buffer.claim(2).expect("the first");
        assert!(result_buffer.claim(2).is_none() && result_buffer.claim(3).is_none());
        writer.bytes_mut().copy_from_slice(b"hello");
        assert_eq!((writer.bytes(), result_buffer.landed(3..8)), (&b"hello"[..], None));
        let piece = writer.land();
        assert_eq!(
            (piece.bytes(), result_buffer.landed(4..7), piece.range()),
            (&b"hello"[..], Some(&b"ell"[..]), 3..8)
        );
        assert!(result_buffer.claim(2).is_none(), "what has landed is not written again");
        assert!(
            result_buffer.landed(2..4).is_none()
                && result_buffer.landed(0..0).is_some()
                && result_buffer.landed(3..9).is_none()
        );
    }

    #[test]
    fn who_gives_up_leaves_the_part_to_nobody() {
        let result_buffer = result_buffer(&[4]);
        drop(result_buffer.claim(0));
        assert!(result_buffer.claim(0).is_none() && result_buffer.landed(0..4).is_none());
    }

    #[test]
    fn what_is_given_back_is_claimed_anew() {
        let result_buffer = result_buffer(&[4]);
        let mut writer = result_buffer.claim(0).expect("the first");
        writer.bytes_mut().fill(1);
        writer.give_back();
        assert!(result_buffer.landed(0..4).is_none());
        let mut writer = result_buffer.claim(0).expect("the next");
        assert!(result_buffer.claim(0).is_none());
        writer.bytes_mut().fill(2);
        assert_eq!(writer.land().bytes(), [2; 4]);
    }

    #[test]
    fn the_memory_is_handed_out_when_nobody_has_any_of_it() {
        let mut memory = block(4);
        let address = memory.bytes_mut().as_ptr();
        let result_buffer = result_buffer_of(memory, &[4]).expect("it fits");
        let result_buffer = {
            result_buffer
                .claim(0)
                .map(|writer| (writer, result_buffer.take().expect_err("it is being written")))
        };
        let (mut writer, result_buffer) = result_buffer.expect("the first writer");
        writer.bytes_mut().copy_from_slice(b"done");
        let piece = writer.land();
        let result_buffer = result_buffer.take().expect_err("it is being read");
        assert_eq!(piece.bytes(), b"done");
        drop(piece);
        let memory = result_buffer.take().expect("it is alone");
        assert_eq!((memory.bytes(), memory.bytes().as_ptr()), (&b"done"[..], address));
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        for lengths in [&[3][..], &[5], &[], &[usize::MAX, 5], &[2, usize::MAX]] {
            assert!(result_buffer_of(block(4), lengths).is_none(), "{lengths:?}");
        }
        assert!(
            result_buffer_of(block(0), &[])
                .is_some_and(|result_buffer| result_buffer.take().is_ok())
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Threads race for all parts; one thread writes each part, and the others read it whole.
        #[test]
        fn threads_that_race_write_every_part_once(
            lengths in proptest::collection::vec(0usize..300, 1..40),
        ) {
            let result_buffer = result_buffer(&lengths);
            let claimed: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (1..=4u8).map(|mark| {
                    let (result_buffer, lengths) = (Arc::clone(&result_buffer), &lengths);
                    scope.spawn(move || {
                        let mut claimed = 0;
                        for part in 0..lengths.len() {
                            if let Some(mut writer) = result_buffer.claim(part) {
                                claimed += 1;
                                writer.bytes_mut().fill(mark);
                                drop(writer.land());
                            } else if let Some(bytes) =
                                result_buffer.landed(result_buffer.range(part))
                            {
                                assert!(bytes.windows(2).all(|two| two[0] == two[1]), "written by \
                                    two");
                            }
                        }
                        claimed
                    })
                }).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            prop_assert_eq!(claimed, lengths.len());
            let all =
                result_buffer.landed(0..result_buffer.len()).expect("all has landed").to_vec();
            prop_assert!(!all.contains(&0) || lengths.iter().all(|length| *length == 0));
            let memory = result_buffer.take().expect("alone");
            prop_assert_eq!(memory.bytes(), &all[..]);
        }
    }
}
