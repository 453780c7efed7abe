//! Bursts over data links, beside the engine that uses them: they measure the rate of a path.
//!
//! A burst is sent by its own thread while no operation runs. It ends when its receiver has seen
//! enough, or when a frame of an operation passes over any link of this node. Its frames have their
//! own lane and are filtered out here, so no engine sees them.
//!
//! In an exchange both directions run at once, and neither ends before both receivers have seen
//! enough. On a half-duplex medium one of them may get nearly everything at first. If that one
//! ended as soon as it could, the other one would be measured alone, and the medium would seem to
//! be full duplex.

use super::coding_speed;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown};
use crate::protocol::{Lane, OpId, RateStep};
use crate::topology::Burst;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest duration of a burst, which matters on slow paths.
const BURST_MAX: Duration = Duration::from_millis(400);

/// Counts the operation frames on all data links of this node.
#[derive(Clone, Default)]
pub(super) struct Traffic(Arc<AtomicU64>);

impl Traffic {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends bursts over one data link. Cheap to clone.
#[derive(Clone)]
pub(super) struct Bursts {
    line: Arc<Line>,
}

struct Line {
    /// `None` after the engine has dropped its sender.
    sender: Mutex<Option<Box<dyn DataSender>>>,
    traffic: Traffic,
    enough: AtomicBool,
    /// This end has seen enough of the peer's burst, or it has ended, since the last burst from
    /// here began.
    heard: AtomicBool,
    running: AtomicBool,
}

/// The link as the engine gets it.
struct Shared {
    line: Arc<Line>,
    receiver: SharedReceiver,
    shutdown: Arc<dyn Shutdown>,
}

struct SharedSender(Arc<Line>);

struct SharedReceiver {
    receiver: Box<dyn DataReceiver>,
    line: Arc<Line>,
    traffic: Traffic,
    burst: Burst,
    told_enough: bool,
    began: Instant,
    scratch: Vec<u8>,
    tell: Box<dyn Fn(RateStep) + Send>,
}

/// The kind of a burst frame, in the header's `flow`.
const FRAME: u32 = 0;
const END: u32 = 1;
/// In the `chunk` of an END frame: an operation's frame came between.
const DISTURBED: u32 = 1;

/// A link for an engine, and its bursts. `tell` is called on the receiving thread with the results
/// of a burst from the peer; it must not block.
pub(super) fn with_bursts(
    link: Box<dyn DataLink>,
    traffic: &Traffic,
    tell: Box<dyn Fn(RateStep) + Send>,
) -> (Box<dyn DataLink>, Bursts) {
    let (sender, receiver, shutdown) = link.split();
    let line = Arc::new(Line {
        sender: Mutex::new(Some(sender)),
        traffic: traffic.clone(),
        enough: AtomicBool::new(false),
        heard: AtomicBool::new(false),
        running: AtomicBool::new(false),
    });
    let receiver = SharedReceiver {
        receiver,
        line: Arc::clone(&line),
        traffic: traffic.clone(),
        burst: Burst::default(),
        told_enough: false,
        began: Instant::now(),
        scratch: Vec::new(),
        tell,
    };
    let bursts = Bursts { line: Arc::clone(&line) };
    (Box::new(Shared { line, receiver, shutdown }), bursts)
}

impl Bursts {
    /// Starts a burst on a new thread, unless one is running; in an exchange, `is_exchange`, it
    /// goes on until the peer's burst has been seen too.
    pub(super) fn begin(&self, is_exchange: bool) {
        if self.line.running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.line.enough.store(false, Ordering::Release);
        self.line.heard.store(!is_exchange, Ordering::Release);
        let line = Arc::clone(&self.line);
        let burst = move || {
            line.burst(BURST_MAX);
            line.running.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("potluck-burst".to_owned()).spawn(burst).is_err() {
            self.line.running.store(false, Ordering::Release);
        }
    }

    /// Ends the running burst: its receiver has seen enough.
    pub(super) fn end(&self) {
        self.line.enough.store(true, Ordering::Release);
    }
}

impl Line {
    fn burst(&self, longest: Duration) {
        // The result is reported with the rate, and nothing else runs at this moment.
        coding_speed::measure();
        let (began, before) = (Instant::now(), self.traffic.counted());
        let payload = vec![0; Burst::FRAME_BYTES];
        for number in 0.. {
            let is_seen = self.enough.load(Ordering::Acquire) || number >= Burst::FRAMES_MAX as u32;
            if is_seen && self.heard.load(Ordering::Acquire)
                || self.traffic.counted() != before
                || began.elapsed() > longest
            {
                break;
            }
            if self.send(&header(FRAME, number, Burst::FRAME_BYTES as u32), &payload).is_err() {
                return;
            }
        }
        let disturbed = if self.traffic.counted() == before { 0 } else { DISTURBED };
        // An error ends the link, and its receiver reports that.
        let _ = self.send(&header(END, disturbed, 0), &[]);
    }

    fn send(&self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        self.lock().as_mut().ok_or(io::ErrorKind::NotConnected)?.send(header, payload)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn DataSender>>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn header(flow: u32, chunk: u32, len: u32) -> DataHeader {
    DataHeader {
        op: OpId { lane: Lane::BURSTS, number: 0 },
        flow,
        chunk,
        phase: Phase::Message,
        len,
    }
}

impl DataLink for Shared {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(SharedSender(self.line)), Box::new(self.receiver), self.shutdown)
    }
}

impl DataSender for SharedSender {
    fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        // Counted first, so that a running burst stops after its current frame.
        self.0.traffic.count();
        self.0.send(header, payload)
    }
}

impl Drop for SharedSender {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

impl DataReceiver for SharedReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        loop {
            let header = self.receiver.header()?;
            if header.op.lane != Lane::BURSTS {
                self.traffic.count();
                return Ok(header);
            }
            self.take(&header)?;
        }
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.receiver.payload(into)
    }

    fn skip(&mut self, len: usize) -> io::Result<()> {
        self.receiver.skip(len)
    }
}

impl SharedReceiver {
    fn take(&mut self, header: &DataHeader) -> io::Result<()> {
        let len = header.len as usize;
        if len > Burst::FRAME_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.scratch.resize(len, 0);
        self.receiver.payload(&mut self.scratch)?;
        if header.flow == END {
            // Taken in any case: a burst without frames must not report its predecessor's rate.
            let (burst, told_enough) =
                (std::mem::take(&mut self.burst), std::mem::take(&mut self.told_enough));
            self.line.heard.store(true, Ordering::Release);
            let counts = header.chunk != DISTURBED || told_enough;
            (self.tell)(RateStep::Timed(burst.kbps().filter(|_| counts).unwrap_or(0)));
            return Ok(());
        }
        let now_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let is_enough = self.burst.frame(now_us, len);
        if is_enough || self.burst.is_full() {
            self.line.heard.store(true, Ordering::Release);
        }
        if is_enough {
            self.told_enough = true;
            (self.tell)(RateStep::Enough);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread::JoinHandle;

    /// Hands over each frame's kind when the test asks for it.
    struct Stepped(SyncSender<u32>);

    impl DataSender for Stepped {
        fn send(&mut self, header: &DataHeader, _: &[u8]) -> io::Result<()> {
            self.0.send(header.flow).map_err(|_| io::ErrorKind::NotConnected.into())
        }
    }

    const LONGEST: Duration = Duration::from_secs(3600);

    fn begun(heard: bool) -> (Arc<Line>, Receiver<u32>, JoinHandle<()>) {
        let (into, frames) = sync_channel(0);
        let line = Arc::new(Line {
            sender: Mutex::new(Some(Box::new(Stepped(into)))),
            traffic: Traffic::default(),
            enough: AtomicBool::new(false),
            heard: AtomicBool::new(heard),
            running: AtomicBool::new(true),
        });
        let sending = Arc::clone(&line);
        (line, frames, std::thread::spawn(move || sending.burst(LONGEST)))
    }

    /// The kinds of the frames that are still sent.
    fn rest(frames: &Receiver<u32>) -> Vec<u32> {
        frames.iter().take_while(|kind| *kind != END).collect()
    }

    #[test]
    fn a_burst_ends_when_its_receiver_has_seen_enough() {
        let (line, frames, thread) = begun(true);
        assert_eq!(frames.recv(), Ok(FRAME));
        line.enough.store(true, Ordering::Release);
        // One may have been under way.
        assert!(rest(&frames).len() <= 1);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_burst_of_an_exchange_goes_on_until_the_other_one_has_been_seen() {
        let (line, frames, thread) = begun(false);
        line.enough.store(true, Ordering::Release);
        for _ in 0..2 * Burst::FRAMES_MAX {
            assert_eq!(frames.recv(), Ok(FRAME), "it has ended alone");
        }
        line.heard.store(true, Ordering::Release);
        assert!(rest(&frames).len() <= 1);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_frame_of_an_operation_ends_either() {
        for heard in [false, true] {
            let (line, frames, thread) = begun(heard);
            assert_eq!(frames.recv(), Ok(FRAME));
            line.traffic.count();
            assert!(rest(&frames).len() <= 1);
            thread.join().expect("no panic");
        }
    }
}
