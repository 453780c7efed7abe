//! One View of a group.
#![allow(non_camel_case_types)]

use crate::border::{freed, guarded, handle, numbers, put, value, write};
use crate::cluster::Node;
use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::{Failure, ProcessLocal, SharedContext};
use potluck_library::Context;
use potluck_library::blocking::Wait;
use std::time::Duration;

/// This node's rank in one View of its group, and one lane of calls: a sequence that all ranks make
/// in the same order. Rank and size never change. Several threads make calls on lanes of their own.
pub struct potluck_context {
    pub(crate) calls: SharedContext,
    node: ProcessLocal<Node>,
}

impl potluck_context {
    /// Another lane of the same node.
    fn with(&self, calls: SharedContext) -> potluck_context {
        potluck_context { calls, node: self.node.clone() }
    }

    /// Looks at the Context; `otherwise` in a fork of the process that joined.
    fn seen<T>(&self, otherwise: T, look: impl FnOnce(&mut Context) -> T) -> T {
        self.calls.context().map_or(otherwise, |mut context| look(&mut context))
    }
}

/// The context of the newest View of this node.
pub(crate) fn waited(node: &Node, timeout_ms: i64) -> Result<potluck_context, Failure> {
    let context = match u64::try_from(timeout_ms) {
        Ok(ms) => node.cluster.context_within(Duration::from_millis(ms)).wait()?,
        Err(_) => node.cluster.context().wait()?,
    };
    let calls = SharedContext::new(context, &node.executor);
    Ok(potluck_context { calls, node: ProcessLocal::new(node.clone()) })
}

/// The context of the newest View: this one if it is still current. Other ranks and sizes than
/// before are possible. Waits as `potluck_context_get` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_context_renewed(
    context: *const potluck_context,
    timeout_ms: i64,
    renewed: *mut *mut potluck_context,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let node = handle(context, "context")?.node.get()?;
            put(renewed, waited(node, timeout_ms)?);
            Ok(())
        })
    }
}

/// Another lane of the same View, for another thread. Equal tags name the same lane on every rank;
/// each is used once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_context_lane(
    context: *const potluck_context,
    tag: u32,
    lane: *mut *mut potluck_context,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let context = handle(context, "context")?;
            put(lane, context.with(context.calls.lane(tag)?));
            Ok(())
        })
    }
}

/// The calls of some ranks among themselves: `count` ranks of this context, in any order, with the
/// own one. In the new context they are 0 to `count` - 1, in ascending order. Made by these ranks
/// alone. Equal ranks and tags name the same group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_context_group(
    context: *const potluck_context,
    ranks: *const usize,
    count: usize,
    tag: u32,
    group: *mut *mut potluck_context,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let (context, ranks) = (handle(context, "context")?, numbers(ranks, count, "ranks")?);
            put(group, context.with(context.calls.group(ranks, tag)?));
            Ok(())
        })
    }
}

/// Frees a context. Its calls go on. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_context_free(context: *mut potluck_context) {
    // SAFETY: see `border`.
    unsafe { freed(context) };
}

/// This node's rank, from 0. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_rank(context: *const potluck_context) -> usize {
    // SAFETY: see `border`.
    let context = unsafe { handle(context, "context") };
    value(0, || context.map_or(0, |context| context.seen(0, |c| c.rank().index())))
}

/// The number of ranks. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_size(context: *const potluck_context) -> usize {
    // SAFETY: see `border`.
    let context = unsafe { handle(context, "context") };
    value(0, || context.map_or(0, |context| context.seen(0, |c| c.size())))
}

/// Whether all members hold the same state, so that no call needs a sync first. False for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_in_sync(context: *const potluck_context) -> bool {
    // SAFETY: see `border`.
    let context = unsafe { handle(context, "context") };
    value(false, || context.is_ok_and(|context| context.seen(false, |c| c.is_in_sync())))
}

/// The part of a buffer of `count` elements that this rank gets from `potluck_reduce_scatter`: its
/// first element and its length. Nothing is written for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_shard(
    context: *const potluck_context,
    count: usize,
    first: *mut usize,
    length: *mut usize,
) {
    // SAFETY: see `border`.
    unsafe {
        let Ok(context) = handle(context, "context") else { return };
        let shard = value(0..0, || context.seen(0..0, |c| c.shard(count)));
        write(first, shard.start);
        write(length, shard.len());
    }
}

/// Discards the result of a call of this lane that was freed after this member's vote, so that the
/// lane takes calls again when no such call is left. False if there is none, or if it is still
/// undecided: then ask again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_discard_result(context: *const potluck_context) -> bool {
    // SAFETY: see `border`.
    let context = unsafe { handle(context, "context") };
    value(false, || context.is_ok_and(|context| context.seen(false, Context::discard_result)))
}
