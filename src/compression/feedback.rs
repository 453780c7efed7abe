//! Layer: Core.
//!
//! Error feedback: what a codec has rounded away of a member's contribution is owed, and added to
//! the next one.
//!
//! So whatever is fed in is sent some time, but for what is owed at last (Seide and others 2014;
//! Karimireddy and others 2019). It is known without the engine, because what a member contributes
//! is `decode(encode(x))` of its whole buffer. Of a member that goes without the codec, as a plan
//! may say, it is `x`, and nothing is owed. What the owner of a sum rounds away when it encodes
//! that is nobody's debt: it is not kept, as the owner of a range changes with every plan.

use super::Codec;
use super::blocks::BLOCK;
use crate::collective::in_default_environment;

/// What a member owes to the elements of one buffer under one codec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    /// Empty when nothing is owed, whatever the buffer's length.
    residual: Vec<f32>,
}

/// So many elements are encoded at a time, to stay in the first-level cache; whole blocks.
const ROW: usize = 4 * BLOCK;

impl Feedback {
    /// What is owed to each element; empty when nothing is.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// What to hand in for `elements`, as many as there were before, in the memory of `spare`,
    /// whose contents do not matter.
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

    /// What is owed once this contribution counts that `codec` has encoded, in the memory of
    /// `spare`. Nothing is owed for an element whose debt would be infinite or no number: it shows
    /// in the result, and must not show in the next ones.
    pub fn after(codec: &dyn Codec, contribution: &[f32], spare: Feedback) -> Feedback {
        let mut residual = spare.residual;
        residual.resize(contribution.len(), 0.0);
        let mut bytes = vec![0; codec.encoded_len(ROW)];
        // Everything about a row while it is in the first-level cache.
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

/// `y = x - y`, or 0 where that is no number or infinite.
fn subtract_from(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        let rest = x - *y;
        *y = if rest.is_finite() { rest } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::{Bf16, F16, Int4, Int8};
    use proptest::prelude::*;

    const CODECS: [&dyn Codec; 4] = [&Bf16, &F16, &Int8, &Int4];

    fn coded(codec: &dyn Codec, elements: &[f32]) -> Vec<f32> {
        let (mut bytes, mut out) =
            (vec![0; codec.encoded_len(elements.len())], vec![0.0; elements.len()]);
        codec.encode(elements, &mut bytes);
        codec.decode(&bytes, &mut out).expect("what it has written");
        out
    }

    /// What is handed in, and what is owed next; in memory that something else was in.
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
        /// Whole numbers, whose sums and differences are exact; bf16 and half precision keep the
        /// small ones of them.
        #[test]
        fn what_was_sent_and_what_is_owed_is_what_was_fed_in(
            rounds in prop::collection::vec(prop::collection::vec(-2000i32..2000, 1500), 1..6),
        ) {
            for codec in CODECS {
                let (mut feedback, mut fed, mut sent) = (Feedback::default(), vec![0f64; 1500], vec![0f64; 1500]);
                for round in &rounds {
                    let elements: Vec<f32> = round.iter().map(|x| *x as f32).collect();
                    let due = due(&feedback, codec, &elements);
                    let arrives = coded(codec, &due.contribution);
                    for i in 0..1500 {
                        fed[i] += f64::from(elements[i]);
                        sent[i] += f64::from(arrives[i]);
                        let owed = f64::from(due.next.residual()[i]);
                        let rounded_away = 0.01;
                        prop_assert!((sent[i] + owed - fed[i]).abs() <= rounded_away, "{}: {} sent, {owed} owed of {}", i, sent[i], fed[i]);
                    }
                    feedback = due.next;
                }
            }
        }

        #[test]
        fn rows_are_no_other_than_the_whole(elements in prop::collection::vec(-1e3f32..1e3, 0..3000)) {
            for codec in CODECS {
                let due = due(&Feedback::default(), codec, &elements);
                let whole: Vec<f32> = elements.iter().zip(coded(codec, &elements)).map(|(x, y)| x - y).collect();
                prop_assert_eq!(due.next.residual(), &whole);
                prop_assert_eq!(&due.contribution, &elements);
            }
        }
    }

    #[test]
    fn a_debt_that_is_no_number_is_let_go() {
        for bad in [f32::NAN, f32::INFINITY, f32::MAX] {
            for codec in CODECS {
                let due = due(&Feedback::default(), codec, &[bad, 1.0, 0.3]);
                assert!(
                    due.next.residual().iter().all(|owed| owed.is_finite()),
                    "{bad}: {:?}",
                    due.next
                );
            }
        }
    }

    #[test]
    fn a_small_number_beside_a_large_one_is_sent_in_the_end() {
        // A fifth of int4's step: alone it would be rounded away for ever.
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
