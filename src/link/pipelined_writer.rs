//! Writes sealed records: on the thread that sealed them, or on a second thread while sealing and
//! writing are too much for one core.
//!
//! The sender of a data link seals and then waits in the socket. On a wire as slow as a gigabit it
//! waits nearly all of the time. If the wire is faster than one core can seal and write (with AES,
//! above about 15 Gbit/s), a thread of its own writes the records while the sender seals the next
//! ones. The thread is not used before, because it costs small frames one more change of threads.

use crate::os::has_spare_cores;
use crate::trace;
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

/// The number of threads that a sender may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The sealing thread also writes.
    One,
    /// A second thread writes while the load is high.
    Two,
}

/// The destination of sealed records, and the buffer for the next batch.
pub struct PipelinedWriter<W> {
    to: Arc<Mutex<W>>,
    allowed_threads: Threads,
    load: Load,
    batch: Box<[u8]>,
    writer: Option<Writer>,
}

/// The writer thread, with a fixed set of buffers that circulate.
struct Writer {
    full: SyncSender<Batch>,
    empty: Receiver<Box<[u8]>>,
    /// Empty buffers.
    spare: Vec<Box<[u8]>>,
    thread: JoinHandle<io::Result<()>>,
}

/// The first `filled` bytes of a buffer.
struct Batch {
    bytes: Box<[u8]>,
    filled: usize,
}

/// The share of its recent time that a sender spends sealing: both sums are halved whenever `all`
/// exceeds [`Load::MEMORY`].
#[derive(Debug, Default)]
struct Load {
    sealing: Duration,
    all: Duration,
}

/// Batches besides the one being filled: one is being written, one waits, and one bridges the time
/// until the writer thread gets a core.
const BATCHES: usize = 3;

impl Threads {
    /// The number of threads for this machine's number of cores.
    pub fn of_this_machine() -> Threads {
        if has_spare_cores() { Threads::Two } else { Threads::One }
    }
}

impl<W: Write + Send + 'static> PipelinedWriter<W> {
    /// Makes a writer to `to`, in batches of at most `room` bytes.
    pub fn new(to: W, room: usize, threads: Threads) -> PipelinedWriter<W> {
        PipelinedWriter {
            to: Arc::new(Mutex::new(to)),
            allowed_threads: threads,
            load: Load::default(),
            batch: zeros(room),
            writer: None,
        }
    }

    /// The buffer of the next batch.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.batch
    }

    /// Writes the first `filled` bytes of the buffer after all earlier batches, now or soon. Blocks
    /// while the peer's window is full and all buffers are in use. An error may be that of an
    /// earlier batch, and is final.
    pub fn write(&mut self, filled: usize) -> io::Result<()> {
        let wanted = self.allowed_threads == Threads::Two && self.load.is_high();
        if wanted && self.writer.is_none() {
            // If no thread can be started, this thread goes on writing.
            self.writer = Writer::start(Arc::clone(&self.to), self.batch.len())
                .inspect_err(|error| trace::debug!(%error, "no thread to write for a data link"))
                .ok();
        }
        // Batches in flight on the writer thread go first, to keep the order.
        if self.writer.as_mut().is_some_and(|writer| wanted || writer.is_busy()) {
            return self.hand_over(filled);
        }
        lock(&self.to).write_all(&self.batch[..filled])
    }

    fn hand_over(&mut self, filled: usize) -> io::Result<()> {
        let handed =
            self.writer.as_mut().and_then(|writer| writer.hand_over(&mut self.batch, filled));
        if handed.is_none() {
            self.writer.take().map_or(Ok(()), Writer::end)?;
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(())
    }

    /// Records one piece of work: it took `all`, of which `sealing` was spent sealing.
    pub fn count(&mut self, sealing: Duration, all: Duration) {
        self.load.add(sealing, all);
    }

    /// The destination itself, for frames written without the buffer. Use it only on a writer
    /// whose buffer is never used.
    pub fn by_hand(&self) -> MutexGuard<'_, W> {
        lock(&self.to)
    }
}

/// Writes all batches in flight; that may block as [`PipelinedWriter::write`] does.
impl<W> Drop for PipelinedWriter<W> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.end()
        {
            trace::debug!(%error, "the last of a data link was not written");
        }
    }
}

impl Writer {
    fn start<W: Write + Send + 'static>(to: Arc<Mutex<W>>, room: usize) -> io::Result<Writer> {
        // The capacities equal the number of buffers, so neither channel ever blocks its sender.
        let ((full, written), (done, empty)) =
            (sync_channel::<Batch>(BATCHES), sync_channel(BATCHES));
        let thread = thread::Builder::new().name("potluck-write".to_owned()).spawn(move || {
            for batch in written {
                lock(&to).write_all(&batch.bytes[..batch.filled])?;
                // The writer may have ended.
                let _ = done.send(batch.bytes);
            }
            Ok(())
        })?;
        Ok(Writer { full, empty, spare: (0..BATCHES).map(|_| zeros(room)).collect(), thread })
    }

    /// Whether a batch is in flight.
    fn is_busy(&mut self) -> bool {
        self.spare.extend(self.empty.try_iter());
        self.spare.len() < BATCHES
    }

    /// Takes a full batch and leaves an empty one; `None` if the thread has ended.
    fn hand_over(&mut self, batch: &mut Box<[u8]>, filled: usize) -> Option<()> {
        let empty = match self.spare.pop() {
            Some(empty) => empty,
            None => self.empty.recv().ok()?,
        };
        let bytes = std::mem::replace(batch, empty);
        self.full.send(Batch { bytes, filled }).ok()
    }

    /// Waits until all batches are written; returns the thread's error.
    fn end(self) -> io::Result<()> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

impl Load {
    /// The time span of the average.
    const MEMORY: Duration = Duration::from_millis(20);

    fn add(&mut self, sealing: Duration, all: Duration) {
        self.sealing += sealing;
        self.all += all;
        if self.all > Load::MEMORY {
            self.sealing /= 2;
            self.all /= 2;
        }
    }

    /// Whether the load justifies a thread: sealing takes more than a quarter of the time. If the
    /// sender waits for the wire, sealing takes less.
    fn is_high(&self) -> bool {
        4 * self.sealing > self.all
    }
}

fn zeros(len: usize) -> Box<[u8]> {
    vec![0; len].into_boxed_slice()
}

fn lock<W>(to: &Mutex<W>) -> MutexGuard<'_, W> {
    to.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl<W: Write + Send + 'static> PipelinedWriter<W> {
    /// Allows two threads and records a day of nothing but sealing.
    pub fn press(&mut self) {
        self.allowed_threads = Threads::Two;
        self.count(Duration::from_secs(86_400), Duration::from_secs(86_400));
    }

    /// Waits until all batches are written and returns the destination.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.writer.take().map_or(Ok(()), Writer::end)?;
        let to = Arc::clone(&self.to);
        drop(self);
        Ok(Arc::into_inner(to)
            .expect("the thread has ended")
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// The number of threads besides the caller's.
    pub fn threads(&self) -> usize {
        usize::from(self.writer.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const ROOM: usize = 100;

    /// Reports each write, and waits for permission before it.
    struct Told {
        told: Sender<Vec<u8>>,
        leave: Receiver<io::Result<()>>,
    }

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.leave.recv().unwrap_or(Ok(()))?;
            self.told.send(bytes.to_vec()).expect("somebody listens");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn told() -> (Told, Receiver<Vec<u8>>, Sender<io::Result<()>>) {
        let ((told, seen), (allow, leave)) = (channel(), channel());
        (Told { told, leave }, seen, allow)
    }

    fn put(writer: &mut PipelinedWriter<impl Write + Send + 'static>, n: u8) -> io::Result<()> {
        writer.room()[..=usize::from(n)].fill(n);
        writer.write(usize::from(n) + 1)
    }

    #[test]
    fn all_is_written_in_order_by_whomever() {
        for (threads, pressed) in
            [(Threads::One, true), (Threads::Two, false), (Threads::Two, true)]
        {
            let mut writer = PipelinedWriter::new(Vec::new(), ROOM, threads);
            for n in 0..ROOM as u8 {
                // Pressed only some of the time, so that both threads write in turns.
                if pressed {
                    let sealing = Duration::from_millis(if n / 10 % 2 == 0 { 50 } else { 0 });
                    writer.count(sealing, Duration::from_millis(50));
                }
                put(&mut writer, n).expect("written");
            }
            assert_eq!(writer.threads(), usize::from(threads == Threads::Two && pressed));
            let expected: Vec<u8> =
                (0..ROOM as u8).flat_map(|n| vec![n; usize::from(n) + 1]).collect();
            assert_eq!(writer.into_inner().expect("written"), expected, "{threads:?}");
        }
    }

    #[test]
    fn under_pressure_the_caller_is_not_held_up_until_enough_waits() {
        let (to, seen, allow) = told();
        let mut writer = PipelinedWriter::new(to, ROOM, Threads::Two);
        writer.press();
        // No write is permitted yet.
        (0..BATCHES as u8).for_each(|n| put(&mut writer, n).expect("room enough"));
        let blocked = thread::spawn(move || {
            put(&mut writer, 77).expect("written");
            writer
        });
        assert!(seen.try_recv().is_err());
        allow.send(Ok(())).expect("it waits");
        assert_eq!(seen.recv().expect("written"), [0]);
        let writer = blocked.join().expect("no panic");
        drop(allow);
        drop(writer);
        let rest: Vec<usize> = seen.iter().map(|bytes| bytes.len()).collect();
        assert_eq!(rest, [2, 3, 78], "dropped, it still writes");
    }

    #[test]
    fn an_error_of_the_thread_is_told_to_the_next_and_nothing_is_written_behind_it() {
        let (to, seen, allow) = told();
        let mut writer = PipelinedWriter::new(to, ROOM, Threads::Two);
        writer.press();
        allow.send(Err(io::ErrorKind::BrokenPipe.into())).expect("it waits");
        let error = (0..100).find_map(|n| put(&mut writer, n).err()).expect("an error");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        drop(allow);
        assert!(seen.try_recv().is_err());
    }

    #[test]
    fn a_fourth_of_the_time_is_worth_a_thread() {
        let micros = Duration::from_micros;
        let mut load = Load::default();
        assert!(!load.is_high(), "nothing was sealed");
        // A chunk of 256 KiB on a gigabit wire, on a bus, and on a gigabit wire again.
        for (all, high) in [(2100, false), (100, true), (2100, false)] {
            (0..1000).for_each(|_| load.add(micros(40), micros(all)));
            assert_eq!(load.is_high(), high, "{all} us");
        }
    }
}
