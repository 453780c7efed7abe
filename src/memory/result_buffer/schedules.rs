//! The buffer of a result and the pool in many orders of their threads (`make threads`).
//!
//! References are counted by `std`, in one step each.

use super::super::block::Block;
use super::super::pool::Pool;
use super::*;
use crate::os::Race;
use crate::sim::{explore, finds};
use shuttle::thread;

/// A result of two parts of two bytes, in memory that no pool wants back.
pub(super) fn result_buffer() -> Arc<ResultBuffer> {
    let memory = Memory::of(vec![0u8; 4]);
    ResultBuffer::new(memory, [2, 2].into_iter()).expect("there is memory").expect("they fit")
}

/// Claims a part and writes `mark` to it, or reads the bytes that another thread has written there.
pub(super) fn write_or_read(result_buffer: &Arc<ResultBuffer>, part: usize, mark: u8) -> bool {
    let Some(mut writer) = result_buffer.claim(part) else {
        let read = result_buffer.landed(result_buffer.range(part));
        assert!(read.is_none_or(|bytes| bytes[0] == bytes[1] && bytes[0] != 0));
        return false;
    };
    writer.bytes_mut().fill(mark);
    let piece = writer.land();
    assert_eq!(piece.bytes(), [mark; 2], "written by another one");
    true
}

/// Threads fill a result from a pool, a thread sends its parts, and the caller takes it: its memory
/// is handed out, and used again, only when no thread reads from it.
fn hand_out() {
    let pool = Pool::new();
    let model = Block::lent(Arc::new(vec![0u8; 4]));
    let memory = pool.like(&model).expect("there is memory").expect("bytes are lent");
    let memory = memory.into_memory(&pool).expect("it is owned");
    let result_buffer =
        ResultBuffer::new(memory, [2, 2].into_iter()).expect("there is memory").expect("they fit");
    let sending: Vec<_> = [0, 1]
        .map(|part| {
            let (result_buffer, pool) = (Arc::clone(&result_buffer), pool.clone());
            thread::spawn(move || {
                let mut writer = result_buffer.claim(part).expect("the first");
                drop(result_buffer);
                writer.bytes_mut().fill(7);
                let piece = writer.land();
                drop(pool.block(2));
                assert_eq!(piece.bytes(), [7; 2], "its memory was used again");
            })
        })
        .into();
    let taken = thread::spawn(move || {
        while Block::result(Arc::clone(&result_buffer)).is_none() {
            thread::yield_now();
        }
        let mut result = Block::result(result_buffer).expect("all has landed");
        let mut vec = loop {
            match result.trade::<u8>(Some(vec![9; 4])) {
                Ok(vec) => break vec,
                Err((still_read, _)) => result = still_read,
            }
            thread::yield_now();
        };
        assert_eq!(vec, [7; 4]);
        vec.fill(0);
        vec
    });
    let vec = taken.join().expect("no panic");
    // The memory that was traded in is the next one's.
    let next = pool.like(&model).expect("there is memory").expect("bytes are lent");
    assert!(next.bytes() == [9; 4] && next.bytes().as_ptr() != vec.as_ptr());
    sending.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn memory_is_handed_out_when_nobody_reads_from_it() {
    explore(hand_out);
}

/// Threads race for two parts: each part is written once.
fn race_of_many() {
    let result_buffer = result_buffer();
    let threads: Vec<_> = (1..=4)
        .map(|mark| {
            let result_buffer = Arc::clone(&result_buffer);
            thread::spawn(move || {
                (0..2).filter(|part| write_or_read(&result_buffer, *part, mark)).count()
            })
        })
        .collect();
    let written: usize = threads.into_iter().map(|thread| thread.join().expect("no panic")).sum();
    assert_eq!(written, 2);
}

#[test]
fn parts_that_many_threads_want_are_written_once() {
    explore(race_of_many);
}

#[test]
fn a_claim_in_two_steps_is_found_among_many_threads() {
    finds(Race::ClaimInTwoSteps, race_of_many);
}
