//! Several calls with one vote.
#![allow(non_camel_case_types)]

use crate::border::{freed, given as handed, guarded, handle, handle_mut, taken, value};
use crate::call::{potluck_call, started};
use crate::collectives::memory;
use crate::context::potluck_context;
use crate::error::potluck_error;
use crate::options::{options, potluck_options};
use crate::status::potluck_status;
use crate::types::{op, potluck_dtype, potluck_op};
use potluck_foreign::{Failure, SharedStep};
use std::ffi::c_void;

/// Calls that are committed together: all results are written, or none.
pub struct potluck_step {
    step: SharedStep,
}

/// Begins a step of at most 64 calls. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_new(context: *const potluck_context) -> *mut potluck_step {
    // SAFETY: see `border`.
    let context = unsafe { handle(context, "context") };
    value(std::ptr::null_mut(), || match context {
        Ok(context) => handed(potluck_step { step: context.calls.step() }),
        Err(_) => std::ptr::null_mut(),
    })
}

/// Adds a `potluck_all_reduce`. Its options may have a codec and a weight. On an error the step is
/// as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_all_reduce(
    step: *mut potluck_step,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    given: *const potluck_options,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let (step, data) = (handle_mut(step, "step")?, memory(data, count, dtype)?);
            step.step.all_reduce(data, op(by)?, &options(given)?)?;
            Ok(())
        })
    }
}

/// Adds a `potluck_reduce`. On an error the step is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_reduce(
    step: *mut potluck_step,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    root: usize,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let (step, data) = (handle_mut(step, "step")?, memory(data, count, dtype)?);
            step.step.reduce(data, root, op(by)?)?;
            Ok(())
        })
    }
}

/// Adds a `potluck_reduce_scatter`. On an error the step is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_reduce_scatter(
    step: *mut potluck_step,
    input: *const c_void,
    count: usize,
    out: *mut c_void,
    out_count: usize,
    dtype: potluck_dtype,
    by: potluck_op,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let step = handle_mut(step, "step")?;
            let (data, out) = (memory(input, count, dtype)?, memory(out, out_count, dtype)?);
            step.step.reduce_scatter(data, out, op(by)?)?;
            Ok(())
        })
    }
}

/// Adds a `potluck_broadcast`. On an error the step is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_broadcast(
    step: *mut potluck_step,
    data: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    root: usize,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let (step, data) = (handle_mut(step, "step")?, memory(data, count, dtype)?);
            step.step.broadcast(data, root)?;
            Ok(())
        })
    }
}

/// Adds a `potluck_all_gather`. On an error the step is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_all_gather(
    step: *mut potluck_step,
    input: *const c_void,
    count: usize,
    out: *mut c_void,
    out_count: usize,
    dtype: potluck_dtype,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let step = handle_mut(step, "step")?;
            let (data, out) = (memory(input, count, dtype)?, memory(out, out_count, dtype)?);
            step.step.all_gather(data, out)?;
            Ok(())
        })
    }
}

/// Adds a `potluck_all_to_all`. On an error the step is as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_all_to_all(
    step: *mut potluck_step,
    input: *const c_void,
    out: *mut c_void,
    count: usize,
    dtype: potluck_dtype,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let step = handle_mut(step, "step")?;
            let (data, out) = (memory(input, count, dtype)?, memory(out, count, dtype)?);
            step.step.all_to_all(data, out)?;
            Ok(())
        })
    }
}

/// Makes the calls of a step, and frees it. It takes its place in the lane now, and the memory is
/// read now. The options may have a deadline and POTLUCK_REJECT_NON_FINITE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_commit(
    step: *mut potluck_step,
    given: *const potluck_options,
) -> *mut potluck_call {
    // SAFETY: see `border`.
    let step = unsafe { taken(step) };
    started(|| {
        let Some(step) = step else { return Err(Failure::Argument("step is NULL".to_owned())) };
        // SAFETY: see `border`.
        step.step.commit(&unsafe { options(given) }?)
    })
}

/// Frees a step that is not committed: none of its calls is made. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_step_free(step: *mut potluck_step) {
    // SAFETY: see `border`.
    unsafe { freed(step) };
}
