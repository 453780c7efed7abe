//! Reports when a share of the bytes that a member will receive has arrived.

use super::member::emit;
use super::message::Event;
use potluck::{Context, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Watches the received bytes on a thread of its own, because a call's first poll may last as long
/// as the call.
pub struct Milestone {
    over: Arc<AtomicBool>,
    /// Returns whether the mark was reported.
    watch: JoinHandle<bool>,
}

impl Milestone {
    /// Reports when `share` of an `all_reduce` of `bytes` has arrived from now on. Every member
    /// receives about 2 (n - 1) / n of the buffer.
    pub fn of(context: &mut Context, share: f64, bytes: usize) -> Milestone {
        // Another lane of the same View, which only reads counters.
        let lane = context.lane(u32::MAX);
        let size = lane.size() as f64;
        let expected = 2.0 * (size - 1.0) / size * bytes as f64;
        let mark = lane.traffic().received_bytes + (share * expected) as u64;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let watch = std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                if lane.traffic().received_bytes >= mark {
                    emit(&Event::Progress);
                    return true;
                }
                // Polls the counter; the pause leaves the processor to the call.
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
        Milestone { over, watch }
    }

    /// Awaits the call. If it succeeds, the mark has been passed, and is reported even if the
    /// watcher did not see it.
    pub async fn passed_by(
        mark: Option<Milestone>,
        call: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let outcome = call.await;
        if let Some(Milestone { over, watch }) = mark {
            over.store(true, Ordering::Release);
            if !watch.join().unwrap_or(false) && outcome.is_ok() {
                emit(&Event::Progress);
            }
        }
        outcome
    }
}
