//! The options of a call, beyond its arguments.
#![allow(non_camel_case_types)]

use crate::border::handle;
use crate::codec::potluck_codec;
use potluck_foreign::{Failure, Options};
use std::sync::Arc;
use std::time::Duration;

/// Skips the vote: the call completes as soon as this rank has its result.
pub const POTLUCK_BEST_EFFORT: u32 = 1;
/// Aborts a reduction for all ranks if a contribution or a result has a NaN or an infinity.
pub const POTLUCK_REJECT_NON_FINITE: u32 = 2;
/// The call is a mean over all ranks in which `weight` is that of this rank's contribution.
pub const POTLUCK_WEIGHTED: u32 = 4;

/// Options of a call. Set all of it to zero, then `size` to `sizeof(potluck_options)`, then the
/// wanted options. Another `size`, or an option that the call does not have, ends it with
/// POTLUCK_ARGUMENT.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct potluck_options {
    /// `sizeof(potluck_options)`: the library reads no more than that.
    pub size: usize,
    /// The call is aborted for all ranks if it is undecided after so many milliseconds. 0: never.
    pub deadline_ms: u64,
    /// `POTLUCK_BEST_EFFORT` and the like.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Compresses the data of an all_reduce of POTLUCK_F32 on the wire. May be NULL.
    pub codec: *const potluck_codec,
    /// With POTLUCK_WEIGHTED.
    pub weight: f64,
}

/// The options behind the pointer; the defaults for null.
///
/// # Errors
/// `Argument` for options of another size, and for flags that this version does not know.
pub unsafe fn options(given: *const potluck_options) -> Result<Options, Failure> {
    if given.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the header says that `size` comes first, and that all of it is there.
    let size = unsafe { given.cast::<usize>().read() };
    if size != size_of::<potluck_options>() {
        let problem = "options.size is not sizeof(potluck_options) of this version".to_owned();
        return Err(Failure::Argument(problem));
    }
    // SAFETY: so many bytes are there.
    let potluck_options { deadline_ms, flags, reserved, codec, weight, .. } =
        unsafe { given.read() };
    let known = POTLUCK_BEST_EFFORT | POTLUCK_REJECT_NON_FINITE | POTLUCK_WEIGHTED;
    if flags & !known != 0 || reserved != 0 {
        return Err(Failure::Argument(format!("options.flags {flags:#x} are not known")));
    }
    let codec = match codec.is_null() {
        true => None,
        // SAFETY: see `border`.
        false => Some(Arc::clone(&unsafe { handle(codec, "codec") }?.codec)),
    };
    Ok(Options {
        deadline: (deadline_ms > 0).then(|| Duration::from_millis(deadline_ms)),
        best_effort: flags & POTLUCK_BEST_EFFORT != 0,
        reject_non_finite: flags & POTLUCK_REJECT_NON_FINITE != 0,
        codec,
        weight: (flags & POTLUCK_WEIGHTED != 0).then_some(weight),
    })
}
