//! How the operations of a View send to its members.

#[cfg(all(test, potluck_threads))]
mod schedules;

use super::voice::Voice;
use crate::identity::MemberId;
use crate::os::{RwLock, ThreadId, thread};
use crate::protocol::{Message, OpMessage, Rank, View};
use crate::session::{Envelope, Mouth};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};

/// Weak handles to the send queues (`Voice`) that operations may use, by member. A member without
/// one gets a replay later, before its link is [added](Voices::add).
#[derive(Clone, Default)]
pub(super) struct Voices(Arc<RwLock<BTreeMap<MemberId, Weak<Voice>>>>);

/// The [`Mouth`] of this node's session: sends the messages of operations to their audience.
pub(super) struct Speaker {
    view: Arc<View>,
    me: MemberId,
    voices: Voices,
    driver: ThreadId,
}

impl Voices {
    /// Operations use this queue from now on.
    pub(super) fn add(&self, member: MemberId, voice: &Arc<Voice>) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(member, Arc::downgrade(voice));
    }

    /// Operations stop using the member's queue.
    pub(super) fn remove(&self, member: MemberId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&member);
    }

    /// Queues what the member must hear again over its new link. Operations use the link from then
    /// on: the session's lock is held meanwhile, so no message is left out or said twice.
    pub(super) fn replay(
        &self,
        member: MemberId,
        voice: &Arc<Voice>,
        envelope: &Envelope,
        rank: Rank,
    ) {
        envelope.replay(rank, |messages| {
            for message in messages {
                voice.push_again(Message::Op(message));
            }
            voice.wake();
            self.add(member, voice);
        });
    }

    fn get(&self, member: MemberId) -> Option<Arc<Voice>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&member)?.upgrade()
    }
}

impl Speaker {
    /// For a View of which `me` is a member. Must be called on the driver's thread, which it
    /// records.
    pub(super) fn new(view: Arc<View>, me: MemberId, voices: Voices) -> Speaker {
        Speaker { view, me, voices, driver: thread::current().id() }
    }

    /// The queues of the members in `audience`, a bit for each rank, except this node.
    fn others(&self, audience: u32) -> impl Iterator<Item = Arc<Voice>> {
        let members = self.view.members.iter().enumerate();
        let others =
            members.filter(move |(rank, member)| audience >> rank & 1 == 1 && member.id != self.me);
        others.filter_map(|(_, member)| self.voices.get(member.id))
    }
}

impl Mouth for Speaker {
    fn tell(&self, message: OpMessage) {
        for voice in self.others(message.body.audience(self.view.size())) {
            // A refused message marks the link as overrun; the driver closes it at its next tick.
            voice.push(Message::Op(message.clone()));
        }
    }

    /// On the driver's thread the writer tasks are woken, so the messages of one turn leave in one
    /// write. Other threads write inline.
    fn flush(&self) {
        let is_driver = thread::current().id() == self.driver;
        for voice in self.others(u32::MAX) {
            if is_driver { voice.wake() } else { voice.write() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::voice::Line;
    use super::*;
    use crate::link::{ControlReceiver, control_link};
    use crate::protocol::{Lane, OpBody, OpId, Seeded, ViewDigest, view_of};
    use crate::wire::Decode;

    fn resolved(number: u64) -> OpMessage {
        let resolved = vec![OpId { lane: Lane::MAIN, number }];
        OpMessage { view: ViewDigest([0; 32]), body: OpBody::Resolved, resolved, enclosed: None }
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
        let voices = Voices::default();
        let speaker = Arc::new(Speaker::new(Arc::clone(&view), view.members[1].id, voices.clone()));
        let linked: Vec<_> = [0, 1, 2]
            .map(|rank| {
                let ((half, _), (_, heard)) = control_link();
                let (line, task) = Voice::over(half, Seeded::NONE);
                voices.add(view.members[rank].id, line.voice());
                (line, task, heard)
            })
            .into();
        speaker.tell(resolved(1));
        speaker.flush();
        let waiting = || {
            linked
                .iter()
                .map(|(line, ..): &(Line, _, _)| line.voice().waiting())
                .collect::<Vec<_>>()
        };
        assert_eq!(waiting(), [1, 0, 1], "not for itself");

        voices.remove(view.members[2].id);
        let other = Arc::clone(&speaker);
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

    #[test]
    fn messages_go_to_whom_they_concern() {
        let view = Arc::new(view_of(4));
        let voices = Voices::default();
        let lines: Vec<Line> = view
            .members
            .iter()
            .map(|member| {
                let (line, _) = Voice::over(control_link().0.0, Seeded::NONE);
                voices.add(member.id, line.voice());
                line
            })
            .collect();
        let speaker = Speaker::new(Arc::clone(&view), view.members[0].id, voices);
        let op = OpId { lane: Lane::MAIN.messages(Rank(0), Rank(2)), number: 0 };
        speaker.tell(OpMessage { body: OpBody::Ready(op), ..resolved(0) });
        assert_eq!(
            lines.iter().map(|line| line.voice().waiting()).collect::<Vec<_>>(),
            [0, 0, 1, 0]
        );
    }
}
