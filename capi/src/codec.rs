//! A codec: the form in which a buffer of floats travels.
#![allow(non_camel_case_types)]

use crate::border::{freed, guarded, put, text};
use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::{Failure, SharedCodec};
use potluck_library::Codec;
use potluck_library::calls::Coarsest;
use std::ffi::c_char;
use std::sync::{Arc, Mutex};

/// A codec, with the rounding errors that it adds to the next call. A buffer has one of its own.
pub struct potluck_codec {
    pub(crate) codec: SharedCodec,
}

/// Makes a codec: `bf16`, `f16`, `int8`, `int4`, `one_bit`, `top_k=0.01` (the share of elements
/// that travels), `auto` or `auto=bf16`, `auto=int8`, `auto=int4` (the coarsest that it may
/// choose). With `+feedback` or `-feedback` after it, it adds its rounding errors to the next call,
/// or not; `one_bit` and `top_k` do so without it. Both are for sums and means only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_codec_new(
    name: *const c_char,
    codec: *mut *mut potluck_codec,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let made = named(text(name, "name")?)?;
            put(codec, potluck_codec { codec: Arc::new(Mutex::new(made)) });
            Ok(())
        })
    }
}

/// Frees a codec. Calls that use it go on. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_codec_free(codec: *mut potluck_codec) {
    // SAFETY: see `border`.
    unsafe { freed(codec) };
}

fn named(name: &str) -> Result<Codec, Failure> {
    if let Some(name) = name.strip_suffix("+feedback") {
        return named(name).map(Codec::with_feedback);
    }
    if let Some(name) = name.strip_suffix("-feedback") {
        return named(name).map(Codec::without_feedback);
    }
    let share = |text: &str| text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    match name {
        "bf16" => Ok(Codec::bf16()),
        "f16" => Ok(Codec::f16()),
        "int8" => Ok(Codec::int8()),
        "int4" => Ok(Codec::int4()),
        "one_bit" => Ok(Codec::one_bit()),
        "auto" => Ok(Codec::auto()),
        "auto=bf16" => Ok(Codec::auto_up_to(Coarsest::Bf16)),
        "auto=int8" => Ok(Codec::auto_up_to(Coarsest::Int8)),
        "auto=int4" => Ok(Codec::auto_up_to(Coarsest::Int4)),
        _ => match name.strip_prefix("top_k=").and_then(share) {
            Some(share) => Ok(Codec::top_k(share)),
            None => Err(Failure::Argument(format!("there is no codec {name:?}"))),
        },
    }
}
