//! The codecs of bulk data that a caller can choose.

use super::error_feedback::ErrorFeedback;
use crate::compression::codec;
use crate::memory::{bytes_of, bytes_of_mut};
use crate::protocol::{Coarsest, CodecId};
use std::fmt;

/// The encoding of bulk data on the wire. Contributions are decoded before they are added, in f32.
/// The member that adds up a part of the buffer encodes the result, so every rank gets the same
/// bits.
///
/// Where each rank sends its contribution to the rank that adds it, each contribution is encoded
/// once, and each sum at most once: in an exchange, in a star, and in a ring whose members all
/// reach each other, where each member receives the contributions of all others for its segment.
/// In a tree with inner ranks, and in a ring whose members do not all reach each other, partial
/// sums are encoded anew at every hop.
///
/// The value that counts of a contribution is its whole buffer, encoded and decoded, on every
/// engine and under every plan; also for the part that never leaves the member. Blocks of 256
/// elements are counted from the start of the buffer. Only if the codec is [left to the
/// plan](Codec::auto_up_to) may some members contribute without encoding.
///
/// # Error feedback
///
/// The rounding error is lost, unless the codec is [`with_feedback`](Codec::with_feedback). Then it
/// is kept as the *residual* and added to this member's contribution to the next call with the same
/// codec.
///
/// - A codec with feedback belongs to one buffer: its calls have one length, run one after the
///   other, and are sums or means. Other calls are [`Error::Rejected`](crate::Error::Rejected).
///   Each of several buffers needs its own codec; a clone is a separate codec with a copy of the
///   residual.
/// - The residual changes only when a call commits. After an error it is unchanged, so the same
///   call may be repeated, also in the next View.
/// - If it is unknown whether the contribution counts, the residual is dropped: it never counts
///   twice. That is so after [`Error::Indeterminate`](crate::Error::Indeterminate), after an abort
///   of a best-effort call, and if the future was dropped after this member's vote or while the
///   View was being replaced.
/// - The residual is local: a [`sync`](super::super::context::Context::sync) does not transfer it,
///   and it is lost with its member.
/// - The rounding error of encoding the sum is not part of any residual.
///
/// Feedback needs memory for three times the buffer's elements, which is kept between calls.
#[derive(Clone)]
pub struct Codec {
    id: CodecId,
    feedback: Option<ErrorFeedback>,
}

impl Codec {
    /// bfloat16: half the bytes, about three decimal digits, the full exponent range.
    pub fn bf16() -> Codec {
        Codec { id: CodecId::Bf16, feedback: None }
    }

    /// Half precision: half the bytes, more than three decimal digits, magnitudes from 6e-8 to
    /// 65504; larger ones become infinite.
    pub fn f16() -> Codec {
        Codec { id: CodecId::F16, feedback: None }
    }

    /// Eight bits per element and one step size per 256 elements: 0.254 of the bytes. The error of
    /// an element is at most half a step, 1/254 of the largest magnitude among its 256. An infinity
    /// or a NaN makes all 256 NaN; magnitudes below 2^-100 become zero.
    pub fn int8() -> Codec {
        Codec { id: CodecId::Int8, feedback: None }
    }

    /// Four bits per element and one step size per 256 elements: 0.129 of the bytes. Each 256
    /// elements are rotated before (random signs, then a Walsh-Hadamard transform), and rotated
    /// back after decoding. So the error is spread over the 256 like noise: its mean square is
    /// about 0.016 of the elements' mean square, also with heavy tails as those of gradients, and
    /// at most 0.57 of it. The error of one element is about an eighth of the root mean square of
    /// its 256; zeros among other elements are not kept.
    ///
    /// An infinity or a NaN makes all 256 NaN; magnitudes above 2^124 may become infinite. If all
    /// of the 256 have magnitudes below 2^-100 they become zero; above 2^-92 they do not.
    pub fn int4() -> Codec {
        Codec { id: CodecId::Int4, feedback: None }
    }

    /// One bit per element and one magnitude per 256 elements: 0.035 of the bytes of a
    /// contribution. Each 256 elements are rotated as for [`int4`](Codec::int4); the bits are the
    /// signs of the rotated numbers, and the magnitude is the mean of theirs. Sums are sent as
    /// `int4`, 0.129 of their bytes, because no residual contains their error. For sums and means
    /// only; [`auto_up_to`](Codec::auto_up_to) does not choose it.
    ///
    /// Created [with error feedback](Codec::with_feedback), because a third of a contribution's
    /// squares is lost without it; so it belongs to one buffer. The mean square of a contribution's
    /// error is about 0.36 of the elements' mean square, whatever their distribution, and less than
    /// 1 in any case. An infinity or a NaN makes all 256 NaN; elements of magnitude above 2^124 may
    /// come back infinite, and 256 that are all below 2^-92 may become zero.
    pub fn one_bit() -> Codec {
        Codec { id: CodecId::OneBit, feedback: Some(ErrorFeedback::default()) }
    }

    /// The codec that saves time: none, bf16 or int8, see [`auto_up_to`](Codec::auto_up_to).
    pub fn auto() -> Codec {
        Codec::auto_up_to(Coarsest::Int8)
    }

    /// The codec that the View's plan chooses for a buffer of this size, up to the coarsest one
    /// allowed; `coarsest` must be the same on every rank. Nothing is encoded while the links are
    /// not measured, as in the first moments of a View and always on one machine.
    ///
    /// The planner chooses for all members, from the measured rates of the links and from each
    /// member's measured encoding speed. It takes a coarser codec if that is predicted to save at
    /// least a third of the finer one's time: at one gigabit and below int8 or int4, above 10 to 25
    /// Gbit/s none. [`ViewPlan::explain`](crate::plan::ViewPlan::explain) describes the choice with
    /// the predicted times, [`ViewPlan::codec`](crate::plan::ViewPlan::codec) returns it. It may
    /// change with the plan, while the View stays.
    ///
    /// In a plan of trees with fast and slow links, for example cables and radio, members whose
    /// links to all their parents are fast contribute without encoding, if that does not lengthen
    /// the call: their contributions are exact, and with error feedback their residual is empty.
    /// [`ViewPlan::codec_of`](crate::plan::ViewPlan::codec_of) returns the codec of a member. The
    /// result is encoded for all.
    pub fn auto_up_to(coarsest: Coarsest) -> Codec {
        Codec { id: CodecId::Auto(coarsest), feedback: None }
    }

    /// Top-k sparsification: of every 256 elements the ones of largest magnitude, a fraction
    /// `share` of them, at least one and at most half; the others count as 0. Each selected element
    /// takes 5 bytes and is exact, so a share of 0.01 takes 0.015 of the bytes. Sums are sent
    /// without loss, with room for the selections of all members: that many bytes times the number
    /// of members. For sums and means only.
    ///
    /// Created [with error feedback](Codec::with_feedback), because most of a gradient would never
    /// be sent without it; so it belongs to one buffer. A NaN counts as a share of 0.
    pub fn top_k(share: f64) -> Codec {
        // `as` saturates, and turns NaN into 0.
        let kept = ((share * 256.0).ceil() as u8).clamp(1, CodecId::KEPT_MAX);
        Codec { id: CodecId::TopK { kept }, feedback: Some(ErrorFeedback::default()) }
    }

    /// The same codec without error feedback; the residual is dropped.
    pub fn without_feedback(self) -> Codec {
        Codec { feedback: None, ..self }
    }

    /// The same codec with error feedback and an empty residual.
    pub fn with_feedback(self) -> Codec {
        Codec { id: self.id, feedback: Some(ErrorFeedback::default()) }
    }

    /// The residual of each element of the buffer; empty if there is none, as before the first
    /// call. During a call: the residual before it.
    pub fn residual(&self) -> Vec<f32> {
        self.feedback.as_ref().map(ErrorFeedback::residual).unwrap_or_default()
    }

    /// Drops the residual, for example before the codec is used for another buffer.
    pub fn forget(&mut self) {
        self.feedback.iter().for_each(ErrorFeedback::forget);
    }

    /// Encodes `elements` as one member's contribution and replaces the contents of `out`. Ignores
    /// the residual; an `auto` codec encodes nothing here. For inspection: calls encode by
    /// themselves.
    pub fn encode(&self, elements: &[f32], out: &mut Vec<u8>) {
        match codec(self.id) {
            Some(codec) => {
                out.resize(codec.encoded_len(elements.len()), 0);
                codec.encode(elements, out);
            }
            None => {
                out.clear();
                out.extend_from_slice(bytes_of(elements));
            }
        }
    }

    /// Decodes `out.len()` elements from the output of [`encode`](Codec::encode).
    ///
    /// # Errors
    /// [`Undecodable`] if `bytes` have another length, or contents that no encoder writes; the
    /// contents of `out` are then unspecified.
    pub fn decode(&self, bytes: &[u8], out: &mut [f32]) -> Result<(), Undecodable> {
        match codec(self.id) {
            Some(codec) => codec.decode(bytes, out).map_err(|_| Undecodable),
            None if bytes.len() == size_of_val(out) => {
                bytes_of_mut(out).copy_from_slice(bytes);
                Ok(())
            }
            None => Err(Undecodable),
        }
    }

    /// Its identifier on the wire.
    pub fn id(&self) -> CodecId {
        self.id
    }

    /// A codec of the same kind, with an empty residual if this one has feedback.
    pub(crate) fn with_empty_residual(&self) -> Codec {
        Codec { id: self.id, feedback: self.feedback.as_ref().map(|_| ErrorFeedback::default()) }
    }

    pub(crate) fn feedback(&self) -> Option<&ErrorFeedback> {
        self.feedback.as_ref()
    }
}

/// Bytes that this codec cannot decode to the requested number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable;

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these bytes are not as many elements of this codec")
    }
}

impl std::error::Error for Undecodable {}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Codec({}{})",
            self.id,
            if self.feedback.is_some() { " with feedback" } else { "" }
        )
    }
}
