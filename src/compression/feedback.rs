//! Error feedback: a codec's rounding error in a member's contribution is kept as a residual and
//! added to the next contribution.
//!
//! So all input is sent eventually, except for the last residual (Seide and others 2014;
//! Karimireddy and others 2019). A member computes the residual without the engine, because its
//! contribution counts as `decode(encode(x))` of its whole buffer. If the plan lets a member send
//! without the codec, its contribution counts as `x`, and the residual is 0. The error made when
//! the owner of a sum encodes that sum is not kept, since the owner of a range changes with every
//! plan.

use super::blocks::BLOCK;
use super::codec::Codec;
use crate::memory::{OutOfMemory, Pool};
use crate::os::in_default_environment;

/// The residual of one member for one buffer and one codec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// Empty if the residual is 0, for any length of the buffer.
    residual: Vec<f32>,
}

/// Elements encoded at a time, to stay in the first-level cache; a multiple of a block.
const ROW: usize = 4 * BLOCK;

impl Feedback {
    /// The residual of each element; empty if it is 0.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// The same with room for a residual of `len` elements, so that [`after`](Feedback::after)
    /// takes no memory.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn with_room_for(mut self, len: usize, pool: &Pool) -> Result<Feedback, OutOfMemory> {
        pool.room_for(&mut self.residual, len)?;
        Ok(self)
    }

    /// `elements` plus the residual, in the memory of `spare`, whose contents are ignored. The
    /// length must not change from call to call. Takes no memory if `spare` has room.
    pub fn contribution(&self, elements: &[f32], spare: Vec<f32>) -> Vec<f32> {
        let mut sum = spare;
        if self.residual.is_empty() {
            sum.clear();
            sum.extend_from_slice(elements);
        } else {
            sum.resize(elements.len(), 0.0);
            in_default_environment(|| add(&mut sum, elements, &self.residual));
        }
        sum
    }

    /// The residual after `codec` has encoded this contribution, in the memory of `spare`, which
    /// has [room](Feedback::with_room_for) for it. It is 0 for an element whose residual would be
    /// infinite or NaN: such an element is seen in this result, and later results are without it.
    pub fn after(codec: &dyn Codec, contribution: &[f32], spare: Feedback) -> Feedback {
        let mut residual = spare.residual;
        residual.resize(contribution.len(), 0.0);
        let mut bytes = vec![0; codec.encoded_len(ROW)];
        // All steps for one row while it is in the first-level cache.
        for (row, rest) in contribution.chunks(ROW).zip(residual.chunks_mut(ROW)) {
            let bytes = &mut bytes[..codec.encoded_len(row.len())];
            codec.encode(row, bytes);
            let read = codec.decode(bytes, rest);
            debug_assert_eq!(read, Ok(()), "a codec reads what it has written");
            in_default_environment(|| subtract_from(row, rest));
        }
        Feedback { residual }
    }
}

fn add(sum: &mut [f32], a: &[f32], b: &[f32]) {
    for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
        *sum = a + b;
    }
}

/// `y = x - y`, or 0 if that is infinite or NaN.
fn subtract_from(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        let rest = x - *y;
        *y = if rest.is_finite() { rest } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::super::bf16::Bf16;
    use super::super::f16::F16;
    use super::super::int4::Int4;
    use super::super::int8::Int8;
    use super::super::one_bit::OneBit;
    use super::*;
    use proptest::prelude::*;

    const CODECS: [&dyn Codec; 5] = [&Bf16, &F16, &Int8, &Int4, &OneBit];

    fn coded(codec: &dyn Codec, elements: &[f32]) -> Vec<f32> {
        let (mut bytes, mut out) =
            (vec![0; codec.encoded_len(elements.len())], vec![0.0; elements.len()]);
        codec.encode(elements, &mut bytes);
        codec.decode(&bytes, &mut out).expect("what it has written");
        out
    }

    /// A contribution and the next residual, in memory with previous contents.
    struct Due {
        contribution: Vec<f32>,
        next: Feedback,
    }

    fn due(feedback: &Feedback, codec: &dyn Codec, elements: &[f32]) -> Due {
        let contribution = feedback.contribution(elements, vec![f32::NAN; 999]);
        let next =
            Feedback::after(codec, &contribution, Feedback { residual: vec![f32::NAN; 1999] });
        Due { contribution, next }
    }

    proptest! {
        /// Integers, whose sums and differences are exact; bf16 and f16 represent the small ones
        /// exactly.
        #[test]
        fn what_was_sent_and_the_residual_are_what_was_fed_in(
            rounds in prop::collection::vec(prop::collection::vec(-2000i32..2000, 1500), 1..6),
        ) {
            for codec in CODECS {
                let mut feedback = Feedback::default();
                let (mut fed, mut sent) = (vec![0f64; 1500], vec![0f64; 1500]);
                for round in &rounds {
                    let elements: Vec<f32> = round.iter().map(|x| *x as f32).collect();
                    let due = due(&feedback, codec, &elements);
                    let arrives = coded(codec, &due.contribution);
                    for i in 0..1500 {
                        fed[i] += f64::from(elements[i]);
                        sent[i] += f64::from(arrives[i]);
                        let residual = f64::from(due.next.residual()[i]);
                        let rounded_away = 0.01;
                        prop_assert!((sent[i] + residual - fed[i]).abs() <= rounded_away, "{}: {} \
                            sent, {residual} residual of {}", i, sent[i], fed[i]);
                    }
                    feedback = due.next;
                }
            }
        }

        #[test]
        fn rows_are_no_other_than_the_whole(
            elements in prop::collection::vec(-1e3f32..1e3, 0..3000),
        ) {
            for codec in CODECS {
                let due = due(&Feedback::default(), codec, &elements);
                let pairs = elements.iter().zip(coded(codec, &elements));
                let whole: Vec<f32> = pairs.map(|(x, y)| x - y).collect();
                prop_assert_eq!(due.next.residual(), &whole);
                prop_assert_eq!(&due.contribution, &elements);
            }
        }
    }

    #[test]
    fn a_residual_that_is_no_number_becomes_zero() {
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            for codec in CODECS {
                let due = due(&Feedback::default(), codec, &[bad, 1.0, 0.3]);
                assert!(
                    due.next.residual().iter().all(|residual| residual.is_finite()),
                    "{bad}: {:?}",
                    due.next
                );
            }
        }
    }

    #[test]
    fn a_small_number_beside_a_large_one_is_sent_in_the_end() {
        // A fifth of int4's step: without feedback it would always be rounded to 0.
        let (elements, mut feedback, mut sent) = ([7.0f32, 0.2], Feedback::default(), 0.0);
        for _ in 0..50 {
            let due = due(&feedback, &Int4, &elements);
            sent += coded(&Int4, &due.contribution)[1];
            feedback = due.next;
        }
        assert!((sent - 10.0).abs() <= 1.0, "{sent} of 10 sent");
        assert_eq!(coded(&Int4, &elements)[1], 0.0);
    }
}
