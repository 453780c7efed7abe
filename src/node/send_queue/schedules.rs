//! The send queue in many orders of its threads (`make threads`).

use super::*;
use crate::link::{ControlReceiver, control_link_of};
use crate::protocol::Mutation;
use crate::sim::{explore, finds};
use crate::wire::Decode;
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::thread;
use std::collections::BTreeMap;
use std::ops::Range;

/// Threads that queue messages: the control loop, and three of operations.
const THREADS: Range<u64> = CONTROL_LOOP..4;
const CONTROL_LOOP: u64 = 0;
/// Numbers of one thread begin at a multiple of this.
const OF_THREAD: u64 = 1000;
/// Room of the link, in bytes: less than two messages, so that an inline write often leaves a part
/// to the task.
const NARROW: usize = 40;
/// Room for all messages: a writer never waits.
const WIDE: usize = 4096;

/// A queue with its writer task, and the receiver.
fn linked(room: usize) -> (QueueOwner, JoinHandle<()>, ControlReceiver) {
    let ((half, _), (_, heard)) = control_link_of(room);
    let (line, task) = SendQueue::open(half, Mutation::NONE);
    (line, spawn(task), heard)
}

/// Queues messages until one is refused; returns how many were accepted. Threads of operations
/// write themselves, the control loop wakes the task.
fn speak(send_queue: &SendQueue, thread: u64, messages: u64) -> u64 {
    for number in 0..messages {
        if !send_queue.push(Message::Ping(thread * OF_THREAD + number)) {
            assert!(!send_queue.push(Message::Ping(OF_THREAD - 1)), "accepted after a refusal");
            return number;
        }
        if thread == CONTROL_LOOP { send_queue.wake() } else { send_queue.write() }
    }
    messages
}

/// Threads with their numbers, and how many of their messages were accepted.
type ViewSenders = Vec<(u64, thread::JoinHandle<u64>)>;

/// Starts all threads, with so many messages each.
fn all_speak(send_queue: &Arc<SendQueue>, messages: u64) -> ViewSenders {
    view_senders(send_queue, THREADS.map(|thread| (thread, messages)))
}

fn view_senders(
    send_queue: &Arc<SendQueue>,
    messages: impl Iterator<Item = (u64, u64)>,
) -> ViewSenders {
    let view_sender = |(n, messages)| {
        let send_queue = Arc::clone(send_queue);
        (n, thread::spawn(move || speak(&send_queue, n, messages)))
    };
    messages.map(view_sender).collect()
}

/// By thread, how many of its messages were accepted, if any.
fn accepted(view_senders: ViewSenders) -> BTreeMap<u64, u64> {
    let joined =
        view_senders.into_iter().map(|(n, view_sender)| (n, view_sender.join().expect("no panic")));
    joined.filter(|(_, accepted)| *accepted > 0).collect()
}

/// The messages of a link until it ends, or as many as `most`, by thread: each thread's numbers in
/// their order, without a gap. Returns how many came from each, if any.
fn hear(heard: &mut ControlReceiver, most: u64) -> BTreeMap<u64, u64> {
    let mut came = BTreeMap::new();
    for _ in 0..most {
        let Ok(bytes) = block_on(heard.recv()) else { break };
        let Ok(Message::Ping(number)) = Message::from_bytes(&bytes) else {
            panic!("another message")
        };
        let next = came.entry(number / OF_THREAD).or_insert(0);
        assert_eq!(number % OF_THREAD, *next, "of thread {}", number / OF_THREAD);
        *next += 1;
    }
    came
}

/// Whether not more came of each thread than was accepted.
fn is_part(came: &BTreeMap<u64, u64>, accepted: &BTreeMap<u64, u64>) -> bool {
    came.iter().all(|(thread, came)| accepted.get(thread).is_some_and(|all| came <= all))
}

/// Accepted messages arrive once and in the order of their thread, also when the link is dropped
/// meanwhile; then the task ends and the peer learns of the end.
fn link_dropped() {
    let (line, task, mut heard) = linked(NARROW);
    let (send_queue, view_senders) =
        (Arc::clone(line.send_queue()), all_speak(line.send_queue(), 2));
    let dropping = thread::spawn(move || drop(line));
    let came = hear(&mut heard, u64::MAX);
    dropping.join().expect("no panic");
    assert_eq!(came, accepted(view_senders));
    block_on(task).expect("the task ends");
    assert!(!send_queue.push(Message::Ping(0)) && send_queue.waiting() == 0);
}

#[test]
fn what_was_accepted_comes_once_and_in_order_and_then_the_link_ends() {
    explore(link_dropped);
}

/// As long as the link is not dropped, nothing that was queued waits for a further call. The
/// threads have so many messages each.
fn nobody_calls_again(room: usize, messages: &[(u64, u64)]) {
    let (line, task, mut heard) = linked(room);
    let view_senders = view_senders(line.send_queue(), messages.iter().copied());
    let came = hear(&mut heard, messages.iter().map(|(_, messages)| messages).sum());
    assert_eq!(came, accepted(view_senders));
    drop(line);
    assert!(hear(&mut heard, u64::MAX).is_empty());
    block_on(task).expect("the task ends");
}

fn slow_peer() {
    nobody_calls_again(NARROW, &[(CONTROL_LOOP, 2), (1, 2), (2, 2), (3, 2)]);
}

/// Without the control loop, which would wake the task anyway, and with few messages: with a later
/// one the rest would leave.
fn fast_peer() {
    nobody_calls_again(WIDE, &[(1, 1), (2, 2)]);
}

#[test]
fn what_was_queued_leaves_without_a_further_call() {
    explore(slow_peer);
    explore(fast_peer);
}

/// The peer ends the link after some messages: the messages that arrived are in order, no thread
/// waits, and nothing is kept or accepted any more.
fn peer_ends() {
    let (line, task, mut heard) = linked(NARROW);
    let view_senders = all_speak(line.send_queue(), 2);
    let came = hear(&mut heard, 2);
    drop(heard);
    assert!(is_part(&came, &accepted(view_senders)));
    // A write finds out that the link has failed. There may have been none since.
    line.send_queue().push(Message::Ping(0));
    line.send_queue().wake();
    block_on(task).expect("the task ends");
    assert!(!line.send_queue().push(Message::Ping(0)) && line.send_queue().waiting() == 0);
}

#[test]
fn a_link_that_fails_ends_the_task_and_keeps_nothing() {
    explore(peer_ends);
}

/// More messages than may wait: each thread has a prefix of its own accepted, and all of these
/// arrive. A message that is queued again is not refused because of its number.
fn too_many() {
    let (line, task, mut heard) = linked(NARROW);
    let messages = WAITING_MAX as u64 / 2;
    let (send_queue, view_senders) =
        (Arc::clone(line.send_queue()), all_speak(line.send_queue(), messages));
    let dropping = thread::spawn(move || {
        let accepted = accepted(view_senders);
        let overran = line.send_queue().has_overrun();
        let all = THREADS.map(|thread| (thread, messages)).collect();
        assert_eq!(overran, accepted != all);
        let again = OF_THREAD * THREADS.end;
        assert_eq!(line.send_queue().push_again(Message::Ping(again)), !overran);
        drop(line);
        accepted
    });
    let mut came = hear(&mut heard, u64::MAX);
    came.remove(&THREADS.end);
    assert_eq!(came, dropping.join().expect("no panic"));
    block_on(task).expect("the task ends");
    assert_eq!(send_queue.waiting(), 0);
}

#[test]
fn a_link_that_overruns_carries_all_that_it_accepted() {
    explore(too_many);
}

/// The writer task is aborted half way, as the control loop does it to a link that has overrun.
fn task_aborted() {
    let (line, task, mut heard) = linked(NARROW);
    let view_senders = all_speak(line.send_queue(), 2);
    let aborting = thread::spawn(move || {
        task.abort();
        // Whether it had ended before does not matter.
        let _ = block_on(task);
    });
    let ended = thread::spawn(move || {
        let accepted = accepted(view_senders);
        aborting.join().expect("no panic");
        drop(line);
        accepted
    });
    let came = hear(&mut heard, u64::MAX);
    assert!(is_part(&came, &ended.join().expect("no panic")));
}

#[test]
fn a_link_whose_task_is_aborted_ends() {
    explore(task_aborted);
}

#[test]
fn a_close_that_wakes_nobody_is_found() {
    finds(Race::CloseUnseen, link_dropped);
}

#[test]
fn a_rest_that_nobody_writes_is_found() {
    finds(Race::RestUnseen, fast_peer);
}
