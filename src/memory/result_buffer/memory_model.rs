//! The buffer of a result in all orders of a few threads and of their memory accesses (`make
//! threads`, with loom).
//!
//! References are counted by `std`, of which loom sees nothing.

use super::schedules::{result_buffer, write_or_read};
use super::*;
use crate::os::{Race, model};
use crate::sim::{name, text_of};

/// Two threads race for two parts while a third one reads: each part is written once, and every
/// read is ordered after the write.
fn race_for_parts() {
    let result_buffer = result_buffer();
    let others: Vec<_> = (1..=2)
        .map(|mark| {
            let result_buffer = Arc::clone(&result_buffer);
            loom::thread::spawn(move || {
                let parts = if mark == 1 { [0, 1] } else { [1, 0] };
                parts.into_iter().filter(|part| write_or_read(&result_buffer, *part, mark)).count()
            })
        })
        .collect();
    let read = result_buffer.landed(0..4).map(<[u8]>::to_vec);
    let written: usize = others.into_iter().map(|other| other.join().expect("no panic")).sum();
    assert_eq!(written, 2);
    let all = result_buffer.landed(0..4).expect("all has landed");
    assert!(read.is_none_or(|read| read == all));
}

/// A part is given back and claimed by another thread: the writes of both are ordered.
fn give_back() {
    let result_buffer = result_buffer();
    let giving = {
        let result_buffer = Arc::clone(&result_buffer);
        loom::thread::spawn(move || {
            let Some(mut writer) = result_buffer.claim(0) else { return };
            writer.bytes_mut().fill(1);
            writer.give_back();
        })
    };
    let written = result_buffer.claim(0).map(|mut writer| {
        writer.bytes_mut().fill(2);
        writer.land()
    });
    giving.join().expect("no panic");
    if let Some(piece) = written {
        assert_eq!(piece.bytes(), [2; 2]);
    }
}

fn holds(run: fn()) {
    println!("threads: {}: {} schedules hold", name(), model(run));
}

/// Requires that loom finds a seeded race.
fn finds(race: Race, run: fn()) {
    let modelled = std::thread::spawn(move || race.seeded(|| model(run)));
    let Err(panic) = modelled.join() else { panic!("{race:?} is not found") };
    println!("threads: found {race:?} by loom: {}", text_of(panic.as_ref()));
}

#[test]
fn a_part_is_written_once_and_read_after_that() {
    holds(race_for_parts);
}

#[test]
fn a_part_that_is_given_back_is_written_anew() {
    holds(give_back);
}

#[test]
fn a_claim_in_two_steps_is_found() {
    finds(Race::ClaimInTwoSteps, race_for_parts);
}

#[test]
fn a_landing_without_order_is_found() {
    finds(Race::UnorderedLanding, race_for_parts);
    finds(Race::UnorderedLanding, give_back);
}
