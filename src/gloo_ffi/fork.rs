//! A demultiplexer: splits one data link into two. The header of each frame decides which of the
//! two receives it; both may send.
//!
//! Sending is fair: each end waits for at most one frame of the other, even if that one has a
//! backlog. There is no reader thread. The end that received the last frame keeps the link and
//! reads on until a frame for the other end arrives; then it hands the link over. While all frames
//! are for one end, reading takes no lock and no change of thread.

use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown};
use parking_lot::FairMutex;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Splits `link` into two ends: the first one receives the frames for which `is_for_first` holds,
/// the second one all others. The frames of one end keep their order. On the wire, the frames of
/// both ends are in the order in which they were sent. A frame that its end does not read blocks
/// the frames of the other end behind it (head-of-line blocking).
///
/// *Failure.* The [`Shutdown`] of either end ends the link for both; so does an error of either
/// receiver, and dropping either receiver.
pub fn fork(
    link: Box<dyn DataLink>,
    is_for_first: fn(&DataHeader) -> bool,
) -> [Box<dyn DataLink>; 2] {
    let (sender, receiver, shutdown) = link.split();
    let sender = Arc::new(FairMutex::new(sender));
    let reading = Reading { idle: Some(receiver), header: None, is_over: false };
    let hands = Arc::new(Hands {
        is_for_first,
        shutdown,
        reading: Mutex::new(reading),
        changed: Condvar::new(),
    });
    [true, false].map(|is_first| {
        let receiver = BranchReceiver { hands: Arc::clone(&hands), is_first, held: None };
        Box::new(Branch { sender: BranchSender(Arc::clone(&sender)), receiver })
            as Box<dyn DataLink>
    })
}

/// One of the two ends.
struct Branch {
    sender: BranchSender,
    receiver: BranchReceiver,
}

/// The shared sender. The lock must be fair: with an unfair one, a thread with a backlog would
/// retake it right after the release and starve the other end on a slow link.
struct BranchSender(Arc<FairMutex<Box<dyn DataSender>>>);

struct BranchReceiver {
    hands: Arc<Hands>,
    is_first: bool,
    /// The receiving half, while this end holds it.
    held: Option<Box<dyn DataReceiver>>,
}

/// The shared state by which the receiving half passes between the ends.
struct Hands {
    is_for_first: fn(&DataHeader) -> bool,
    shutdown: Arc<dyn Shutdown>,
    reading: Mutex<Reading>,
    changed: Condvar,
}

/// The place of the receiving half:
///
/// ```text
/// idle   header    state                               next owner
/// Some   None      before the first frame              the first end that asks
/// None   None      one end holds it and reads          unknown until `hand_over`
/// Some   Some(h)   waits for the end that `h` is for   that end, by `take`
/// ```
///
/// `is_over` ends every wait.
struct Reading {
    /// The receiving half, while no end holds it.
    idle: Option<Box<dyn DataReceiver>>,
    /// The last header read, for which `idle` waits to be taken. `None` before the first frame and
    /// while an end holds the receiving half.
    header: Option<DataHeader>,
    is_over: bool,
}

impl DataLink for Branch {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let Branch { sender, receiver } = *self;
        let shutdown = Arc::clone(&receiver.hands.shutdown);
        (Box::new(sender), Box::new(receiver), shutdown)
    }
}

impl DataSender for BranchSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        self.0.lock().send(header, payload)
    }
}

impl Hands {
    fn lock(&self) -> MutexGuard<'_, Reading> {
        // Every critical section leaves the state consistent.
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this end may hold the receiving half; also returns the header that the other end
    /// read for it, if any.
    fn take(&self, is_first: bool) -> io::Result<(Box<dyn DataReceiver>, Option<DataHeader>)> {
        let mut reading = self.lock();
        loop {
            if reading.is_over {
                return Err(io::ErrorKind::NotConnected.into());
            }
            if reading.header.is_none_or(|header| (self.is_for_first)(&header) == is_first)
                && let Some(link) = reading.idle.take()
            {
                return Ok((link, reading.header.take()));
            }
            reading = self.changed.wait(reading).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes the receiving half to the other end, for which `header` is.
    fn hand_over(&self, link: Box<dyn DataReceiver>, header: DataHeader) {
        let mut reading = self.lock();
        (reading.idle, reading.header) = (Some(link), Some(header));
        drop(reading);
        self.changed.notify_all();
    }

    fn end(&self) {
        self.shutdown.shutdown();
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}

impl DataReceiver for BranchReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        loop {
            let (mut link, read) = match self.held.take() {
                Some(link) => (link, None),
                None => self.hands.take(self.is_first)?,
            };
            let header = match read {
                Some(header) => header,
                None => link.header().inspect_err(|_| self.hands.end())?,
            };
            if (self.hands.is_for_first)(&header) == self.is_first {
                self.held = Some(link);
                return Ok(header);
            }
            self.hands.hand_over(link, header);
        }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        let link = self.held.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        link.payload(into).inspect_err(|_| self.hands.end())
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        let link = self.held.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        link.skip(len).inspect_err(|_| self.hands.end())
    }
}

impl Drop for BranchReceiver {
    fn drop(&mut self) {
        self.hands.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Phase, memory, sealed_tcp, tcp};
    use crate::memory::Pool;
    use crate::protocol::{Lane, OpId};
    use proptest::prelude::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    fn is_reduce(header: &DataHeader) -> bool {
        header.phase == Phase::Reduce
    }

    fn header(is_first: bool, number: u32, len: usize) -> DataHeader {
        let phase = if is_first { Phase::Reduce } else { Phase::Message };
        DataHeader {
            op: OpId { lane: Lane::MAIN, number: 1 },
            flow: 0,
            chunk: number,
            phase,
            len: len as u32,
        }
    }

    type Halves = (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>);

    fn forked(link: Box<dyn DataLink>) -> [Halves; 2] {
        fork(link, is_reduce).map(DataLink::split)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Both ends send frames of any lengths in any order at once: each frame arrives once,
        /// whole, at its end, and in order.
        #[test]
        fn each_end_gets_its_own_frames(turns in proptest::collection::vec((any::<bool>(), 0usize..50_000), 1..60), wire in 0..3) {
            let (near, far) = [memory, tcp, sealed_tcp][wire as usize]();
            let expected = [true, false].map(|first| turns.iter().filter(|(is_first, _)| *is_first == first).map(|(_, len)| *len).collect::<Vec<_>>());
            let senders = forked(near);
            let receivers = forked(far);
            let (tell, all_read) = mpsc::channel();
            thread::scope(|scope| {
                let mut kept = Vec::new();
                for (((mut sender, receiver, _), lens), is_first) in senders.into_iter().zip(expected.clone()).zip([true, false]) {
                    scope.spawn(move || {
                        for (number, len) in lens.into_iter().enumerate() {
                            sender.send(&header(is_first, number as u32, len), &vec![number as u8; len]).expect("sent");
                        }
                    });
                    kept.push(receiver);
                }
                for (((_, mut receiver, _), lens), is_first) in receivers.into_iter().zip(expected).zip([true, false]) {
                    let tell = tell.clone();
                    scope.spawn(move || {
                        for (number, len) in lens.into_iter().enumerate() {
                            let (came, block) = receiver.recv(&Pool::new()).expect("a frame");
                            assert_eq!(came, header(is_first, number as u32, len));
                            assert!(block.bytes().iter().all(|byte| *byte == number as u8));
                        }
                        tell.send(()).expect("somebody listens");
                        // Read on, as an engine does: this end may have to pass on frames of the
                        // other one.
                        receiver.header().expect_err("nothing more comes");
                    });
                }
                drop(tell);
                all_read.iter().take(2).for_each(drop);
                drop(kept);
            });
        }
    }

    /// A sender that takes 1 ms per frame and reports each header.
    struct Slow(mpsc::Sender<DataHeader>);

    impl DataSender for Slow {
        fn send(&mut self, header: &DataHeader, _: &[u8]) -> io::Result<()> {
            thread::sleep(Duration::from_millis(1));
            self.0.send(*header).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn both_send_in_turns_however_much_each_has() {
        let (tell, sent) = mpsc::channel();
        let slow: Arc<FairMutex<Box<dyn DataSender>>> =
            Arc::new(FairMutex::new(Box::new(Slow(tell))));
        for is_first in [true, false] {
            let mut sender = BranchSender(Arc::clone(&slow));
            thread::spawn(move || while sender.send(&header(is_first, 0, 0), &[]).is_ok() {});
        }
        drop(slow);
        let mut frames = sent.iter().map(|header| is_reduce(&header));
        // Count only after both ends have begun.
        let first = frames.next();
        assert!(frames.by_ref().any(|is_first| Some(is_first) != first));
        let firsts = frames.take(200).filter(|is_first| *is_first).count();
        // Without turns one end sends nearly all of them. A thread that the system does not run
        // misses some of its turns.
        assert!((50..=150).contains(&firsts), "{firsts} of 200 frames");
    }

    #[test]
    fn who_waits_for_a_turn_hears_of_the_end() {
        let (near, far) = memory();
        let (mut sender, _receiver, _) = far.split();
        let [(_, mut first, _), (_, mut second, _)] = forked(near);
        sender.send(&header(true, 0, 3), b"abc").expect("sent");
        // The first end holds the receiving half, and has not read its frame's payload.
        first.header().expect("its frame");
        let waiting = thread::spawn(move || second.header().expect_err("nothing comes").kind());
        drop(first);
        assert_eq!(waiting.join().expect("it ends"), io::ErrorKind::NotConnected);
    }

    #[test]
    fn the_end_of_one_is_the_end_of_the_other() {
        for ends in [memory, tcp, sealed_tcp] {
            for shuts in [true, false] {
                let (near, _far) = ends();
                let [(_, first, shutdown), (_, mut second, _)] = forked(near);
                let waiting =
                    thread::spawn(move || second.header().expect_err("nothing comes").kind());
                if shuts {
                    shutdown.shutdown();
                } else {
                    drop(first);
                }
                waiting.join().expect("it ends");
            }
        }
    }

    #[test]
    fn a_frame_waits_for_its_reader() {
        let (near, far) = memory();
        let (mut sender, receiver, _) = far.split();
        let [(_, mut first, _), (_, mut second, _)] = forked(near);
        sender.send(&header(false, 7, 3), b"abc").expect("sent");
        sender.send(&header(true, 8, 0), &[]).expect("sent");
        let early = thread::spawn(move || (first.header().expect("its frame"), first));
        let mut bytes = [0; 3];
        assert_eq!(second.header().expect("its frame"), header(false, 7, 3));
        second.payload(&mut bytes).expect("its bytes");
        let rest = thread::spawn(move || second.header());
        assert_eq!((&bytes, early.join().expect("read").0), (b"abc", header(true, 8, 0)));
        drop((sender, receiver));
        assert!(rest.join().expect("it ends").is_err());
    }
}
