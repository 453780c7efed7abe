//! The ring in shared memory: order, the end of either side, and impossible counters.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

struct Alive;

impl Liveness for Alive {
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    fn look(&self) -> io::Result<()> {
        Ok(())
    }
}

fn ring() -> (SharedRing, SharedRing) {
    let made = SharedRing::make().expect("memory");
    let opened = SharedRing::open(made.name().expect("a name")).expect("the same ring");
    (made, opened)
}

#[test]
fn bytes_arrive_in_order_whatever_the_pieces() {
    let (writer, reader) = ring();
    let total = 9 * ROOM as usize + 12_345;
    let byte = |at: usize| (at * 31 + at / 256) as u8;
    let writing = std::thread::spawn(move || {
        let (mut rng, mut sent) = (SmallRng::seed_from_u64(1), 0);
        while sent < total {
            let len = rng.random_range(1..200_000).min(total - sent);
            let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
            let mut left = &bytes[..];
            while !left.is_empty() {
                left = &left[writer.write(&[IoSlice::new(left)], &Alive).expect("written")..];
            }
            sent += len;
        }
        writer.end(Side::Writer);
    });
    let (mut rng, mut at) = (SmallRng::seed_from_u64(2), 0);
    loop {
        let (mut one, mut two) =
            (vec![0; rng.random_range(0..90_000)], vec![0; rng.random_range(1..90_000)]);
        let parts = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        let read = reader.read(parts, &Alive).expect("read");
        if read == 0 {
            break;
        }
        for got in one.iter().chain(&two).take(read) {
            assert_eq!(*got, byte(at), "byte {at}");
            at += 1;
        }
    }
    assert_eq!(at, total);
    writing.join().expect("no panic");
}

#[test]
fn a_reader_that_ends_ends_the_writer() {
    let (writer, reader) = ring();
    let writing = std::thread::spawn(move || {
        loop {
            if let Err(error) = writer.write(&[IoSlice::new(&[0; 1000])], &Alive) {
                return error.kind();
            }
        }
    });
    reader.end(Side::Reader);
    assert_eq!(writing.join().expect("no panic"), io::ErrorKind::NotConnected);
}

#[test]
fn a_side_that_waits_notices_that_the_other_process_has_ended() {
    struct Ends(Arc<AtomicBool>);
    impl Liveness for Ends {
        fn check(&self) -> io::Result<()> {
            Ok(())
        }

        fn look(&self) -> io::Result<()> {
            if self.0.load(Ordering::Acquire) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        }
    }
    let (writer, reader) = ring();
    let ended = Arc::new(AtomicBool::new(false));
    let (of_reader, of_writer) = (Ends(Arc::clone(&ended)), Ends(Arc::clone(&ended)));
    let reading =
        std::thread::spawn(move || reader.read(&mut [IoSliceMut::new(&mut [0; 10])], &of_reader));
    ended.store(true, Ordering::Release);
    let error = reading.join().expect("no panic").expect_err("nothing came");
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    let error = loop {
        if let Err(error) = writer.write(&[IoSlice::new(&[0; 100_000])], &of_writer) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn counters_that_cannot_be_are_errors() {
    let (writer, reader) = ring();
    writer.counter(Side::Writer).store(ROOM + 1, Ordering::Release);
    let error =
        reader.read(&mut [IoSliceMut::new(&mut [0; 10])], &Alive).expect_err("more than fits");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let (writer, reader) = ring();
    reader.counter(Side::Reader).store(1, Ordering::Release);
    let error =
        writer.write(&[IoSlice::new(&[0; 10])], &Alive).expect_err("read before it was written");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}
