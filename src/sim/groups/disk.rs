//! The disk of a host. It is slow at random, may stall, and may fail once, for a while or for ever.
//! Like the real store it repeats a failed write, with the newest state.

use super::conditions::Conditions;
use crate::os::Store;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// The durable state of a host, which survives its crash. Clones share it.
#[derive(Clone, Default)]
pub struct Drive(Arc<DriveState>);

#[derive(Default)]
struct DriveState {
    contents: Mutex<Option<Vec<u8>>>,
    /// The number of faults that stall it.
    stalled: AtomicU32,
    /// The number of faults that make writes fail.
    failing: AtomicU32,
    /// The next write fails.
    fails_once: AtomicBool,
    /// All later writes fail.
    is_broken: AtomicBool,
    /// A write is under way, or has ended and is not reported yet.
    is_writing: AtomicBool,
    /// The number of the last store on it. The process of an earlier one has ended.
    owner: AtomicU32,
}

/// The store on a drive.
pub struct SimDisk {
    writes: mpsc::UnboundedSender<Write>,
}

/// The state to write, and the callback when it is durable.
type Write = (Vec<u8>, Box<dyn FnOnce() + Send>);

/// Back-off between two tries, as that of the real store.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl Drive {
    /// The last state that was written.
    pub fn contents(&self) -> Option<Vec<u8>> {
        self.0.contents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stalls all writes until [`resume`](Drive::resume).
    pub fn stall(&self) {
        self.0.stalled.fetch_add(1, Ordering::Relaxed);
    }

    pub fn resume(&self) {
        self.0.stalled.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writes fail until [`mend`](Drive::mend).
    pub fn fail(&self) {
        self.0.failing.fetch_add(1, Ordering::Relaxed);
    }

    pub fn mend(&self) {
        self.0.failing.fetch_sub(1, Ordering::Relaxed);
    }

    /// The next write fails.
    pub fn fail_once(&self) {
        self.0.fails_once.store(true, Ordering::Relaxed);
    }

    /// All writes fail from now on.
    pub fn break_permanently(&self) {
        self.0.is_broken.store(true, Ordering::Relaxed);
    }

    /// Whether all writes fail for ever.
    pub fn is_broken(&self) -> bool {
        self.0.is_broken.load(Ordering::Relaxed)
    }

    /// Whether writes fail or wait for a fault to end.
    pub fn is_faulty(&self) -> bool {
        self.is_stalled() || self.is_broken() || self.0.failing.load(Ordering::Relaxed) > 0
    }

    /// Whether a write is under way, or has ended and is not reported yet.
    pub fn is_writing(&self) -> bool {
        self.0.is_writing.load(Ordering::Relaxed)
    }

    fn set_writing(&self, is_writing: bool) {
        self.0.is_writing.store(is_writing, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        self.0.stalled.load(Ordering::Relaxed) > 0
    }

    fn fails(&self) -> bool {
        let once = self.0.fails_once.swap(false, Ordering::Relaxed);
        once || self.is_broken() || self.0.failing.load(Ordering::Relaxed) > 0
    }

    fn take_over(&self) -> u32 {
        self.set_writing(false);
        self.0.owner.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn belongs_to(&self, owner: u32) -> bool {
        self.0.owner.load(Ordering::Relaxed) == owner
    }

    fn write(&self, bytes: Vec<u8>) {
        *self.0.contents.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes);
    }
}

impl SimDisk {
    pub fn start(drive: Drive, conditions: Conditions) -> SimDisk {
        let (writes, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_all(queue, drive, conditions));
        SimDisk { writes }
    }
}

async fn write_all(
    mut queue: mpsc::UnboundedReceiver<Write>,
    drive: Drive,
    conditions: Conditions,
) {
    let owner = drive.take_over();
    while let Some((mut bytes, done)) = queue.recv().await {
        let (mut all, mut retry) = (vec![done], RETRY.0);
        loop {
            while let Ok((newer, done)) = queue.try_recv() {
                bytes = newer;
                all.push(done);
            }
            while drive.is_stalled() {
                sleep(Duration::from_millis(10)).await;
            }
            drive.set_writing(true);
            // One write in 50 is slow.
            let busy = if conditions.below(50) == 0 { conditions.below(2000) } else { 0 };
            sleep(Duration::from_millis(1 + conditions.below(5) + busy)).await;
            if !drive.belongs_to(owner) {
                return;
            }
            if !drive.fails() {
                break;
            }
            drive.set_writing(false);
            sleep(retry).await;
            retry = (2 * retry).min(RETRY.1);
        }
        drive.write(bytes);
        // A crash may come between writing and reporting; the ballots must tolerate that.
        sleep(Duration::from_millis(conditions.below(2))).await;
        drive.set_writing(false);
        all.into_iter().for_each(|done| done());
    }
}

impl Store for SimDisk {
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        // The task ends after this sender is dropped.
        let _ = self.writes.send((state, done));
    }

    fn remember(&mut self, _peers: Vec<SocketAddr>) {}
}
