//! The calls on a context.
#![allow(non_camel_case_types)]

use crate::border::{handle, numbers};
use crate::call::{potluck_call, started};
use crate::context::potluck_context;
use crate::options::{options, potluck_options};
use crate::types::{dtype, op, potluck_dtype, potluck_op};
use potluck_foreign::{Failure, Memory};
use std::ffi::c_void;

/// Memory of the program.
pub(crate) unsafe fn memory(
    data: *const c_void,
    count: usize,
    of: potluck_dtype,
) -> Result<Memory, Failure> {
    // SAFETY: see `border`. Calls with an input only read it.
    unsafe { Memory::new(data.cast_mut().cast(), count, dtype(of)?) }
}

unsafe fn optional(
    data: *const c_void,
    count: usize,
    of: potluck_dtype,
) -> Result<Option<Memory>, Failure> {
    // SAFETY: see `border`.
    (!data.is_null()).then(|| unsafe { memory(data, count, of) }).transpose()
}

/// Combines `data` of all ranks, in place: afterwards all hold the same. `count` elements, the same
/// everywhere.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_all_reduce(
    context: *const potluck_context,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        context.calls.all_reduce(memory(data, count, dtype)?, op(by)?, &options(given)?)
    })
}

/// Combines `data` of all ranks in that of rank `root`; the others keep theirs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_reduce(
    context: *const potluck_context,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    root: usize,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        context.calls.reduce(memory(data, count, dtype)?, root, op(by)?, &options(given)?)
    })
}

/// Combines `input`, `count` elements, of all ranks; `out`, `out_count` elements, gets this rank's
/// part: see `potluck_shard`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_reduce_scatter(
    context: *const potluck_context,
    input: *const c_void,
    count: usize,
    out: *mut c_void,
    out_count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let (data, out) = (memory(input, count, dtype)?, memory(out, out_count, dtype)?);
        context.calls.reduce_scatter(data, out, op(by)?, &options(given)?)
    })
}

/// Copies `data` of rank `root` to all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_broadcast(
    context: *const potluck_context,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    root: usize,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        context.calls.broadcast(memory(data, count, dtype)?, root, &options(given)?)
    })
}

/// Collects `input`, `count` elements, of all ranks in `out`, `out_count` = size * `count`
/// elements, in rank order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_all_gather(
    context: *const potluck_context,
    input: *const c_void,
    count: usize,
    out: *mut c_void,
    out_count: usize,
    dtype: potluck_dtype,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let (data, out) = (memory(input, count, dtype)?, memory(out, out_count, dtype)?);
        context.calls.all_gather(data, out, &options(given)?)
    })
}

/// Collects `input`, `count` elements, of all ranks in `out` of rank `root`, `out_count` = size *
/// `count` elements. On the other ranks `out` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_gather(
    context: *const potluck_context,
    input: *const c_void,
    count: usize,
    out: *mut c_void,
    out_count: usize,
    dtype: potluck_dtype,
    root: usize,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let (data, out) = (memory(input, count, dtype)?, optional(out, out_count, dtype)?);
        context.calls.gather(data, out, root, &options(given)?)
    })
}

/// Gives each rank its part of `input` of rank `root`, `in_count` = size * `count` elements; `out`
/// gets it, `count` elements. On the other ranks `input` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_scatter(
    context: *const potluck_context,
    input: *const c_void,
    in_count: usize,
    out: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    root: usize,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let (parts, out) = (optional(input, in_count, dtype)?, memory(out, count, dtype)?);
        context.calls.scatter(parts, out, root, &options(given)?)
    })
}

/// Gives each rank an equal part of `input`, `count` elements; `out`, `count` elements, gets the
/// parts for this rank, in rank order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_all_to_all(
    context: *const potluck_context,
    input: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let (data, out) = (memory(input, count, dtype)?, memory(out, count, dtype)?);
        context.calls.all_to_all(data, out, &options(given)?)
    })
}

/// Collects `input` of all ranks, which may have any lengths: `potluck_call_bytes` and
/// `potluck_call_lengths`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_all_gather_uneven(
    context: *const potluck_context,
    input: *const c_void,
    count: usize,
    dtype: potluck_dtype,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        context.calls.all_gather_uneven(memory(input, count, dtype)?, &options(given)?)
    })
}

/// Gives the first `lengths[0]` elements of `input` to rank 0, and so on: one length for each rank.
/// The elements that the others give to this rank: `potluck_call_bytes` and `potluck_call_lengths`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_all_to_all_uneven(
    context: *const potluck_context,
    input: *const c_void,
    count: usize,
    lengths: *const usize,
    lengths_count: usize,
    dtype: potluck_dtype,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let lengths = numbers(lengths, lengths_count, "lengths")?.to_vec();
        let data = memory(input, count, dtype)?;
        context.calls.all_to_all_uneven(data, lengths, &options(given)?)
    })
}

/// Sends a message to rank `to`. Ends when it has been received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_send(
    context: *const potluck_context,
    data: *const c_void,
    count: usize,
    dtype: potluck_dtype,
    to: usize,
    tag: u32,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        context.calls.send(memory(data, count, dtype)?, to, tag, &options(given)?)
    })
}

/// Receives a message of rank `from`, or with -1 of any rank: `potluck_call_source`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_recv(
    context: *const potluck_context,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    from: i64,
    tag: u32,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let from = usize::try_from(from).ok();
        context.calls.recv(memory(data, count, dtype)?, from, tag, &options(given)?)
    })
}

/// Waits for all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_barrier(
    context: *const potluck_context,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe { handle(context, "context")?.calls.barrier(&options(given)?) })
}

/// Brings all members to one state: that of the members whose history wins, among them the one with
/// the largest `version`. `potluck_call_bytes` has it. `state` is copied at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_sync(
    context: *const potluck_context,
    version: u64,
    state: *const c_void,
    bytes: usize,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    started(|| unsafe {
        let context = handle(context, "context")?;
        let state = numbers::<u8>(state.cast(), bytes, "state")?.to_vec();
        context.calls.sync(version, state, &options(given)?)
    })
}
