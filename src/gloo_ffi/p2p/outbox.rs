//! The send queue of one peer, and the link in use.
//!
//! Credits and eager messages go first, even between the frames of a large message. This keeps the
//! order within a flow, because its eager messages are its first ones. Messages that have waited
//! for credit follow: operations take turns, one frame each, so that a short message does not wait
//! for a long one. Within an operation these messages go one after another. The queues have no
//! bound of their own: an entry is a few words, was made by a call of this rank's own program, and
//! is removed when its operation ends.

use super::matching::PeerFlow;
use super::stream::{PIECE, Pace, Span, frames};
use crate::collective::{CurrentLink, Generation};
use crate::link::{DataHeader, DataSender, Phase, Shutdown};
use crate::protocol::OpId;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar};

/// The send queue of one peer.
#[derive(Default)]
pub struct Outbox {
    /// The link in use.
    pub link: CurrentLink,
    /// The sending half of the link in use, while no thread is writing.
    half: Option<Box<dyn DataSender>>,
    urgent: VecDeque<Item>,
    /// Credited messages, one queue per operation, the next in turn first; no queue is empty.
    bulk: VecDeque<VecDeque<Item>>,
    /// Wakes the sender thread.
    pub changed: Arc<Condvar>,
}

/// A link that is no longer in use: the handle to shut it down, and its sending half.
pub type Unused = (Arc<dyn Shutdown>, Option<Box<dyn DataSender>>);

/// An entry of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    peer_flow: PeerFlow,
    /// A message and the number of its bytes already taken; `None` for a credit.
    message: Option<(Span, usize)>,
}

/// A frame about to be written, with the sending half of its link.
pub struct Departing {
    /// The generation of the link.
    pub generation: Generation,
    /// The sending half of the link.
    pub half: Box<dyn DataSender>,
    /// The header.
    pub header: DataHeader,
    /// The location of the payload; `None` for a credit.
    pub bytes: Option<Span>,
    /// Whether this is the last frame of its message.
    pub last: bool,
}

/// Whether the calling thread may write the entry that it has queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The entry is next and no thread is writing: take it with [`Outbox::next`].
    Mine,
    /// The sender thread will write it.
    Later,
}

impl Item {
    /// A credit for one message.
    pub fn credit(from: PeerFlow) -> Item {
        Item { peer_flow: from, message: None }
    }

    /// A message to send.
    pub fn message(to: PeerFlow, span: Span) -> Item {
        Item { peer_flow: to, message: Some((span, 0)) }
    }

    fn is_small(&self) -> bool {
        self.message.is_none_or(|(span, _)| span.len <= super::stream::EAGER_OP_BYTES)
    }
}

impl Outbox {
    /// Queues a credit or a message. The calling thread writes it only if it is small.
    pub fn push(&mut self, item: Item, pace: Pace) -> Turn {
        let free = self.urgent.is_empty() && (pace == Pace::Eager || self.bulk.is_empty());
        match pace {
            Pace::Eager if item.message.is_none() => self.urgent.push_front(item),
            Pace::Eager => self.urgent.push_back(item),
            Pace::Credited => match self
                .bulk
                .iter_mut()
                .find(|queue| queue.iter().any(|other| other.peer_flow.op == item.peer_flow.op))
            {
                Some(queue) => queue.push_back(item),
                None => self.bulk.push_back(VecDeque::from([item])),
            },
        }
        if free && self.half.is_some() && item.is_small() { Turn::Mine } else { Turn::Later }
    }

    /// Takes the next frame and the sending half of the link, if both are available.
    pub fn next(&mut self) -> Option<Departing> {
        let generation = self.link.generation()?;
        let is_bulk = self.urgent.is_empty();
        let queue = if is_bulk { self.bulk.front_mut()? } else { &mut self.urgent };
        let item = queue.front_mut()?;
        let half = self.half.take()?;
        let (header, bytes, last) = item.frame();
        if last {
            queue.pop_front();
        }
        if is_bulk && let Some(queue) = self.bulk.pop_front().filter(|queue| !queue.is_empty()) {
            self.bulk.push_back(queue);
        }
        Some(Departing { generation, half, header, bytes, last })
    }

    /// Brings the sending half of a link, a new one or after a write. Hands it back to the caller
    /// if that link is over.
    pub fn give_back(
        &mut self,
        generation: Generation,
        half: Box<dyn DataSender>,
    ) -> Option<Box<dyn DataSender>> {
        if self.link.generation() != Some(generation) {
            return Some(half);
        }
        self.half = Some(half);
        None
    }

    /// Whether there is work for the sender thread.
    pub fn is_ready(&self) -> bool {
        self.half.is_some() && !(self.urgent.is_empty() && self.bulk.is_empty())
    }

    /// Removes the messages and credits of an operation.
    pub fn purge(&mut self, op: OpId) {
        self.urgent.retain(|item| item.peer_flow.op != op);
        self.bulk.retain(|queue| queue.iter().all(|item| item.peer_flow.op != op));
    }

    /// Whether a queued message satisfies `concerned`.
    pub fn has(&self, concerned: impl Fn(&Span) -> bool) -> bool {
        self.urgent
            .iter()
            .chain(self.bulk.iter().flatten())
            .filter_map(|item| item.message)
            .any(|(span, _)| concerned(&span))
    }

    /// Removes the link `generation`, if it is in use, and clears the queues.
    pub fn disconnect(&mut self, generation: Generation) -> Option<Unused> {
        let end = self.link.disconnect(generation)?;
        Some(self.cleared(end))
    }

    /// Removes the link in use, clears the queues, and accepts no other link.
    pub fn close(&mut self) -> Option<Unused> {
        let end = self.link.close()?;
        Some(self.cleared(end))
    }

    fn cleared(&mut self, end: Arc<dyn Shutdown>) -> Unused {
        self.urgent.clear();
        self.bulk.clear();
        self.changed.notify_all();
        (end, self.half.take())
    }
}

impl Item {
    /// The next frame of the entry: header, location of the bytes, and whether it is the last.
    fn frame(&mut self) -> (DataHeader, Option<Span>, bool) {
        let PeerFlow { op, flow, .. } = self.peer_flow;
        let Some((span, taken)) = &mut self.message else {
            return (DataHeader { op, flow, chunk: 0, phase: Phase::Posted, len: 0 }, None, true);
        };
        let rest = span.len - *taken;
        let (len, left) = (rest.min(PIECE), frames(rest) - 1);
        // An empty message may have any offset.
        let bytes = Span { offset: span.offset.saturating_add(*taken), len, ..*span };
        *taken += len;
        // The casts lose nothing: a piece is small, and `EndpointState::send` has checked the
        // number of frames.
        let header =
            DataHeader { op, flow, chunk: left as u32, phase: Phase::Message, len: len as u32 };
        (header, Some(bytes), left == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stream::RegionId;
    use super::*;
    use crate::link::memory;
    use crate::protocol::{Lane, Rank};

    fn peer_flow(flow: u32) -> PeerFlow {
        PeerFlow { op: OpId { lane: Lane::MAIN, number: 0 }, peer: Rank(1), flow }
    }

    fn message(flow: u32, len: usize) -> Item {
        Item::message(peer_flow(flow), Span { region: RegionId(u64::from(flow)), offset: 0, len })
    }

    fn connected() -> Outbox {
        let mut outbox = Outbox::default();
        assert_eq!(connect(&mut outbox), Some(1));
        outbox
    }

    fn connect(outbox: &mut Outbox) -> Option<Generation> {
        let (half, _receiver, end) = memory().0.split();
        let generation = outbox.link.connect(&end)?;
        outbox.give_back(generation, half).is_none().then_some(generation)
    }

    /// Writes the next frame; returns its flow, its phase, and how many frames follow.
    fn write(outbox: &mut Outbox) -> Option<(u32, Phase, u32)> {
        let Departing { generation, half, header, .. } = outbox.next()?;
        assert!(outbox.next().is_none(), "one writes at a time");
        assert!(outbox.give_back(generation, half).is_none());
        Some((header.flow, header.phase, header.chunk))
    }

    #[test]
    fn credits_and_eager_messages_go_between_the_frames_of_a_large_one() {
        let mut outbox = connected();
        outbox.push(message(0, 2 * PIECE + 1), Pace::Credited);
        assert_eq!(write(&mut outbox), Some((0, Phase::Message, 2)));
        outbox.push(message(1, 10), Pace::Eager);
        outbox.push(message(2, 10), Pace::Eager);
        outbox.push(Item::credit(peer_flow(3)), Pace::Eager);
        let rest: Vec<_> = std::iter::from_fn(|| write(&mut outbox)).collect();
        let message = |flow, left| (flow, Phase::Message, left);
        assert_eq!(
            rest,
            [(3, Phase::Posted, 0), message(1, 0), message(2, 0), message(0, 1), message(0, 0)]
        );
    }

    #[test]
    fn operations_take_turns_and_each_keeps_its_order() {
        let of = |number| OpId { lane: Lane::MAIN, number };
        let item = |number, flow, len| {
            let peer_flow = PeerFlow { op: of(number), peer: Rank(1), flow };
            Item::message(peer_flow, Span { region: RegionId(1), offset: 0, len })
        };
        let mut outbox = connected();
        for item in [
            item(0, 0, 3 * PIECE),
            item(0, 1, 1),
            item(1, 0, PIECE + 1),
            item(2, 0, PIECE),
            item(2, 1, 2 * PIECE),
        ] {
            outbox.push(item, Pace::Credited);
        }
        let mut frames = Vec::new();
        while let Some(Departing { generation, half, header, .. }) = outbox.next() {
            frames.push((header.op.number, header.flow, header.chunk));
            outbox.give_back(generation, half);
            if frames.len() == 7 {
                outbox.purge(of(0));
            }
        }
        let expected = [
            (0, 0, 2),
            (1, 0, 1),
            (2, 0, 0),
            (0, 0, 1),
            (1, 0, 0),
            (2, 1, 1),
            (0, 0, 0),
            (2, 1, 0),
        ];
        assert_eq!(frames, expected, "without flow 1 of the first one, which was taken out");
    }

    #[test]
    fn a_thread_writes_itself_what_is_small_and_overtakes_nothing_of_its_kind() {
        let mut outbox = connected();
        assert_eq!(outbox.push(message(0, 10), Pace::Eager), Turn::Mine);
        assert_eq!(outbox.push(message(0, 10), Pace::Eager), Turn::Later, "one is before it");
        let departing = outbox.next().expect("the first");
        assert!(!outbox.is_ready(), "somebody writes");
        outbox.purge(peer_flow(0).op);
        assert_eq!(outbox.push(message(0, 10), Pace::Eager), Turn::Later, "somebody writes");
        outbox.purge(peer_flow(0).op);
        assert!(outbox.give_back(departing.generation, departing.half).is_none());
        assert_eq!(outbox.push(message(0, PIECE), Pace::Credited), Turn::Later, "large");
        assert_eq!(
            outbox.push(message(0, 10), Pace::Credited),
            Turn::Later,
            "a credited one is before it"
        );
        assert_eq!(
            outbox.push(message(1, 10), Pace::Eager),
            Turn::Mine,
            "those are of another kind"
        );
        assert_eq!(write(&mut outbox), Some((1, Phase::Message, 0)));
    }

    #[test]
    fn nothing_is_left_of_a_link_that_is_over() {
        let mut outbox = connected();
        outbox.push(message(0, 10), Pace::Eager);
        outbox.push(message(0, PIECE), Pace::Credited);
        let departing = outbox.next().expect("the first");
        assert!(outbox.disconnect(2).is_none(), "another link");
        assert!(outbox.disconnect(1).is_some() && outbox.disconnect(1).is_none());
        assert!(!outbox.has(|_| true));
        assert_eq!(connect(&mut outbox), Some(2));
        assert!(
            outbox.give_back(departing.generation, departing.half).is_some(),
            "it belongs to the old link"
        );
        assert!(outbox.link.generation() == Some(2) && connect(&mut outbox).is_none());
        assert!(outbox.close().is_some() && connect(&mut outbox).is_none(), "closed");
    }
}
