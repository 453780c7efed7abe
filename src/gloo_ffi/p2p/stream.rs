//! The messages of one flow in one direction: which go at once, which wait for a credit, and which
//! posted receive each one matches.
//!
//! The sender counts the lengths of the messages sent, the receiver those of the receives posted.
//! So both know without negotiation which messages are *eager*: the first ones, up to a bound on
//! their number and total size. These may arrive before their receives are posted. Every other
//! message waits for a credit, which the receiver gives when it posts the receive.
//!
//! Example: messages of 10 bytes, 256 KiB and 1 byte. The first is sent at once. The second exceeds
//! the bound and waits for a credit. The third waits for the next credit although it is small:
//! after a message that is not eager, none is.

use crate::memory::Block;
use crate::protocol::OpId;
use std::collections::VecDeque;

/// Bytes of every frame of a message except the last, which may be shorter.
pub const PIECE: usize = 256 * 1024;
/// Most bytes of a flow that are sent before their receives are posted.
pub const EAGER_OP_BYTES: usize = 32 * 1024;
/// Most eager messages of a flow; this also bounds empty ones.
pub const EAGER_MESSAGES_MAX: u64 = 64;
/// Most eager bytes of a flow of one call of a step, of which an operation may have many.
pub const EAGER_PART_BYTES: usize = EAGER_OP_BYTES / 8;
/// Most eager messages of such a flow.
pub const EAGER_PART_MESSAGES_MAX: u64 = EAGER_MESSAGES_MAX / 8;

/// Identifies a region of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// The location of a message in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The region.
    pub region: RegionId,
    /// The offset in the region.
    pub offset: usize,
    /// The length in bytes.
    pub len: usize,
}

/// Whether a message waits for a credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It is sent at once.
    Eager,
    /// It is sent when its receiver has posted the receive.
    Credited,
}

/// The eager messages and bytes that a flow has left.
#[derive(Clone, Copy, Debug)]
pub struct EagerAllowance {
    messages: u64,
    bytes: u64,
}

/// The sending end of a flow.
#[derive(Debug)]
pub struct Outward {
    sent: EagerAllowance,
    credits: u64,
    held: VecDeque<Span>,
}

/// The decision on a message to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Send it now.
    Now(Pace),
    /// It waits for a credit.
    Held,
}

/// The receiving end of a flow.
#[derive(Debug)]
pub struct Inward {
    posted: EagerAllowance,
    arrived: EagerAllowance,
    posts: VecDeque<Post>,
    /// Eager messages without a posted receive. Empty while there are posts.
    stash: VecDeque<Block>,
    current: Option<Current>,
}

/// A posted receive. Without a region its memory is gone, and the message is accepted and dropped.
#[derive(Clone, Copy, Debug)]
struct Post {
    region: Option<RegionId>,
    offset: usize,
    len: usize,
}

/// A message of which some frames have arrived.
#[derive(Clone, Copy, Debug)]
struct Current {
    post: Post,
    received: usize,
}

/// The result of posting a receive.
#[derive(Debug)]
pub enum Posting {
    /// The message has already arrived.
    Here(Block),
    /// The message will arrive.
    Awaited(Pace),
}

/// The payload of a frame.
#[derive(Debug)]
pub enum Payload {
    /// The bytes have been read.
    Here(Block),
    /// This many bytes are still to be read. They are more than an eager message may have, so there
    /// is either a posted receive for them or no use.
    Coming(usize),
}

/// The decision on a frame.
#[derive(Debug)]
pub enum Arrival {
    /// It belongs into a region.
    Into(Piece, Payload),
    /// Its region is gone.
    Dropped,
    /// It is kept until its receive is posted.
    Kept,
}

/// A piece of a message, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The region.
    pub region: RegionId,
    /// The offset of the message in the region.
    pub message: usize,
    /// The bytes of the message that arrived before.
    pub before: usize,
    /// Whether it completes the message.
    pub last: bool,
}

impl Piece {
    /// The offset of the piece in its region. An empty message may have any offset.
    pub fn at(&self) -> usize {
        self.message.saturating_add(self.before)
    }
}

/// Why a frame does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The message and its posted receive differ in length. If more frames follow, `sent` is the
    /// least possible length.
    Length {
        /// Length of the posted receive.
        posted: usize,
        /// Length of the message.
        sent: usize,
    },
    /// An honest peer does not send this.
    Violation,
}

impl Payload {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Payload::Here(block) => block.len(),
            Payload::Coming(len) => *len,
        }
    }
}

impl EagerAllowance {
    /// The bounds for a flow of this operation.
    pub fn of(op: OpId) -> EagerAllowance {
        match op.step() {
            None => EagerAllowance { messages: EAGER_MESSAGES_MAX, bytes: EAGER_OP_BYTES as u64 },
            Some(_) => {
                EagerAllowance { messages: EAGER_PART_MESSAGES_MAX, bytes: EAGER_PART_BYTES as u64 }
            }
        }
    }

    /// Counts one more message and returns how it travels. After the first message that is not
    /// eager, none is.
    pub fn add(&mut self, len: usize) -> Pace {
        match (self.messages.checked_sub(1), self.bytes.checked_sub(len as u64)) {
            (Some(messages), Some(bytes)) => {
                *self = EagerAllowance { messages, bytes };
                Pace::Eager
            }
            _ => {
                *self = EagerAllowance { messages: 0, bytes: 0 };
                Pace::Credited
            }
        }
    }
}

/// The number of frames of a message; an empty one takes one frame.
pub fn frames(len: usize) -> usize {
    len.div_ceil(PIECE).max(1)
}

impl Outward {
    /// The sending end for a flow of this operation.
    pub fn of(op: OpId) -> Outward {
        Outward { sent: EagerAllowance::of(op), credits: 0, held: VecDeque::new() }
    }

    /// Decides on one more message to send.
    pub fn send(&mut self, span: Span) -> Departure {
        if self.sent.add(span.len) == Pace::Eager {
            return Departure::Now(Pace::Eager);
        }
        // Unused credits exist only while no message is held.
        if self.credits > 0 {
            self.credits -= 1;
            return Departure::Now(Pace::Credited);
        }
        self.held.push_back(span);
        Departure::Held
    }

    /// The receiver has posted one more receive. Returns the message that may now be sent.
    pub fn credit(&mut self) -> Option<Span> {
        let next = self.held.pop_front();
        if next.is_none() {
            self.credits = self.credits.saturating_add(1);
        }
        next
    }

    /// Removes the held messages of `region`; returns how many there were.
    pub fn forget(&mut self, region: RegionId) -> usize {
        let before = self.held.len();
        self.held.retain(|span| span.region != region);
        before - self.held.len()
    }
}

impl Inward {
    /// The receiving end for a flow of this operation.
    pub fn of(op: OpId) -> Inward {
        let allowance = EagerAllowance::of(op);
        Inward {
            posted: allowance,
            arrived: allowance,
            posts: VecDeque::new(),
            stash: VecDeque::new(),
            current: None,
        }
    }

    /// Posts one more receive.
    ///
    /// # Errors
    /// [`Misfit::Length`] if the message has already arrived with another length.
    pub fn post(&mut self, span: Span) -> Result<Posting, Misfit> {
        let pace = self.posted.add(span.len);
        if let Some(block) = self.stash.pop_front() {
            let fits = block.len() == span.len;
            return if fits {
                Ok(Posting::Here(block))
            } else {
                Err(misfit(span.len, block.len()))
            };
        }
        self.posts.push_back(Post {
            region: Some(span.region),
            offset: span.offset,
            len: span.len,
        });
        Ok(Posting::Awaited(pace))
    }

    /// Lengths of the messages without a posted receive.
    pub fn stashed(&self) -> impl Iterator<Item = usize> {
        self.stash.iter().map(Block::len)
    }

    /// A frame has arrived; `left` more frames of this message follow.
    ///
    /// # Errors
    /// [`Misfit`]; the flow cannot continue after it.
    pub fn arrive(&mut self, left: usize, payload: Payload) -> Result<Arrival, Misfit> {
        if let Some(current) = self.current.take() {
            return self.go_on(current, left, payload);
        }
        let len = payload.len();
        if len > PIECE || (left > 0 && len < PIECE) {
            return Err(Misfit::Violation);
        }
        // The exact length of a message of several frames is not known yet, but it exceeds the
        // eager bound.
        let pace = self.arrived.add(left.saturating_mul(PIECE).saturating_add(len));
        match (self.posts.pop_front(), payload) {
            (Some(post), payload) => self.go_on(Current { post, received: 0 }, left, payload),
            (None, Payload::Here(block)) if pace == Pace::Eager => {
                self.stash.push_back(block);
                Ok(Arrival::Kept)
            }
            (None, _) => Err(Misfit::Violation),
        }
    }

    fn go_on(
        &mut self,
        current: Current,
        left: usize,
        payload: Payload,
    ) -> Result<Arrival, Misfit> {
        let Current { post, received } = current;
        let (rest, len) = (post.len - received, payload.len());
        if left != frames(rest) - 1 || len != rest.min(PIECE) {
            // The last frame will have at least one byte.
            let sent = received
                .saturating_add(len)
                .saturating_add(left.saturating_sub(1).saturating_mul(PIECE));
            return Err(misfit(post.len, sent.saturating_add(usize::from(left > 0))));
        }
        if left > 0 {
            self.current = Some(Current { post, received: received + len });
        }
        let Some(region) = post.region else { return Ok(Arrival::Dropped) };
        Ok(Arrival::Into(
            Piece { region, message: post.offset, before: received, last: left == 0 },
            payload,
        ))
    }

    /// The memory of `region` is gone: messages for it are accepted and dropped. Returns the number
    /// of their posted receives.
    pub fn forget(&mut self, region: RegionId) -> usize {
        let current = self.current.as_mut().map(|current| &mut current.post);
        let of_region =
            self.posts.iter_mut().chain(current).filter(|post| post.region == Some(region));
        of_region.map(|post| post.region = None).count()
    }
}

fn misfit(posted: usize, sent: usize) -> Misfit {
    // The total may be right with the frames cut wrongly.
    if posted == sent { Misfit::Violation } else { Misfit::Length { posted, sent } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pool;
    use crate::protocol::Lane;

    const OURS: RegionId = RegionId(1);

    fn span(len: usize) -> Span {
        Span { region: OURS, offset: 0, len }
    }

    fn block(len: usize) -> Payload {
        Payload::Here(Pool::new().block(len).expect("there is memory"))
    }

    #[test]
    fn the_first_few_bytes_and_messages_are_eager_and_no_later_ones() {
        let whole = OpId { lane: Lane::of_view(7), number: 1 };
        let mut allowance = EagerAllowance::of(whole);
        assert_eq!(
            [EAGER_OP_BYTES - 1, 1, 0, 1, 0].map(|len| allowance.add(len)),
            [Pace::Eager, Pace::Eager, Pace::Eager, Pace::Credited, Pace::Credited]
        );
        let mut allowance = EagerAllowance::of(whole);
        assert_eq!(
            (0..1000).filter(|_| allowance.add(0) == Pace::Eager).count() as u64,
            EAGER_MESSAGES_MAX
        );
        assert_eq!(EagerAllowance::of(whole).add(usize::MAX), Pace::Credited);
        let mut allowance = EagerAllowance::of(whole.part(0));
        assert_eq!(
            [EAGER_PART_BYTES, 0, 1, 0].map(|len| allowance.add(len)),
            [Pace::Eager, Pace::Eager, Pace::Credited, Pace::Credited]
        );
    }

    #[test]
    fn messages_wait_for_credits_and_credits_for_messages() {
        let mut out = Outward::of(OpId { lane: Lane::of_view(7), number: 1 });
        assert_eq!(out.send(span(10)), Departure::Now(Pace::Eager));
        assert_eq!(out.send(span(PIECE)), Departure::Held);
        assert_eq!(out.send(span(1)), Departure::Held);
        assert_eq!(out.credit(), Some(span(PIECE)));
        assert_eq!(out.credit(), Some(span(1)));
        assert_eq!(out.credit(), None);
        assert_eq!(out.send(span(2)), Departure::Now(Pace::Credited));
        assert_eq!(out.send(span(3)), Departure::Held);
        assert_eq!((out.forget(RegionId(2)), out.forget(OURS), out.credit()), (0, 1, None));
    }

    #[test]
    fn frames_say_what_remains() {
        assert_eq!(
            [0, 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1].map(frames),
            [1, 1, 1, 2, 2, 3]
        );
        let mut flow = Inward::of(OpId { lane: Lane::of_view(7), number: 1 });
        assert!(matches!(
            flow.post(Span { region: OURS, offset: 7, len: PIECE + 5 }),
            Ok(Posting::Awaited(Pace::Credited))
        ));
        let Ok(Arrival::Into(first, _)) = flow.arrive(1, block(PIECE)) else { panic!("it fits") };
        assert_eq!(first, Piece { region: OURS, message: 7, before: 0, last: false });
        let Ok(Arrival::Into(last, _)) = flow.arrive(0, block(5)) else { panic!("it fits") };
        assert_eq!(last, Piece { region: OURS, message: 7, before: PIECE, last: true });
        assert_eq!((first.at(), last.at()), (7, 7 + PIECE));
    }

    #[test]
    fn a_message_of_another_length_tells_both() {
        for (posted, left, len, sent) in [
            (10, 0, 11, 11),
            (0, 0, 1, 1),
            (1, 0, 0, 0),
            (PIECE, 1, PIECE, PIECE + 1),
            (2 * PIECE, 0, PIECE, PIECE),
            (2 * PIECE, 2, PIECE, 2 * PIECE + 1),
            (3 * PIECE, 1, PIECE, PIECE + 1),
        ] {
            let mut flow = Inward::of(OpId { lane: Lane::of_view(7), number: 1 });
            flow.post(span(posted)).expect("nothing is here");
            let misfit = flow.arrive(left, block(len)).expect_err("another length");
            assert_eq!(misfit, Misfit::Length { posted, sent });
        }
        let mut flow = Inward::of(OpId { lane: Lane::of_view(7), number: 1 });
        flow.arrive(0, block(3)).expect("eager");
        assert_eq!(
            flow.post(span(4)).expect_err("another length"),
            Misfit::Length { posted: 4, sent: 3 }
        );
    }

    #[test]
    fn nothing_overflows() {
        let mut flow = Inward::of(OpId { lane: Lane::of_view(7), number: 1 });
        assert_eq!(
            flow.arrive(usize::MAX, block(PIECE)).expect_err("not asked for"),
            Misfit::Violation
        );
        flow.post(span(usize::MAX)).expect("nothing is here");
        assert_eq!(
            flow.arrive(usize::MAX, block(PIECE)).expect_err("not so long"),
            Misfit::Violation
        );
    }
}
