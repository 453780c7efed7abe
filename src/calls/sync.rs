//! Layer: Face.
//!
//! The call that brings all members to one state.

use super::flight::{Flight, Stage};
use crate::collective::{Decided, Input, SyncStep};
use crate::error::Result;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

/// A [`sync`](crate::Context::sync) under way.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is dropped"]
pub struct Sync<'buf> {
    /// None when the View was in sync.
    pub(crate) flight: Option<Flight>,
    pub(crate) state: &'buf mut Vec<u8>,
    pub(crate) began: bool,
}

impl Future for Sync<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let Some(flight) = &mut this.flight else { return Poll::Ready(Ok(())) };
        let op = flight.op()?;
        if flight.stage == Stage::Numbered {
            flight.begin(op, &Input::Nothing);
        }
        if !this.began {
            match ready!(flight.envelope.poll_sync(op, task)) {
                SyncStep::Decided(decided) => return Poll::Ready(take(flight, decided, this.state)),
                SyncStep::Agreed(root, bytes) => {
                    this.began = true;
                    let state = (root == flight.envelope.me()).then_some(this.state.as_slice());
                    let envelope = Arc::clone(&flight.envelope);
                    envelope.begin_sync(op, flight.call, (root, bytes), &state.map_or(Input::Nothing, Input::Borrowed));
                }
            }
        }
        let decided = ready!(flight.envelope.poll_decided(op, task));
        Poll::Ready(take(flight, decided, this.state))
    }
}

fn take(flight: &mut Flight, decided: Decided, state: &mut Vec<u8>) -> Result<()> {
    let output = flight.over(decided)?;
    state.resize(output.len(), 0);
    output.copy_to(state);
    Ok(())
}
