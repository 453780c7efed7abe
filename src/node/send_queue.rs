//! The send queue of one control link.
//!
//! Any thread may queue a message. A thread of an operation also writes the queue inline if the
//! writer is idle, so no other thread has to wake up first. The link's writer task writes
//! everything else, and the rest of an inline write for which the socket had no room.

#[cfg(all(test, potluck_threads))]
mod schedules;

#[cfg(any(test, potluck_mutants))]
use super::lies::Liar;
use crate::link::ControlSender;
use crate::os::{Mutex, Race, lock};
use crate::protocol::{Message, Mutant, Mutation};
use crate::wire::Encode;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// New messages that may wait for a slow peer. When more are queued, the link
/// [overruns](SendQueue::has_overrun) and is closed.
pub(super) const WAITING_MAX: usize = if cfg!(potluck_tight) { 8 } else { 4096 };

/// A write takes no further messages once this many bytes are unsent.
const AT_ONCE_BYTES: usize = 16 * 1024;

/// How often in a row an inline write takes messages that arrived meanwhile; after that the task
/// continues.
const ROUNDS_MAX: usize = 2;

/// The send queue of one control link, with the link's sending half.
pub(super) struct SendQueue {
    state: Mutex<QueueState>,
    /// Wakes the writer task.
    changed: Notify,
    /// In tests, a liar that changes the messages of the node.
    #[cfg(any(test, potluck_mutants))]
    liar: Option<Mutex<Liar>>,
}

/// The link's ownership of its queue. Dropping it ends the queue: queued messages still leave, then
/// the sending half is closed.
pub(super) struct QueueOwner(Arc<SendQueue>);

struct QueueState {
    queue: VecDeque<Queued>,
    /// How many of these are [`Said::New`].
    new: usize,
    half: Half,
    /// No further messages are accepted.
    ended: bool,
    /// A message was refused. None is accepted after it, so the peer receives a prefix of the
    /// sequence without gaps.
    overrun: bool,
}

struct Queued {
    message: Message,
    said: Said,
}

/// Whether a message is new, or a replay of one that was sent over an earlier link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// Counts towards [`WAITING_MAX`].
    New,
    /// Does not count: the log that it is replayed from has its own bound.
    Again,
}

/// Where the sending half is.
///
/// ```text
/// Here -- take_half ----------------------> Away -- give_back ----> Here
///   |                                         `---- dropped ----> Over (failed)
///   `-- turn: ended and nothing to write -> Over (closed)
/// ```
enum Half {
    Here(Box<ControlSender>),
    /// A thread or the task is writing.
    Away,
    /// The link failed or is closed.
    Over,
}

/// Guard of a taken half. Dropping it without [`give_back`](TakenHalf::give_back) ends the link.
struct TakenHalf<'a> {
    send_queue: &'a SendQueue,
    is_over: bool,
}

/// The writer task's next step.
enum Turn {
    Write(Box<ControlSender>),
    Wait,
    End,
}

impl SendQueue {
    /// A send queue for this half, and its writer task.
    pub(super) fn open(
        half: ControlSender,
        mutation: Mutation,
    ) -> (QueueOwner, impl Future<Output = ()> + Send + use<>) {
        let half = Half::Here(Box::new(half));
        let state =
            QueueState { queue: VecDeque::new(), new: 0, half, ended: false, overrun: false };
        let lies = mutation.has(Mutant::Lies);
        #[cfg(any(test, potluck_mutants))]
        let liar = lies.then(|| Mutex::new(Liar::new()));
        let send_queue = Arc::new(SendQueue {
            state: Mutex::new(state),
            changed: Notify::new(),
            #[cfg(any(test, potluck_mutants))]
            liar,
        });
        #[cfg(not(any(test, potluck_mutants)))]
        let _ = lies;
        (QueueOwner(Arc::clone(&send_queue)), send_queue.carry())
    }

    /// Queues a message. Returns false if the link is over or too many messages wait; in the second
    /// case it has [overrun](SendQueue::has_overrun) and accepts nothing more. The message leaves
    /// with the next [`wake`](SendQueue::wake) or [`write`](SendQueue::write).
    pub(super) fn push(&self, message: Message) -> bool {
        lock(&self.state).push(message, Said::New)
    }

    /// As [`push`](SendQueue::push), for the replay of a message that was sent over an earlier
    /// link. Never refused because of [`WAITING_MAX`].
    pub(super) fn push_again(&self, message: Message) -> bool {
        lock(&self.state).push(message, Said::Again)
    }

    /// Whether a message was refused because too many wait. The peer can receive it over another
    /// link only.
    pub(super) fn has_overrun(&self) -> bool {
        lock(&self.state).overrun
    }

    /// Lets the writer task write the queue.
    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Writes the queue on this thread without blocking, as far as the socket has room. Does
    /// nothing while another writer is active: that one takes the new messages along.
    pub(super) fn write(&self) {
        for _ in 0..ROUNDS_MAX {
            let half = {
                let mut state = lock(&self.state);
                if state.queue.is_empty() {
                    return;
                }
                state.take_half()
            };
            let Some(mut half) = half else { return };
            let taken = TakenHalf::of(self);
            let written = match self.seal(&mut half) {
                Ok(()) => pin!(half.flush()).poll(&mut Context::from_waker(Waker::noop())),
                Err(error) => Poll::Ready(Err(error)),
            };
            match written {
                Poll::Ready(Ok(())) => taken.give_back(half),
                Poll::Ready(Err(_)) => return,
                // The task continues when the socket has room.
                Poll::Pending => {
                    taken.give_back(half);
                    return self.wake();
                }
            }
        }
        if !lock(&self.state).queue.is_empty() && !Race::RestUnseen.is_seeded() {
            self.wake();
        }
    }

    /// Number of new messages that wait.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).new
    }

    /// The writer task. Ends when the link has failed, or is ended and everything is written.
    async fn carry(self: Arc<SendQueue>) {
        loop {
            let turn = lock(&self.state).turn();
            let mut half = match turn {
                Turn::Write(half) => half,
                Turn::Wait => {
                    self.changed.notified().await;
                    continue;
                }
                Turn::End => return,
            };
            let taken = TakenHalf::of(&self);
            let written = match self.seal(&mut half) {
                Ok(()) => half.flush().await,
                Err(error) => Err(error),
            };
            if written.is_ok() {
                taken.give_back(half);
            }
        }
    }

    /// Seals queued messages behind the unsent bytes, so that they leave in one write.
    fn seal(&self, half: &mut ControlSender) -> io::Result<()> {
        while half.unsent() < AT_ONCE_BYTES {
            let Some(message) = lock(&self.state).pop() else { break };
            self.add(half, &message.to_bytes())?;
        }
        Ok(())
    }

    #[cfg(not(any(test, potluck_mutants)))]
    #[expect(clippy::unused_self, reason = "a test's one lies")]
    fn add(&self, half: &mut ControlSender, message: &[u8]) -> io::Result<()> {
        half.add(message)
    }

    #[cfg(any(test, potluck_mutants))]
    fn add(&self, half: &mut ControlSender, message: &[u8]) -> io::Result<()> {
        let Some(liar) = &self.liar else { return half.add(message) };
        let said = lock(liar).say(message.to_vec());
        said.iter().try_for_each(|message| half.add(message))
    }
}

impl QueueState {
    fn push(&mut self, message: Message, said: Said) -> bool {
        if self.ended || self.overrun {
            return false;
        }
        if said == Said::New {
            if self.new >= WAITING_MAX || is_full_by_chance() {
                self.overrun = true;
                #[cfg(test)]
                OVERRUNS.set(OVERRUNS.get() + 1);
                return false;
            }
            self.new += 1;
        }
        self.queue.push_back(Queued { message, said });
        true
    }

    fn pop(&mut self) -> Option<Message> {
        let Queued { message, said } = self.queue.pop_front()?;
        if said == Said::New {
            self.new -= 1;
        }
        Some(message)
    }

    fn take_half(&mut self) -> Option<Box<ControlSender>> {
        match std::mem::replace(&mut self.half, Half::Away) {
            Half::Here(half) => Some(half),
            other => {
                self.half = other;
                None
            }
        }
    }

    fn turn(&mut self) -> Turn {
        match self.take_half() {
            Some(half) if half.unsent() > 0 || !self.queue.is_empty() => Turn::Write(half),
            // Dropped: this closes the half.
            Some(_) if self.ended => {
                self.half = Half::Over;
                Turn::End
            }
            Some(half) => {
                self.half = Half::Here(half);
                Turn::Wait
            }
            None if matches!(self.half, Half::Over) => Turn::End,
            None => Turn::Wait,
        }
    }
}

/// Whether a simulation wants the queue to be full.
#[cfg(not(test))]
const fn is_full_by_chance() -> bool {
    false
}

#[cfg(test)]
fn is_full_by_chance() -> bool {
    let (state, one_in) = FULL.get();
    if one_in == 0 {
        return false;
    }
    // A linear congruential generator (Knuth, MMIX).
    let state =
        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    FULL.set((state, one_in));
    (state >> 33) % one_in == 0
}

/// From now on queues are full for one new message of this thread in `one_in`, by chance.
#[cfg(test)]
pub(crate) fn full_by_chance(seed: u64, one_in: u64) {
    FULL.set((seed, one_in));
}

/// How many queues of this thread have been full so far.
#[cfg(test)]
pub(crate) fn overruns() -> u64 {
    OVERRUNS.get()
}

#[cfg(test)]
thread_local! {
    static OVERRUNS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    /// The state of the generator, and one in how many messages is refused; 0 for none.
    static FULL: std::cell::Cell<(u64, u64)> = const { std::cell::Cell::new((0, 0)) };
}

impl<'a> TakenHalf<'a> {
    fn of(send_queue: &'a SendQueue) -> TakenHalf<'a> {
        TakenHalf { send_queue, is_over: true }
    }

    fn give_back(mut self, half: Box<ControlSender>) {
        self.is_over = false;
        let mut state = lock(&self.send_queue.state);
        state.half = Half::Here(half);
        // If the link was ended meanwhile, the task has to close it.
        if state.ended && !Race::CloseUnseen.is_seeded() {
            self.send_queue.wake();
        }
    }
}

/// A failed link accepts nothing more. Its reader reports the end.
impl Drop for TakenHalf<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            return;
        }
        let mut state = lock(&self.send_queue.state);
        (state.half, state.ended) = (Half::Over, true);
        state.queue.clear();
        state.new = 0;
        self.send_queue.wake();
    }
}

impl QueueOwner {
    pub(super) fn send_queue(&self) -> &Arc<SendQueue> {
        &self.0
    }
}

impl Drop for QueueOwner {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.wake();
    }
}

#[cfg(test)]
mod tests;
