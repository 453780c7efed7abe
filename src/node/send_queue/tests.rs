//! The send queue of a control link: its order, its bound, its end, and the thread that writes.

use super::*;
use crate::link::{ControlReceiver, control_link};
use crate::wire::Decode;

/// A queue with its writer task, which is not run yet, and the receiver.
fn send_queue() -> (QueueOwner, impl Future<Output = ()> + Send, ControlReceiver) {
    let ((half, _), (_, heard)) = control_link();
    let (line, task) = SendQueue::open(half, Mutation::NONE);
    (line, task, heard)
}

async fn next(heard: &mut ControlReceiver) -> Option<u64> {
    let bytes = heard.recv().await.ok()?;
    match Message::from_bytes(&bytes) {
        Ok(Message::Ping(number)) => Some(number),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whoever_speaks_writes_and_waits_for_no_task() {
    let (line, _task, mut heard) = send_queue();
    assert!(line.send_queue().push(Message::Ping(1)) && line.send_queue().push(Message::Ping(2)));
    assert_eq!(line.send_queue().waiting(), 2);
    line.send_queue().write();
    assert_eq!(line.send_queue().waiting(), 0);
    assert_eq!((next(&mut heard).await, next(&mut heard).await), (Some(1), Some(2)));
}

/// More than a link can have in flight.
const MANY: u64 = WAITING_MAX as u64;

#[tokio::test]
async fn what_the_peer_does_not_take_is_written_by_the_task_in_order_and_before_the_link_ends() {
    let (line, task, mut heard) = send_queue();
    assert!((0..MANY).all(|number| line.send_queue().push(Message::Ping(number))));
    line.send_queue().write();
    let waits = line.send_queue().waiting() as u64;
    assert!(0 < waits && waits < MANY, "{waits} wait");
    assert!(line.send_queue().push(Message::Ping(MANY)));
    line.send_queue().write();
    let send_queue = Arc::clone(line.send_queue());
    drop(line);
    assert!(!send_queue.push(Message::Ping(0)), "it has ended");
    let all = async {
        let mut all = Vec::new();
        while let Some(number) = next(&mut heard).await {
            all.push(number);
        }
        all
    };
    let ((), all) = tokio::join!(task, all);
    assert!(all.iter().copied().eq(0..=MANY), "{} came", all.len());
}

#[tokio::test]
async fn a_message_that_is_refused_is_the_last_one_that_a_link_is_asked_to_carry() {
    let (line, task, mut heard) = send_queue();
    assert!(
        (0..MANY).all(|number| line.send_queue().push(Message::Ping(number)))
            && !line.send_queue().has_overrun()
    );
    assert!(!line.send_queue().push(Message::Ping(MANY)) && line.send_queue().has_overrun());
    let task = tokio::spawn(task);
    line.send_queue().wake();
    for number in 0..MANY {
        assert_eq!(next(&mut heard).await, Some(number));
    }
    // There is room again, but a later message would arrive without the refused one.
    assert_eq!(line.send_queue().waiting(), 0);
    assert!(!line.send_queue().push(Message::Ping(MANY + 1)) && line.send_queue().has_overrun());
    drop(line);
    task.await.expect("it ends");
    assert_eq!(next(&mut heard).await, None);
}

#[tokio::test]
async fn all_that_has_been_said_before_is_taken_and_leaves_room_for_what_is_new() {
    let (line, task, mut heard) = send_queue();
    assert!((0..2 * MANY).all(|number| line.send_queue().push_again(Message::Ping(number))));
    assert!((2 * MANY..3 * MANY).all(|number| line.send_queue().push(Message::Ping(number))));
    assert!(!line.send_queue().has_overrun());
    drop(line);
    let all = async {
        for number in 0..3 * MANY {
            assert_eq!(next(&mut heard).await, Some(number));
        }
        next(&mut heard).await
    };
    assert_eq!(tokio::join!(task, all), ((), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_threads_say_at_once_comes_in_the_order_of_each() {
    const THREADS: u64 = 4;
    let (line, task, mut heard) = send_queue();
    let task = tokio::spawn(task);
    let speaking: Vec<_> = (0..THREADS)
        .map(|thread| {
            let send_queue = Arc::clone(line.send_queue());
            std::thread::spawn(move || {
                for number in 0..MANY / THREADS {
                    assert!(send_queue.push(Message::Ping(number * THREADS + thread)));
                    if thread == 0 { send_queue.wake() } else { send_queue.write() }
                }
            })
        })
        .collect();
    let mut expected = [0; THREADS as usize];
    for _ in 0..MANY {
        let number = next(&mut heard).await.expect("it is not over");
        let (thread, place) = (number % THREADS, number / THREADS);
        assert_eq!(place, expected[thread as usize], "of thread {thread}");
        expected[thread as usize] += 1;
    }
    speaking.into_iter().for_each(|thread| thread.join().expect("it has said all"));
    drop(line);
    task.await.expect("it ends");
    assert_eq!(next(&mut heard).await, None);
}

#[tokio::test]
async fn a_link_that_fails_takes_nothing_more_and_its_task_ends() {
    for writes_itself in [true, false] {
        let (line, task, heard) = send_queue();
        drop(heard);
        assert!(line.send_queue().push(Message::Ping(1)));
        let task = tokio::spawn(task);
        if writes_itself {
            line.send_queue().write();
        } else {
            line.send_queue().wake();
        }
        task.await.expect("it ends");
        assert!(!line.send_queue().push(Message::Ping(2)));
        assert_eq!(line.send_queue().waiting(), 0);
    }
}

#[tokio::test]
async fn a_task_that_is_dropped_half_way_ends_the_link() {
    let (line, task, _heard) = send_queue();
    assert!((0..MANY).all(|number| line.send_queue().push(Message::Ping(number))));
    tokio::select! {
        () = task => panic!("the peer takes nothing"),
        () = async {
            while line.send_queue().waiting() == WAITING_MAX {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert!(!line.send_queue().push(Message::Ping(MANY)));
    assert_eq!(line.send_queue().waiting(), 0);
}
