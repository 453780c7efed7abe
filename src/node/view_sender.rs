//! How the operations of a View send to its members.

#[cfg(all(test, potluck_threads))]
mod schedules;

use super::data_link::Traffic;
use super::send_queue::SendQueue;
use crate::identity::MemberId;
use crate::os::{RwLock, ThreadId, thread};
use crate::protocol::{Message, OpBody, OpMessage, Rank, RankSet, View};
use crate::session::{OpSender, ViewSession};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

/// Weak handles to the send queues (`SendQueue`) that operations may use, by member. A member
/// without one gets a replay later, before its link is [added](SendQueues::add).
#[derive(Clone, Default)]
pub(super) struct SendQueues(Arc<RwLock<BTreeMap<MemberId, Weak<SendQueue>>>>);

/// The [`OpSender`] of this node's session: sends the messages of operations to their audience.
pub(super) struct ViewSender {
    view: Arc<View>,
    me: MemberId,
    send_queues: SendQueues,
    traffic: Traffic,
    control_loop: ThreadId,
}

impl SendQueues {
    /// Operations use this queue from now on.
    pub(super) fn add(&self, member: MemberId, send_queue: &Arc<SendQueue>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(member, Arc::downgrade(send_queue));
    }

    /// Operations stop using the member's queue.
    pub(super) fn remove(&self, member: MemberId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&member);
    }

    /// Queues the messages that the member must hear again over its new link. Operations use the
    /// link from then on: the session's lock is held meanwhile, so no message is left out or said
    /// twice.
    pub(super) fn replay(
        &self,
        member: MemberId,
        send_queue: &Arc<SendQueue>,
        session: &ViewSession,
        rank: Rank,
    ) {
        session.replay(rank, |messages| {
            for message in messages {
                send_queue.push_again(Message::Op(message));
            }
            send_queue.wake();
            self.add(member, send_queue);
        });
    }

    fn get(&self, member: MemberId) -> Option<Arc<SendQueue>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&member)?.upgrade()
    }
}

impl ViewSender {
    /// For a View of which `me` is a member. Counts the operations of this node in `traffic`. Must
    /// be called on the control loop's thread, which it records.
    pub(super) fn new(
        view: Arc<View>,
        me: MemberId,
        send_queues: SendQueues,
        traffic: Traffic,
    ) -> ViewSender {
        ViewSender { view, me, send_queues, traffic, control_loop: thread::current().id() }
    }

    /// The queues of the members in `audience`, except this node.
    fn others(&self, audience: RankSet) -> impl Iterator<Item = Arc<SendQueue>> {
        let members = self.view.members.iter().enumerate();
        let others = members.filter(move |(rank, member)| {
            audience.contains(Rank::from(*rank)) && member.id != self.me
        });
        others.filter_map(|(_, member)| self.send_queues.get(member.id))
    }
}

impl OpSender for ViewSender {
    fn tell(&self, message: OpMessage) {
        if matches!(message.body, OpBody::Describe(_)) {
            self.traffic.count();
        }
        for send_queue in self.others(message.body.audience(self.view.size())) {
            // A refused message marks the link as overrun; the control loop closes it at its next
            // tick.
            send_queue.push(Message::Op(message.clone()));
        }
    }

    /// On the control loop's thread the writer tasks are woken, so the messages of one turn leave
    /// in one write. Other threads write inline.
    fn flush(&self) {
        let is_control_loop = thread::current().id() == self.control_loop;
        for send_queue in self.others(RankSet::ALL) {
            if is_control_loop { send_queue.wake() } else { send_queue.write() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::send_queue::QueueOwner;
    use super::*;
    use crate::collective::{Input, NativeEngine};
    use crate::link::{ControlReceiver, control_link};
    use crate::memory::{DType, bytes_of};
    use crate::protocol::{Call, CallKind, Lane, Mutation, OpId, ReduceOp, ViewDigest, view_of};
    use crate::wire::Decode;
    use tokio::sync::mpsc::unbounded_channel;

    fn resolved(number: u64) -> OpMessage {
        let resolved = vec![OpId { lane: Lane::MAIN, number }];
        OpMessage { view: ViewDigest([0; 32]), body: OpBody::Resolved, resolved, enclosed: None }
    }

    fn sender_of(
        view: &Arc<View>,
        me: MemberId,
        send_queues: &SendQueues,
        traffic: &Traffic,
    ) -> ViewSender {
        ViewSender::new(Arc::clone(view), me, send_queues.clone(), traffic.clone())
    }

    async fn next(heard: &mut ControlReceiver) -> OpMessage {
        let bytes = heard.recv().await.expect("it is not over");
        match Message::from_bytes(&bytes) {
            Ok(Message::Op(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_thread_of_an_operation_writes_and_the_drivers_leaves_it_to_its_turn() {
        let view = Arc::new(view_of(4));
        let send_queues = SendQueues::default();
        let view_sender =
            Arc::new(sender_of(&view, view.members[1].id, &send_queues, &Traffic::default()));
        let linked: Vec<_> = [0, 1, 2]
            .map(|rank| {
                let ((half, _), (_, heard)) = control_link();
                let (line, task) = SendQueue::open(half, Mutation::NONE);
                send_queues.add(view.members[rank].id, line.send_queue());
                (line, task, heard)
            })
            .into();
        view_sender.tell(resolved(1));
        view_sender.flush();
        let waiting = || {
            linked
                .iter()
                .map(|(line, ..): &(QueueOwner, _, _)| line.send_queue().waiting())
                .collect::<Vec<_>>()
        };
        assert_eq!(waiting(), [1, 0, 1], "not for itself");

        send_queues.remove(view.members[2].id);
        let other = Arc::clone(&view_sender);
        let said = std::thread::spawn(move || {
            other.tell(resolved(2));
            other.flush();
        });
        said.join().expect("said");
        assert_eq!(waiting(), [0, 0, 1], "only where operations speak");
        let [mut first, _second, mut third] = <[_; 3]>::try_from(linked).ok().expect("three");
        assert_eq!(
            (next(&mut first.2).await, next(&mut first.2).await),
            (resolved(1), resolved(2))
        );
        tokio::select! {
            () = third.1 => panic!("it has not ended"),
            message = next(&mut third.2) => assert_eq!(message, resolved(1)),
        }
    }

    /// A small contribution travels inside its descriptor: no frame ends a burst then.
    #[test]
    fn each_operation_that_this_node_begins_ends_bursts() {
        let (view, traffic) = (Arc::new(view_of(2)), Traffic::default());
        let op_sender = sender_of(&view, view.members[0].id, &SendQueues::default(), &traffic);
        let (engine, out) = (NativeEngine::default(), unbounded_channel().0);
        let session = ViewSession::open(view, Rank(0), &engine, out, Arc::new(op_sender));
        let session = Arc::new(session);
        let call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 1);
        for begun in 1..=3 {
            let op = session.call(Lane::MAIN, call).expect("a number");
            session.begin(op, call, &Input::Borrowed(bytes_of(&[1f32])));
            assert_eq!(traffic.counted(), begun);
        }
        session.close();
    }

    #[test]
    fn messages_go_to_whom_they_concern() {
        let view = Arc::new(view_of(4));
        let send_queues = SendQueues::default();
        let lines: Vec<QueueOwner> = view
            .members
            .iter()
            .map(|member| {
                let (line, _) = SendQueue::open(control_link().0.0, Mutation::NONE);
                send_queues.add(member.id, line.send_queue());
                line
            })
            .collect();
        let view_sender = sender_of(&view, view.members[0].id, &send_queues, &Traffic::default());
        let op = OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 };
        view_sender.tell(OpMessage { body: OpBody::Ready(op, 0), ..resolved(0) });
        assert_eq!(
            lines.iter().map(|line| line.send_queue().waiting()).collect::<Vec<_>>(),
            [0, 0, 1, 0]
        );
    }
}
