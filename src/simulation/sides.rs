//! Layer: Face.
//!
//! Calls beside the main one: each in a lane of its own, awaited, ended by a short deadline, or
//! dropped at a random poll.

use super::host::Host;
use crate::context::Context;
use crate::error::{Cause, Error};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::sleep;

/// Most calls beside the main one.
const LANES: u64 = 3;

/// Pause before a call that was refused because others are undecided is made again.
pub const ROOM: Duration = Duration::from_millis(5);

/// How the program treats a call.
enum Use {
    Awaited,
    Deadline(Duration),
    /// Dropped when it has been polled this often without a result. The first poll begins it.
    Dropped(u64),
}

/// A call that checks its own result.
type Side<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The calls beside the main call of this step. All members make the same ones, and each decides by
/// chance what becomes of its own.
pub fn beside<'a>(host: &'a Host, ctx: &Context, step: u64) -> Vec<Side<'a>> {
    let lanes = step % (LANES + 1);
    (1..=lanes).map(|lane| Box::pin(call(host, ctx.lane(lane as u32), lane)) as Side<'a>).collect()
}

/// Polls a call and those beside it until all have ended.
pub async fn together<T>(main: impl Future<Output = T>, mut sides: Vec<Side<'_>>) -> T {
    let mut main = Box::pin(main);
    let mut result = None;
    poll_fn(|task| {
        if result.is_none()
            && let Poll::Ready(value) = main.as_mut().poll(task)
        {
            result = Some(value);
        }
        sides.retain_mut(|side| side.as_mut().poll(task).is_pending());
        if sides.is_empty() {
            result.take().map_or(Poll::Pending, Poll::Ready)
        } else {
            Poll::Pending
        }
    })
    .await
}

async fn call(host: &Host, mut ctx: Context, lane: u64) {
    let own = [lane, ctx.rank() as u64 + 1];
    let size = ctx.size() as u64;
    let sum = [size * lane, size * (size + 1) / 2];
    let mut numbers = own;
    let ended = loop {
        // A dropped call may have been committed.
        ctx.discard_result();
        let ended = match plan(host) {
            Use::Awaited => Some(ctx.all_reduce(&mut numbers).await),
            Use::Deadline(after) => Some(ctx.all_reduce(&mut numbers).deadline(after).await),
            Use::Dropped(polls) => until(ctx.all_reduce(&mut numbers), polls).await,
        };
        // These calls have not begun: the other members wait for one that does.
        match ended {
            Some(Err(Error::LostResult { .. } | Error::TooManyInFlight)) => sleep(ROOM).await,
            ended => break ended,
        }
    };
    let expected = if matches!(ended, Some(Ok(()))) { sum } else { own };
    if numbers != expected {
        host.witness.wrong(format!(
            "host {}: lane {lane} left {numbers:?} in place of {expected:?} after {ended:?}",
            host.number
        ));
    }
    match ended {
        None
        | Some(
            Ok(()) | Err(Error::Indeterminate | Error::Aborted { cause: Cause::Deadline { .. } }),
        ) => {}
        Some(Err(error)) if error.is_retryable() => {}
        Some(Err(error)) => {
            host.witness.wrong(format!("host {}: lane {lane}: {error:?}", host.number));
        }
    }
}

fn plan(host: &Host) -> Use {
    match host.weather.below(6) {
        0 => Use::Deadline(Duration::from_millis(host.weather.below(400))),
        1 => Use::Dropped(1 + host.weather.below(6)),
        _ => Use::Awaited,
    }
}

/// Polls a call at most this often; `None` if it is dropped without a result.
async fn until<T>(call: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut call = Box::pin(call);
    let mut left = polls;
    poll_fn(|task| {
        let polled = call.as_mut().poll(task);
        left = left.saturating_sub(1);
        match polled {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
