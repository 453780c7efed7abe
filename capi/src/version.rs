//! Which interface this library has.

use std::ffi::c_char;

/// The number of this interface. It changes when a program that was compiled for another one would
/// go wrong.
pub const POTLUCK_ABI: u32 = 1;

/// The number of the interface that the library has, to be compared with `POTLUCK_ABI`.
#[unsafe(no_mangle)]
pub extern "C" fn potluck_abi() -> u32 {
    POTLUCK_ABI
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn potluck_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
