//! The call that brings all members to one state, whose bytes are made only where they are needed.

use super::sync_op::{SyncOp, SyncState};
use crate::memory::{OutOfMemory, Pool, Staging};
use crate::protocol::Lane;
use crate::report::Result;
use crate::session::ViewSession;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll};
use std::time::Duration;

/// A [`sync_with`](super::super::context::Context::sync_with) in flight.
#[must_use = "a sync does nothing until it is awaited, and is aborted for all members when it is \
    dropped"]
pub struct StateSyncWith<'buf, S, Save, Load> {
    pub(super) pending: SyncOp,
    state: Saved<'buf, S, Save, Load>,
}

/// A state that becomes bytes, and is made of bytes, by the program's functions.
struct Saved<'buf, S, Save, Load> {
    state: &'buf mut S,
    save: Save,
    load: Load,
    /// The bytes of the state, once they have been asked for.
    made: Option<Vec<u8>>,
    /// The memory of the delivered bytes.
    room: Vec<u8>,
}

impl<'buf, S, Save, Load> StateSyncWith<'buf, S, Save, Load>
where
    Save: FnMut(&S) -> Vec<u8>,
    Load: FnMut(&mut S, &[u8]),
{
    pub(crate) fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        version: u64,
        state: &'buf mut S,
        save: Save,
        load: Load,
    ) -> Self {
        let mut state = Saved { state, save, load, made: None, room: Vec::new() };
        StateSyncWith { pending: SyncOp::new(session, lane, version, &mut state), state }
    }
}

impl<S, Save, Load> StateSyncWith<'_, S, Save, Load> {
    /// Aborts the call for all members if it is undecided when `after` has passed since the first
    /// poll; see [`StateSync::deadline`](super::sync::StateSync::deadline).
    pub fn deadline(mut self, after: Duration) -> Self {
        self.pending.give_up_after(after);
        self
    }
}

/// Nothing in it is pinned: the functions are only called.
impl<S, Save, Load> Unpin for StateSyncWith<'_, S, Save, Load> {}

impl<S, Save, Load> Future for StateSyncWith<'_, S, Save, Load>
where
    Save: FnMut(&S) -> Vec<u8>,
    Load: FnMut(&mut S, &[u8]),
{
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.pending.poll(task, &mut this.state)
    }
}

impl<S, Save, Load> SyncState for Saved<'_, S, Save, Load>
where
    Save: FnMut(&S) -> Vec<u8>,
    Load: FnMut(&mut S, &[u8]),
{
    fn len(&self) -> usize {
        0
    }

    fn bytes(&mut self) -> &[u8] {
        let Saved { state, save, made, .. } = self;
        made.get_or_insert_with(|| save(state))
    }

    fn takes(&self, lacks: bool) -> bool {
        lacks
    }

    fn room_for(&mut self, pool: &Pool, len: usize) -> std::result::Result<(), OutOfMemory> {
        pool.room_for(&mut self.room, len)
    }

    fn put(&mut self, output: &Staging) {
        self.room.put(output);
        (self.load)(self.state, &self.room);
        self.made = None;
    }
}
