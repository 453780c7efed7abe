//! Reports when a share of the bytes that a member will receive has arrived. The node that tests
//! control (`harness/peer`) is compiled with this file, too.

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
    tell: fn(),
}

impl Milestone {
    /// Calls `tell` when `share` of `bytes` has arrived from now on. `context` belongs to the View
    /// to be watched.
    pub fn of(context: Context, share: f64, bytes: f64, tell: fn()) -> Milestone {
        let mark = context.traffic().received_bytes + (share * bytes) as u64;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let watch = std::thread::spawn(move || {
            while !ended.load(Ordering::Acquire) {
                if context.traffic().received_bytes >= mark {
                    tell();
                    return true;
                }
                // Polls the counter; the pause leaves the processor to the call.
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
        Milestone { over, watch, tell }
    }

    /// Awaits the call. If it succeeds, the mark has been passed, and is reported even if the
    /// watcher did not see it.
    pub async fn passed_by(
        mark: Option<Milestone>,
        call: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let outcome = call.await;
        if let Some(Milestone { over, watch, tell }) = mark {
            over.store(true, Ordering::Release);
            if !watch.join().unwrap_or(false) && outcome.is_ok() {
                tell();
            }
        }
        outcome
    }
}

/// The bytes that a member receives in an all_reduce under a plan that divides the work equally: 2
/// (n - 1) / n of the buffer.
pub fn all_reduced(context: &Context, bytes: usize) -> f64 {
    let size = context.size() as f64;
    2.0 * (size - 1.0) / size * bytes as f64
}
