//! The reader of one control link.
//!
//! It delivers the messages of operations to the session of the installed View, and all others to
//! the node, through the node's queue. A vote therefore needs no step of the election.
//!
//! *Order.* The messages of one link to one session keep their order: a message whose View is not
//! installed goes to the node, which may install that View, and the reader waits until the node has
//! handled it. Messages of operations may overtake other messages, which wait in the node's queue:
//!
//! ```text
//! sent by the peer:      Prepare, vote, Ping
//! handled by this node:  vote, Prepare, Ping
//! ```
//!
//! So a session hears a message early, never late. That is safe:
//!
//! - *A promise* reports the frozen ledger, with the votes that were counted until then; a frozen
//!   ledger counts none. Its proposer may be any member, and links to two members have no common
//!   order. So no rule relies on the order of a vote and a message about Views. The model checker
//!   delivers them in any order.
//! - *An installed View* takes no message before it is installed: a session is shared with the
//!   readers at the end of its installation, and withdrawn before the next one begins. It is also
//!   withdrawn while a promise waits until no operation is in flight: then the node delivers, and
//!   sees the end of each operation at once.
//! - *A descriptor* may come before the plan that it names. That also happens if another member has
//!   that plan first; the plan then releases the call.
//! - *A `Pong`* shows that its sender has answered earlier questions. A question is never behind
//!   the `Ping`, and its answer is queued when it is handled.

use super::event::Event;
use super::open_session::OpenSession;
use crate::identity::MemberId;
use crate::link::ControlReceiver;
use crate::protocol::{Message, OpMessage};
use crate::wire::Decode;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

/// The reader of one control link.
pub(super) struct Reader {
    pub(super) member: MemberId,
    pub(super) generation: u64,
    pub(super) session: OpenSession,
    pub(super) events: mpsc::Sender<Event>,
    /// When the node was last told that the session has heard the member.
    pub(super) told: Option<Instant>,
}

/// The node is not told more often that a session has heard a member. A small part of the shortest
/// silence that counts.
const HEARD_APART: Duration = Duration::from_millis(10);

/// Why a reader stops: the node has ended, or it closes the link.
struct Stopped;

impl Reader {
    /// Reads until the link has ended, and tells the node of that.
    pub(super) async fn read(mut self, mut from: ControlReceiver) {
        let misbehaved = loop {
            let Ok(bytes) = from.recv().await else { break None };
            let delivered = match Message::from_bytes(&bytes) {
                Ok(Message::Op(message)) => self.deliver(message).await,
                Ok(message) => self.tell(Event::Message { from: self.member, message }).await,
                Err(malformed) => break Some(malformed.to_string()),
            };
            if delivered.is_err() {
                return;
            }
        };
        let (member, generation) = (self.member, self.generation);
        let _ = self.tell(Event::Closed { member, generation, misbehaved }).await;
    }

    async fn deliver(&mut self, message: OpMessage) -> Result<(), Stopped> {
        // A peer that sends without pause must not keep the node from its turn.
        consume_budget().await;
        let Some(session) = self.session.of(message.view) else {
            let (handled, is_handled) = oneshot::channel();
            self.tell(Event::Op { from: self.member, message, handled }).await?;
            // The node only drops the sender.
            let _ = is_handled.await;
            return Ok(());
        };
        let rank = session.view().rank_of(self.member);
        if rank.is_some_and(|rank| session.on_message(rank, &message).is_err()) {
            self.tell(Event::Breach(self.member)).await?;
            return Err(Stopped);
        }
        if self.told.is_none_or(|told| told.elapsed() >= HEARD_APART) {
            self.told = Some(Instant::now());
            self.tell(Event::Heard(self.member)).await?;
        }
        Ok(())
    }

    async fn tell(&self, event: Event) -> Result<(), Stopped> {
        // The receiver is gone only if the node is.
        self.events.send(event).await.map_err(|_| Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Input;
    use crate::link::{ControlSender, control_link};
    use crate::memory::DType;
    use crate::protocol::{Call, CallKind, OpBody, OpId, view_of};
    use crate::session::Group;
    use crate::wire::Encode;
    use std::sync::Arc;

    const BARRIER: Call = Call::new(CallKind::Barrier, DType::U8, 0);

    /// Two members, and the link over which rank 0 reads the messages of rank 1.
    struct Pair {
        group: Group,
        session: OpenSession,
        to: ControlSender,
        events: mpsc::Receiver<Event>,
        op: OpId,
    }

    impl Pair {
        /// Both have begun a barrier, and neither has heard of it.
        fn new() -> Pair {
            let mut group = Group::without_data_links(view_of(2));
            let ops = group.call_all(BARRIER);
            for (member, op) in group.members.iter().zip(&ops) {
                member.begin(*op, BARRIER, &Input::Nothing);
            }
            group.take_said(0);
            let ((_, from), (to, _)) = control_link();
            let (member, session) = (group.members[0].view().members[1].id, OpenSession::default());
            let (events_tx, events) = mpsc::channel(8);
            let reader = Reader {
                member,
                generation: 1,
                session: session.clone(),
                events: events_tx,
                told: None,
            };
            tokio::spawn(reader.read(from));
            Pair { group, session, to, events, op: ops[0] }
        }

        fn open(&self) {
            self.session.set(Some(Arc::clone(&self.group.members[0])));
        }

        async fn send(&mut self, messages: Vec<OpMessage>) {
            for message in messages {
                self.to.send(&Message::Op(message).to_bytes()).await.expect("sent");
            }
            // Paused time passes only when the reader has taken everything and waits.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        /// Whether rank 0 has heard the descriptor of rank 1.
        fn has_called(&self) -> bool {
            self.group.members[0].waiting_for().is_none_or(|(op, _)| op != self.op)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_reaches_its_session_and_the_node_hears_of_the_member_now_and_then() {
        let mut pair = Pair::new();
        pair.open();
        let said = pair.group.take_said(1);
        let descriptor = said[0].clone();
        pair.send(said).await;
        assert!(pair.has_called());
        pair.send(vec![descriptor.clone(); 9]).await;
        assert!(matches!(pair.events.try_recv(), Ok(Event::Heard(_))));
        assert!(pair.events.try_recv().is_err(), "not with each message");
        tokio::time::sleep(HEARD_APART).await;
        pair.send(vec![descriptor]).await;
        assert!(matches!(pair.events.try_recv(), Ok(Event::Heard(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn no_message_overtakes_one_that_waits_for_its_view() {
        let mut pair = Pair::new();
        let said = pair.group.take_said(1);
        let resolved = OpMessage { body: OpBody::Resolved, ..said[0].clone() };
        pair.send(vec![resolved, said[0].clone()]).await;
        let waits = pair.events.try_recv();
        assert!(
            matches!(&waits, Ok(Event::Op { message, .. }) if message.body == OpBody::Resolved)
        );
        pair.open();
        tokio::time::sleep(HEARD_APART).await;
        assert!(!pair.has_called() && pair.events.try_recv().is_err(), "the node has it still");
        drop(waits);
        tokio::time::sleep(HEARD_APART).await;
        assert!(pair.has_called());
        assert!(matches!(pair.events.try_recv(), Ok(Event::Heard(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_after_what_no_honest_member_sends() {
        let mut pair = Pair::new();
        pair.open();
        let said = pair.group.take_said(1);
        // Only whole operations are overdue.
        let body = OpBody::Overdue(pair.op.part(0));
        pair.send(vec![OpMessage { body, ..said[0].clone() }, said[0].clone()]).await;
        assert!(matches!(pair.events.try_recv(), Ok(Event::Breach(_))));
        assert!(pair.events.try_recv().is_err() && !pair.has_called());
    }
}
