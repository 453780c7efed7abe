//! Layer: Face.
//!
//! Encodings of bulk data that a caller can choose.

use super::account::Account;
use crate::collective::{Coarsest, CodecId, bytes_of, bytes_of_mut};
use crate::compression::codec;
use std::fmt;

/// How bulk data is encoded on the wire. Contributions are decoded before they are added, in f32;
/// every rank gets the same bits, the result being encoded by whoever has added it.
///
/// Every contribution is encoded once, and every sum: where the plan is a ring, each member adds
/// its share of the buffer from the contributions of all others, instead of a part of the sum being
/// encoded anew at every hop. Only where some members do not reach each other parts of the sum are
/// encoded on their way.
///
/// What counts of a member's contribution is what its whole buffer decodes to after it was encoded,
/// on every engine and under every plan; of its own part too, which never travels. Blocks of 256
/// elements are counted from the beginning of the buffer. Only where the codec is [left to the
/// plan](Codec::auto_up_to) there may be members that go without it.
///
/// # Error feedback
///
/// What is rounded away is lost, unless the codec is [`with_feedback`](Codec::with_feedback): then
/// it is owed, and added to this member's contribution to the next call with the same codec.
///
/// - A codec with feedback belongs to one buffer: calls of one length, one after the other, each a
///   sum or a mean. Anything else is [`Error::Rejected`](crate::Error::Rejected). Of several
///   buffers each needs its own; a clone is another codec that owes the same.
/// - What is owed changes only when a call counts. After an error it is as it was, so the same call
///   may be made again, in the next View too.
/// - Where nobody knows whether a call has counted, after
///   [`Error::Indeterminate`](crate::Error::Indeterminate) or when its future was dropped after
///   this member's vote, what was owed is forgotten: it is never handed in twice.
/// - It is this member's own: it is not sent by a [`sync`](crate::Context::sync), and a member that
///   is lost takes it along.
/// - What is rounded away when the sum is encoded is not owed by anybody.
///
/// It takes memory for three times the buffer's elements, which is kept from call to call.
#[derive(Clone)]
pub struct Codec {
    id: CodecId,
    account: Option<Account>,
}

impl Codec {
    /// bfloat16: half the bytes, about three decimal digits, the whole range.
    pub fn bf16() -> Codec {
        Codec { id: CodecId::Bf16, account: None }
    }

    /// Half precision: half the bytes, more than three decimal digits, magnitudes from 6e-8 to
    /// 65504; larger ones become infinite.
    pub fn f16() -> Codec {
        Codec { id: CodecId::F16, account: None }
    }

    /// Eight bits an element, and a step for every 256 of them: 0.254 of the bytes. An element is
    /// off by half a step at most, which is 1/254 of the largest magnitude among its 256. An
    /// infinity or a NaN makes all 256 NaN; magnitudes below 2^-100 become zero.
    pub fn int8() -> Codec {
        Codec { id: CodecId::Int8, account: None }
    }

    /// Four bits an element, and a step for every 256 of them: 0.129 of the bytes. An element is
    /// off by 1/14 of the largest magnitude among its 256 at most; otherwise as
    /// [`int8`](Codec::int8).
    pub fn int4() -> Codec {
        Codec { id: CodecId::Int4, account: None }
    }

    /// Whatever pays: nothing, bf16 or int8, see [`auto_up_to`](Codec::auto_up_to).
    pub fn auto() -> Codec {
        Codec::auto_up_to(Coarsest::Int8)
    }

    /// What the View's plan finds worth it for a buffer of this size, of all codecs up to the
    /// coarsest one that is allowed; `coarsest` must be the same on every rank. Nothing is encoded
    /// where it is not known what the links carry, as in the first moments of a View and always on
    /// one machine.
    ///
    /// Whoever makes the plan chooses, for all members, by what the links were measured to carry
    /// and by how fast each member was measured to encode. A coarser codec is taken where it is
    /// foretold to save a third of the time of the finer one, so at a gigabit and below int8 or
    /// int4, and above 10 to 25 Gbit/s nothing. [`Plan::explain`](crate::Plan::explain) says what
    /// was chosen and by which times, [`Plan::codec`](crate::Plan::codec) gives it. It may change
    /// with the plan, while the View stays.
    ///
    /// Where the plan has trees with fast and slow ways, as with cables beside a radio, members
    /// whose ways to those who add are all fast go without the codec, as far as that takes no more
    /// time: what they contribute counts as it is, and with error feedback they owe nothing.
    /// [`Plan::codec_of`](crate::Plan::codec_of) tells who. The result is encoded for all.
    pub fn auto_up_to(coarsest: Coarsest) -> Codec {
        Codec { id: CodecId::Auto(coarsest), account: None }
    }

    /// Of every 256 elements those of the largest magnitude, `share` of them, at least one and at
    /// most half; the others count as 0. They travel as they are, in 5 bytes each, so one of a
    /// hundred takes 0.015 of the bytes; sums travel with room for what all members have sent,
    /// which is that times their number, and lose nothing. For sums and means only.
    ///
    /// [With error feedback](Codec::with_feedback), without which most of a gradient would never be
    /// sent; so it is for one buffer. A share that is no number counts as 0.
    pub fn top_k(share: f64) -> Codec {
        // A cast takes the nearest where it does not fit.
        let kept = ((share * 256.0).ceil() as u8).clamp(1, CodecId::KEPT_MAX);
        Codec { id: CodecId::TopK { kept }, account: Some(Account::default()) }
    }

    /// The same without error feedback; what is owed is forgotten.
    pub fn without_feedback(self) -> Codec {
        Codec { account: None, ..self }
    }

    /// The same, with error feedback and nothing owed.
    pub fn with_feedback(self) -> Codec {
        Codec { id: self.id, account: Some(Account::default()) }
    }

    /// What is owed to each element of the buffer; empty when nothing is, as before the first call.
    /// While a call is under way: what was owed before it.
    pub fn owed(&self) -> Vec<f32> {
        self.account.as_ref().map(Account::residual).unwrap_or_default()
    }

    /// Forgets what is owed, as when the buffer is to be another one.
    pub fn forget(&mut self) {
        self.account.iter().for_each(Account::forget);
    }

    /// Writes to `out` what elements are on the wire that one member contributes, in place of what
    /// was there. What is owed, or what a plan would choose, is not looked at. To see what a codec
    /// makes of numbers; calls do it by themselves.
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

    /// Reads as many elements as `out` has of what [`encode`](Codec::encode) has written.
    ///
    /// # Errors
    /// [`Undecodable`] when `bytes` are of another length than that, or what no encoder writes;
    /// `out` is anything then.
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

    /// Its name on the wire.
    pub fn id(&self) -> CodecId {
        self.id
    }

    /// Another one like it.
    pub(crate) fn owing_nothing(&self) -> Codec {
        Codec { id: self.id, account: self.account.as_ref().map(|_| Account::default()) }
    }

    pub(crate) fn account(&self) -> Option<&Account> {
        self.account.as_ref()
    }
}

/// Bytes that are no elements of a codec.
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
            if self.account.is_some() { " with feedback" } else { "" }
        )
    }
}
