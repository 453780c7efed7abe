//! A call, from its start to its end.
#![allow(non_camel_case_types)]

use crate::border::{freed, given, guarded, handle, value, write};
use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::{Call, Failure, Reply};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A call under way, or ended.
pub struct potluck_call {
    call: Call<Reply>,
}

/// Is called when a call has ended, with the `user` that it was registered with.
pub type potluck_on_done = Option<unsafe extern "C" fn(user: *mut c_void, status: potluck_status)>;

/// Starts a call. An error is the end of it, so a program looks for errors at one place.
pub(crate) fn started(begin: impl FnOnce() -> Result<Call<Reply>, Failure>) -> *mut potluck_call {
    let begun = catch_unwind(AssertUnwindSafe(begin));
    let begun = begun.unwrap_or_else(|_| Err(Failure::Panic("see stderr".to_owned())));
    given(potluck_call { call: begun.unwrap_or_else(Call::failed) })
}

/// Waits for the end of a call, at most `timeout_ms`; -1 waits without bound.
///
/// Returns POTLUCK_OK, or why the call has failed. POTLUCK_TIMED_OUT: it goes on.
/// POTLUCK_IN_CALLBACK: this is a function that potluck has called, and waiting here would be
/// waiting for itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_wait(
    call: *const potluck_call,
    timeout_ms: i64,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let patience = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
            match handle(call, "call")?.call.wait(patience)? {
                Some(Ok(_)) => Ok(()),
                Some(Err(failure)) => Err(potluck_error::of(failure)),
                None => Err(potluck_error::timed_out()),
            }
        })
    }
}

/// Whether a call has ended. False for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_done(call: *const potluck_call) -> bool {
    // SAFETY: see `border`.
    let call = unsafe { handle(call, "call") };
    value(false, || call.is_ok_and(|call| call.call.outcome().is_some()))
}

/// Has `function` called once when the call has ended, also if it is freed before: at once if it
/// has ended; else on a thread of potluck's, or in the `potluck_call_free` that gives it up. The
/// function may use the call, and free it unless `status` is POTLUCK_GIVEN_UP: then it is being
/// freed. It must not wait for calls, and should be short: the calls of this process go on when it
/// has returned. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_on_done(
    call: *const potluck_call,
    function: potluck_on_done,
    user: *mut c_void,
) {
    // SAFETY: see `border`.
    let (Ok(call), Some(function)) = (unsafe { handle(call, "call") }, function) else { return };
    let user = User(user);
    value((), || {
        call.call.on_end(move |outcome| {
            let status = match outcome {
                Ok(_) => potluck_status::POTLUCK_OK,
                Err(failure) => potluck_status::of(failure.code()),
            };
            // SAFETY: the program has given both for this.
            unsafe { function(user.pointer(), status) };
        });
    });
}

/// The rank whose message a receive has taken; -1 if it has not succeeded, and for other calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_source(call: *const potluck_call) -> i64 {
    // SAFETY: see `border`.
    match unsafe { reply(call) } {
        Some(Reply::From(rank)) => i64::try_from(*rank).unwrap_or(-1),
        _ => -1,
    }
}

/// The bytes that a call has returned: the state of `potluck_sync`, the elements of an uneven call.
/// Valid until the call is freed. False, and NULL and 0, if it has not succeeded, and for other
/// calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_bytes(
    call: *const potluck_call,
    bytes: *mut *const c_void,
    count: *mut usize,
) -> bool {
    // SAFETY: see `border`.
    unsafe {
        let returned = match reply(call) {
            Some(Reply::State(bytes)) => Some(bytes.as_slice()),
            Some(Reply::Parts { elements, .. }) => Some(elements.bytes()),
            _ => None,
        };
        write(bytes, returned.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast()));
        write(count, returned.map_or(0, <[u8]>::len));
        returned.is_some()
    }
}

/// How many elements of an uneven call are from each rank, in rank order. Valid until the call is
/// freed. False, and NULL and 0, if it has not succeeded, and for other calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_lengths(
    call: *const potluck_call,
    lengths: *mut *const usize,
    count: *mut usize,
) -> bool {
    // SAFETY: see `border`.
    unsafe {
        let returned = match reply(call) {
            Some(Reply::Parts { lengths, .. }) => Some(lengths),
            _ => None,
        };
        write(lengths, returned.map_or(std::ptr::null(), Vec::as_ptr));
        write(count, returned.map_or(0, Vec::len));
        returned.is_some()
    }
}

/// Frees a call. If it has not ended, it is given up for all ranks, as if this rank had failed; but
/// once this rank has voted the others decide, and may have the result: then calls of this lane end
/// with POTLUCK_LOST_RESULT until `potluck_discard_result`. Returns when nothing points at its
/// memory any more, and the functions that were registered for it have returned: they are called
/// one after the other with those of other calls. In a function that potluck calls, it may return
/// before another of these functions has returned. A function that potluck calls on its thread must
/// not free a call of another cluster. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_call_free(call: *mut potluck_call) {
    // SAFETY: see `border`.
    unsafe { freed(call) };
}

unsafe fn reply<'a>(call: *const potluck_call) -> Option<&'a Reply> {
    // SAFETY: see `border`.
    unsafe { handle(call, "call") }.ok()?.call.outcome()?.as_ref().ok()
}

/// A pointer that only the program reads.
struct User(*mut c_void);

// SAFETY: the program gives it to a function that is called on another thread, and knows that.
unsafe impl Send for User {}

impl User {
    /// A method, so that a closure takes the whole of it.
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}
