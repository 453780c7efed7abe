//! One connection of a data link. It carries the frames of operations and, between them, bursts,
//! which measure the rate of its path.
//!
//! A burst is sent by its own thread while no operation runs. It ends when its receiver has seen
//! enough, or when this node begins an operation, or when a frame of one passes over any data link
//! of this node. Its frames have their own lane and are filtered out here, so no engine sees them.
//!
//! Only so much of a burst is on its way as the path carries in [`WINDOW`]: on a slow path, the
//! rest would be in the way of the next operation, and of the control link, which has the same
//! path.
//!
//! Bursts that are measured together all last their full time. On a shared medium one of them may
//! get nearly everything at first. If that one ended as soon as it could, the others would be
//! measured alone, and the medium would seem not to be shared.

use super::reports::Reports;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Phase, Shutdown};
use crate::node::coding_speed;
use crate::os::{Mutex, lock, thread};
use crate::protocol::{Lane, OpId, RateStep};
use crate::topology::Burst;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest duration of a burst, which matters on slow paths.
const BURST_MAX: Duration = Duration::from_millis(400);

/// The part of a burst that may be on its way: the data that the path has carried in this time, and
/// at least [`WINDOW_BYTES_MIN`], which is 2 ms at 1 Gbit/s, and a third of a second at 5 Mbit/s.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_BYTES_MIN: usize = 192 * 1024;
/// How often a burst looks whether its window has room: a fast path takes longer for half of it.
const WINDOW_POLL: Duration = Duration::from_micros(50);

/// The kind of a burst frame, in the header's `flow`.
const FRAME: u32 = 0;
const END: u32 = 1;
/// In the `chunk` of an END frame: an operation came between.
const DISTURBED: u32 = 1;

/// A connection, without its receiving half.
pub struct Connection {
    /// Locked while a frame is sent.
    pub(super) outgoing: Mutex<Outgoing>,
    /// Ends both halves at once.
    pub(super) shutdown: Arc<dyn Shutdown>,
    pub(super) reports: Reports,
    enough: AtomicBool,
    running: AtomicBool,
}

/// The sending half.
pub enum Outgoing {
    Open(Box<dyn DataSender>),
    /// The direction has moved to this connection.
    Moved(Arc<Connection>),
    /// Its user has dropped it.
    Closed,
}

/// The receiving half, without the frames of bursts.
pub struct Incoming {
    pub(super) link: Box<dyn DataReceiver>,
    pub(super) connection: Arc<Connection>,
    burst: Burst,
    told_enough: bool,
    began: Instant,
    scratch: Vec<u8>,
}

/// Sends bursts over one connection.
pub struct Bursts(pub(super) Arc<Connection>);

impl Connection {
    pub(super) fn new(link: Box<dyn DataLink>, reports: Reports) -> (Arc<Connection>, Incoming) {
        let (sender, receiver, shutdown) = link.split();
        let connection = Arc::new(Connection {
            outgoing: Mutex::new(Outgoing::Open(sender)),
            shutdown,
            reports,
            enough: AtomicBool::new(false),
            running: AtomicBool::new(false),
        });
        let incoming = Incoming {
            link: receiver,
            connection: Arc::clone(&connection),
            burst: Burst::default(),
            told_enough: false,
            began: Instant::now(),
            scratch: Vec::new(),
        };
        (connection, incoming)
    }

    /// Calls `with` with the sending half that the direction uses now; `at` follows its moves.
    pub(super) fn in_use<T>(at: &mut Arc<Connection>, with: impl FnOnce(&mut Outgoing) -> T) -> T {
        loop {
            let mut outgoing = lock(&at.outgoing);
            let Outgoing::Moved(next) = &*outgoing else { return with(&mut outgoing) };
            let next = Arc::clone(next);
            drop(outgoing);
            *at = next;
        }
    }

    /// Drops the sending half that the direction uses now.
    pub(super) fn close(at: &mut Arc<Connection>) {
        let close = |outgoing: &mut Outgoing| std::mem::replace(outgoing, Outgoing::Closed);
        // Dropped outside of the lock, because that ends a stream.
        drop(Connection::in_use(at, close));
    }

    /// Sends frames until the receiver has seen enough, or, `to_the_end`, for the whole time.
    fn burst(&self, longest: Duration, to_the_end: bool) {
        // The result is reported with the rate, and nothing else runs at this moment.
        coding_speed::measure();
        let traffic = &self.reports.traffic;
        let (began, before) = (Instant::now(), traffic.counted());
        let payload = vec![0; Burst::FRAME_BYTES];
        let mut number = 0;
        loop {
            let is_seen = self.enough.load(Ordering::Acquire) || number >= Burst::FRAMES_MAX as u32;
            if is_seen && !to_the_end || traffic.counted() != before || began.elapsed() > longest {
                break;
            }
            let frame = link_frame(Lane::BURSTS, FRAME, number, Burst::FRAME_BYTES as u32);
            let mut outgoing = lock(&self.outgoing);
            let sent = number as usize * Burst::FRAME_BYTES;
            if is_window_full(sent, outgoing.unacknowledged_bytes(), began.elapsed()) {
                drop(outgoing);
                thread::sleep(WINDOW_POLL);
                continue;
            }
            if outgoing.send(&frame, &payload).is_err() {
                return;
            }
            number += 1;
        }
        let disturbed = if traffic.counted() == before { 0 } else { DISTURBED };
        // An error ends the link, and its receiver reports that.
        let _ = lock(&self.outgoing).send(&link_frame(Lane::BURSTS, END, disturbed, 0), &[]);
    }
}

/// Whether a burst waits before its next frame: so many bytes were sent so far, in this time, and
/// so many of them the peer does not have yet.
fn is_window_full(sent: usize, unacknowledged: usize, took: Duration) -> bool {
    let carried = sent.saturating_sub(unacknowledged);
    let window = carried as f64 * (WINDOW.as_secs_f64() / took.as_secs_f64().max(1e-6));
    // At first a path may carry a burst that a shaper has saved up, or that a middlebox buffers: as
    // in the slow start of TCP, the window grows with the carried data.
    let window = (window as usize).min(2 * carried);
    unacknowledged + Burst::FRAME_BYTES > WINDOW_BYTES_MIN.max(window)
}

impl Outgoing {
    pub(super) fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
        match self {
            Outgoing::Open(sender) => sender.send(header, payload),
            Outgoing::Moved(_) | Outgoing::Closed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn unacknowledged_bytes(&self) -> usize {
        match self {
            Outgoing::Open(sender) => sender.unacknowledged_bytes(),
            Outgoing::Moved(_) | Outgoing::Closed => 0,
        }
    }
}

/// The header of a frame that belongs to no operation, as its lane tells.
pub(super) const fn link_frame(lane: Lane, flow: u32, chunk: u32, len: u32) -> DataHeader {
    DataHeader { op: OpId { lane, number: 0 }, flow, chunk, phase: Phase::Message, len }
}

impl Bursts {
    /// Starts a burst on a new thread, unless one is running. One that is measured together with
    /// others lasts its full time.
    pub fn begin(&self, is_together: bool) {
        if self.0.running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.enough.store(false, Ordering::Release);
        let connection = Arc::clone(&self.0);
        let burst = move || {
            connection.burst(BURST_MAX, is_together);
            connection.running.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("potluck-burst".to_owned()).spawn(burst).is_err() {
            self.0.running.store(false, Ordering::Release);
        }
    }

    /// Ends the running burst: its receiver has seen enough.
    pub fn end(&self) {
        self.0.enough.store(true, Ordering::Release);
    }
}

impl Incoming {
    /// The header of the next frame that is not a burst's, as [`DataReceiver::header`].
    pub(super) fn header(&mut self) -> io::Result<DataHeader> {
        loop {
            let header = self.link.header()?;
            if header.op.lane != Lane::BURSTS {
                self.connection.reports.traffic.count();
                return Ok(header);
            }
            self.take(&header)?;
        }
    }

    fn take(&mut self, header: &DataHeader) -> io::Result<()> {
        let len = header.len as usize;
        if len > Burst::FRAME_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.scratch.resize(len, 0);
        self.link.payload(&mut self.scratch)?;
        if header.flow == END {
            // Taken in any case: a burst without frames must not report its predecessor's rate.
            let (burst, told_enough) =
                (std::mem::take(&mut self.burst), std::mem::take(&mut self.told_enough));
            let counts = header.chunk != DISTURBED || told_enough;
            self.connection
                .reports
                .burst(RateStep::Timed(burst.kbps().filter(|_| counts).unwrap_or(0)));
            return Ok(());
        }
        let now_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        if self.burst.frame(now_us, len) {
            self.told_enough = true;
            self.connection.reports.burst(RateStep::Enough);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::data_pair;
    use std::sync::atomic::AtomicUsize;
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

    fn begun(to_the_end: bool) -> (Arc<Connection>, Receiver<u32>, JoinHandle<()>) {
        let (into, frames) = sync_channel(0);
        let (connection, _) = Connection::new(data_pair().0, Reports::to_test().0);
        *lock(&connection.outgoing) = Outgoing::Open(Box::new(Stepped(into)));
        let sending = Arc::clone(&connection);
        let burst = move || sending.burst(LONGEST, to_the_end);
        (connection, frames, std::thread::spawn(burst))
    }

    /// The kinds of the frames that are still sent.
    fn rest(frames: &Receiver<u32>) -> Vec<u32> {
        frames.iter().take_while(|kind| *kind != END).collect()
    }

    #[test]
    fn the_window_of_a_burst_is_what_its_path_carries_in_a_tenth_of_a_second() {
        let full = |sent, unacknowledged, ms| {
            is_window_full(sent, unacknowledged, Duration::from_millis(ms))
        };
        let (frame, kib) = (Burst::FRAME_BYTES, 1024);
        // 5 Mbit/s: 250 KB in 400 ms.
        assert!(!full(160 * kib, 160 * kib, 0) && full(192 * kib, 192 * kib, 0));
        assert!(!full(410_000, 160_000, 400) && full(450_000, 200_000, 400));
        // 1 Gbit/s with 5 ms of delay needs 625 KB on their way.
        assert!(!full(1_250_000, 625_000, 10) && !full(450_000, 300_000 - frame, 5));
        // 100 KB of saved tokens, which are carried at once.
        assert!(full(100_000 + 200_000, 200_000, 8));
        assert!(!full(50_000_000, 9_900_000, 400) && full(50_000_000, 11_000_000, 400));
    }

    #[test]
    fn a_burst_waits_until_its_path_has_carried_something() {
        let (into, frames) = sync_channel(WINDOW_BYTES_MIN / Burst::FRAME_BYTES + 1);
        let (connection, _) = Connection::new(data_pair().0, Reports::to_test().0);
        let unacknowledged = Arc::new(AtomicUsize::new(0));
        let sender = Uncarried { frames: into, unacknowledged: Arc::clone(&unacknowledged) };
        *lock(&connection.outgoing) = Outgoing::Open(Box::new(sender));
        let sending = Arc::clone(&connection);
        let thread = std::thread::spawn(move || sending.burst(LONGEST, true));
        let of_window = WINDOW_BYTES_MIN / Burst::FRAME_BYTES;
        (0..of_window).for_each(|_| assert_eq!(frames.recv(), Ok(FRAME)));
        // Nothing follows, however long one waits, until the path has carried a frame.
        assert!(frames.recv_timeout(Duration::from_millis(20)).is_err());
        unacknowledged.fetch_sub(Burst::FRAME_BYTES, Ordering::Relaxed);
        assert_eq!(frames.recv(), Ok(FRAME));
        connection.reports.traffic.count();
        assert!(rest(&frames).is_empty());
        thread.join().expect("no panic");
    }

    /// A path that carries nothing by itself.
    struct Uncarried {
        frames: SyncSender<u32>,
        unacknowledged: Arc<AtomicUsize>,
    }

    impl DataSender for Uncarried {
        fn send(&mut self, header: &DataHeader, payload: &[u8]) -> io::Result<()> {
            self.unacknowledged.fetch_add(payload.len(), Ordering::Relaxed);
            self.frames.send(header.flow).map_err(|_| io::ErrorKind::NotConnected.into())
        }

        fn unacknowledged_bytes(&self) -> usize {
            self.unacknowledged.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_burst_ends_when_its_receiver_has_seen_enough() {
        let (connection, frames, thread) = begun(false);
        assert_eq!(frames.recv(), Ok(FRAME));
        connection.enough.store(true, Ordering::Release);
        // One may have been under way.
        assert!(rest(&frames).len() <= 1);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_burst_beside_others_goes_on_when_its_receiver_has_seen_enough() {
        let (connection, frames, thread) = begun(true);
        connection.enough.store(true, Ordering::Release);
        for _ in 0..2 * Burst::FRAMES_MAX {
            assert_eq!(frames.recv(), Ok(FRAME), "it has ended alone");
        }
        connection.reports.traffic.count();
        assert!(rest(&frames).len() <= 1);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_frame_of_an_operation_ends_either() {
        for to_the_end in [false, true] {
            let (connection, frames, thread) = begun(to_the_end);
            assert_eq!(frames.recv(), Ok(FRAME));
            connection.reports.traffic.count();
            assert!(rest(&frames).len() <= 1);
            thread.join().expect("no panic");
        }
    }
}
