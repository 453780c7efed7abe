//! Layer: Shells.
//!
//! Where sealed records leave: by the thread that sealed them, or by one more while both are too
//! much for one core.
//!
//! The sender of a data link seals and then waits in the socket. On a wire as slow as a gigabit
//! that is nearly all waiting. Where the wire is faster than a core can seal and write (with AES
//! from about 15 Gbit/s on), the records are written by a thread of their own while the next ones
//! are sealed; it is not used before, because what it does, small frames pay for with one more
//! change of threads.

use std::io::{self, Write};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How many threads a sender may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hands {
    /// Who seals also writes.
    One,
    /// One more writes, while that is worth it.
    Two,
}

/// What is written to, and room for what comes next.
pub struct Outlet<W> {
    to: Arc<Mutex<W>>,
    hands: Hands,
    load: Load,
    batch: Box<[u8]>,
    writer: Option<Writer>,
}

/// The thread that writes.
struct Writer {
    full: SyncSender<Batch>,
    empty: Receiver<Box<[u8]>>,
    /// Buffers that are not on their way.
    spare: Vec<Box<[u8]>>,
    thread: JoinHandle<io::Result<()>>,
}

/// So many bytes at the front of a buffer.
struct Batch {
    bytes: Box<[u8]>,
    filled: usize,
}

/// What part of its time a sender seals, of late.
#[derive(Debug, Default)]
struct Load {
    sealing: Duration,
    all: Duration,
}

/// Batches besides the one that is being filled: one is written, one waits, and one covers for a
/// thread that does not get its turn at once.
const BATCHES: usize = 3;

/// Fewer cores are busy with what the links have already: a thread for each direction.
const CORES_FOR_TWO: usize = 4;

impl Hands {
    /// What this machine has cores for.
    pub fn of_this_machine() -> Hands {
        static CORES: LazyLock<usize> =
            LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));
        if *CORES >= CORES_FOR_TWO { Hands::Two } else { Hands::One }
    }
}

impl<W: Write + Send + 'static> Outlet<W> {
    /// To `to`, in batches of at most `room` bytes.
    pub fn new(to: W, room: usize, hands: Hands) -> Outlet<W> {
        Outlet {
            to: Arc::new(Mutex::new(to)),
            hands,
            load: Load::default(),
            batch: zeros(room),
            writer: None,
        }
    }

    /// Room for the next batch.
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.batch
    }

    /// Writes the first `filled` bytes of the room behind all that came before, now or soon; blocks
    /// while the peer's window is full and no more batches may wait. An error may be that of an
    /// earlier batch, and is final.
    pub fn write(&mut self, filled: usize) -> io::Result<()> {
        let wanted = self.hands == Hands::Two && self.load.is_high();
        if wanted && self.writer.is_none() {
            // Without a thread to be had it goes on as before.
            self.writer = Writer::start(Arc::clone(&self.to), self.batch.len())
                .inspect_err(|error| tracing::debug!(%error, "no thread to write for a data link"))
                .ok();
        }
        // What is on its way comes first.
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

    /// Counts a piece of work: of the time that `all` of it took, what went into sealing.
    pub fn count(&mut self, sealing: Duration, all: Duration) {
        self.load.add(sealing, all);
    }

    /// For what does not take the way through the room. Nobody may have used the room.
    pub fn by_hand(&self) -> MutexGuard<'_, W> {
        lock(&self.to)
    }
}

/// What is on its way is still written; that may block as [`Outlet::write`] does.
impl<W> Drop for Outlet<W> {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.end()
        {
            tracing::debug!(%error, "the last of a data link was not written");
        }
    }
}

impl Writer {
    fn start<W: Write + Send + 'static>(to: Arc<Mutex<W>>, room: usize) -> io::Result<Writer> {
        // Nothing ever waits to be taken back or handed over for want of a place.
        let ((full, written), (done, empty)) =
            (sync_channel::<Batch>(BATCHES), sync_channel(BATCHES));
        let thread = thread::Builder::new().name("potluck-write".to_owned()).spawn(move || {
            for batch in written {
                lock(&to).write_all(&batch.bytes[..batch.filled])?;
                // Nobody is there to take it when the outlet has ended.
                let _ = done.send(batch.bytes);
            }
            Ok(())
        })?;
        Ok(Writer { full, empty, spare: (0..BATCHES).map(|_| zeros(room)).collect(), thread })
    }

    /// Whether something is still on its way.
    fn is_busy(&mut self) -> bool {
        self.spare.extend(self.empty.try_iter());
        self.spare.len() < BATCHES
    }

    /// Takes a full batch and leaves an empty one; `None` when the thread has ended.
    fn hand_over(&mut self, batch: &mut Box<[u8]>, filled: usize) -> Option<()> {
        let empty = match self.spare.pop() {
            Some(empty) => empty,
            None => self.empty.recv().ok()?,
        };
        let bytes = std::mem::replace(batch, empty);
        self.full.send(Batch { bytes, filled }).ok()
    }

    /// Waits until all is written; an error of that.
    fn end(self) -> io::Result<()> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

impl Load {
    /// Over how much of the sender's time it is taken.
    const MEMORY: Duration = Duration::from_millis(20);

    fn add(&mut self, sealing: Duration, all: Duration) {
        self.sealing += sealing;
        self.all += all;
        if self.all > Load::MEMORY {
            self.sealing /= 2;
            self.all /= 2;
        }
    }

    /// Whether it is worth a thread: more than a fourth. Where a wire is what the sender waits for,
    /// sealing takes less.
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
impl<W: Write + Send + 'static> Outlet<W> {
    /// With two hands, and for a day it believes that it does nothing but seal.
    pub fn press(&mut self) {
        self.hands = Hands::Two;
        self.count(Duration::from_secs(86_400), Duration::from_secs(86_400));
    }

    /// What was written to, when all is.
    pub fn into_inner(mut self) -> io::Result<W> {
        self.writer.take().map_or(Ok(()), Writer::end)?;
        let to = Arc::clone(&self.to);
        drop(self);
        Ok(Arc::into_inner(to)
            .expect("the thread has ended")
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner))
    }

    /// How many threads it has besides the caller's.
    pub fn threads(&self) -> usize {
        usize::from(self.writer.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    const ROOM: usize = 100;

    /// Tells what was written, and waits for leave each time.
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

    fn put(outlet: &mut Outlet<impl Write + Send + 'static>, n: u8) -> io::Result<()> {
        outlet.room()[..=usize::from(n)].fill(n);
        outlet.write(usize::from(n) + 1)
    }

    #[test]
    fn all_is_written_in_order_by_whomever() {
        for (hands, pressed) in [(Hands::One, true), (Hands::Two, false), (Hands::Two, true)] {
            let mut outlet = Outlet::new(Vec::new(), ROOM, hands);
            for n in 0..ROOM as u8 {
                // Under pressure now and again only, so that both write by turns.
                if pressed {
                    let sealing = Duration::from_millis(if n / 10 % 2 == 0 { 50 } else { 0 });
                    outlet.count(sealing, Duration::from_millis(50));
                }
                put(&mut outlet, n).expect("written");
            }
            assert_eq!(outlet.threads(), usize::from(hands == Hands::Two && pressed));
            let expected: Vec<u8> =
                (0..ROOM as u8).flat_map(|n| vec![n; usize::from(n) + 1]).collect();
            assert_eq!(outlet.into_inner().expect("written"), expected, "{hands:?}");
        }
    }

    #[test]
    fn under_pressure_the_caller_is_not_held_up_until_enough_waits() {
        let (to, seen, allow) = told();
        let mut outlet = Outlet::new(to, ROOM, Hands::Two);
        outlet.press();
        // Nothing may be written yet.
        (0..BATCHES as u8).for_each(|n| put(&mut outlet, n).expect("room enough"));
        let blocked = thread::spawn(move || {
            put(&mut outlet, 77).expect("written");
            outlet
        });
        assert!(seen.try_recv().is_err());
        allow.send(Ok(())).expect("it waits");
        assert_eq!(seen.recv().expect("written"), [0]);
        let outlet = blocked.join().expect("no panic");
        drop(allow);
        drop(outlet);
        let rest: Vec<usize> = seen.iter().map(|bytes| bytes.len()).collect();
        assert_eq!(rest, [2, 3, 78], "dropped, it still writes");
    }

    #[test]
    fn an_error_of_the_thread_is_told_to_the_next_and_nothing_is_written_behind_it() {
        let (to, seen, allow) = told();
        let mut outlet = Outlet::new(to, ROOM, Hands::Two);
        outlet.press();
        allow.send(Err(io::ErrorKind::BrokenPipe.into())).expect("it waits");
        let error = (0..100).find_map(|n| put(&mut outlet, n).err()).expect("an error");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        drop(allow);
        assert!(seen.try_recv().is_err());
    }

    #[test]
    fn a_fourth_of_the_time_is_worth_a_thread() {
        let micros = Duration::from_micros;
        let mut load = Load::default();
        assert!(!load.is_high(), "nothing was sealed");
        // A chunk of 256 KiB on a gigabit, on a bus, and on a gigabit again.
        for (all, high) in [(2100, false), (100, true), (2100, false)] {
            (0..1000).for_each(|_| load.add(micros(40), micros(all)));
            assert_eq!(load.is_high(), high, "{all} us");
        }
    }
}
