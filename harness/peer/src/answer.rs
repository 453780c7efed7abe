//! The event with which a call ends: its outcome, the state of its buffer, and its time.

use crate::report::{emit, ms};
use crate::scarce::Scarce;
use potluck::Error;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time of a call's completion, and its duration.
#[derive(Clone, Copy)]
pub struct Answered {
    at: SystemTime,
    took: Duration,
}

/// The reported state of the buffer after success and after failure.
pub type Verdict = (&'static str, &'static str);

/// The hash reported for a result that differs between ranks.
pub const OWN: &str = "";

/// Awaits a call, with this many bytes of address space left to it if `room` is set.
pub async fn timed<T>(room: Option<u64>, call: impl Future<Output = T>) -> (T, Answered) {
    let started = Instant::now();
    let scarce = room.map(Scarce::leaving);
    let outcome = call.await;
    drop(scarce);
    // Before the buffer is checked.
    (outcome, Answered { at: SystemTime::now(), took: started.elapsed() })
}

/// The verdict on a buffer that is `kept` after success and untouched after failure.
pub fn verdict(good: bool, kept: &'static str) -> Verdict {
    if good { (kept, "untouched") } else { ("wrong", "damaged") }
}

/// Reports a call whose result differs between ranks.
pub fn tell_own<R>(outcome: Result<R, Error>, time: Answered, is_right: impl FnOnce(&R) -> bool) {
    let good = outcome.as_ref().map_or(true, is_right);
    tell(outcome.map(drop), verdict(good, "exact"), OWN, time);
}

/// Reports a call.
pub fn tell(outcome: Result<(), Error>, verdict: Verdict, hash: &str, time: Answered) {
    emit(&done("done", outcome, verdict, hash, time));
}

/// The event `event` of a call that has ended.
pub fn done(
    event: &str,
    outcome: Result<(), Error>,
    verdict: Verdict,
    hash: &str,
    Answered { at, took }: Answered,
) -> Value {
    let (took, at) = (ms(took), ms(at.duration_since(UNIX_EPOCH).unwrap_or_default()));
    match outcome {
        Ok(()) => json!({
            "event": event,
            "ok": true,
            "verdict": verdict.0,
            "hash": hash,
            "ms": took,
            "at_ms": at,
        }),
        Err(error) => json!({
            "event": event,
            "ok": false,
            "code": error.code(),
            "message": error.to_string(),
            "retryable": error.is_retryable(),
            "verdict": verdict.1,
            "ms": took,
            "at_ms": at,
        }),
    }
}
