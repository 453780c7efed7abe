//! Where pointers of the program become references, and results become pointers.
//!
//! # Safety
//! Every function here, and every exported function, trusts the program to obey the rules at the
//! top of the header: a handle is one that potluck has made and that has not been freed; text ends
//! with a zero byte; memory has the length that is given.

use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::Failure;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body`, stores its error for the program, and returns its status. A panic is an error.
pub unsafe fn guarded(
    error: *mut *mut potluck_error,
    body: impl FnOnce() -> Result<(), potluck_error>,
) -> potluck_status {
    let told = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return potluck_status::POTLUCK_OK,
        Ok(Err(told)) => told,
        Err(_) => Failure::Panic("see stderr".to_owned()).into(),
    };
    let status = told.status();
    // SAFETY: null, or a place for a pointer.
    unsafe { put(error, told) };
    status
}

/// The value of `body`, or `otherwise` if it panics.
pub fn value<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

/// Gives a new handle to the program, which need not want it.
pub unsafe fn put<T>(place: *mut *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: a place for a pointer.
        unsafe { place.write(Box::into_raw(Box::new(value))) };
    }
}

/// A new handle of the program.
pub fn given<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// A handle of the program.
///
/// # Errors
/// `Argument` for a null pointer.
pub unsafe fn handle<'a, T>(handle: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: null, or a handle that has not been freed.
    unsafe { handle.as_ref() }.ok_or_else(|| Failure::Argument(format!("{what} is NULL")))
}

/// A handle of the program that only this function uses meanwhile.
///
/// # Errors
/// `Argument` for a null pointer.
pub unsafe fn handle_mut<'a, T>(handle: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: null, or a handle that has not been freed.
    unsafe { handle.as_mut() }.ok_or_else(|| Failure::Argument(format!("{what} is NULL")))
}

/// Takes a handle back from the program. Nothing for null.
pub unsafe fn taken<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: a handle that has not been freed, and is not used again.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Frees a handle. Nothing for null.
pub unsafe fn freed<T>(handle: *mut T) {
    // SAFETY: as above.
    let handle = unsafe { taken(handle) };
    value((), || drop(handle));
}

/// Text of the program.
///
/// # Errors
/// `Argument` for a null pointer, and for text that is not UTF-8.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::Argument(format!("{what} is NULL")));
    }
    // SAFETY: text that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::Argument(format!("{what} is not UTF-8")))
}

/// Numbers of the program. Without any, the pointer may be null.
///
/// # Errors
/// `Argument` for a null pointer.
pub unsafe fn numbers<'a, T>(
    start: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() {
        return Err(Failure::Argument(format!("{what} is NULL")));
    }
    // SAFETY: so many numbers, which nobody writes meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

/// Writes to a place of the program, which need not want it.
pub unsafe fn write<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: a place for it.
        unsafe { place.write(value) };
    }
}
