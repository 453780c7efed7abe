//! An error of the program's.
#![allow(non_camel_case_types)]

use crate::border::{freed, handle, value};
use crate::status::potluck_status;
use potluck_foreign::Failure;
use potluck_library::Error;
use std::ffi::{CString, c_char};
use std::ptr::null;

/// Why a function has failed.
pub struct potluck_error {
    status: potluck_status,
    code: CString,
    message: CString,
    can_renew: bool,
    is_retryable: bool,
}

impl potluck_error {
    pub(crate) fn of(failure: &Failure) -> potluck_error {
        let text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        potluck_error {
            status: potluck_status::of(failure.code()),
            code: text(failure.code().to_owned()),
            message: text(failure.to_string()),
            can_renew: failure.can_renew(),
            is_retryable: failure.is_retryable(),
        }
    }

    /// The time of a wait has passed.
    pub(crate) fn timed_out() -> potluck_error {
        potluck_error {
            status: potluck_status::POTLUCK_TIMED_OUT,
            code: c"timed-out".to_owned(),
            message: c"the time of the wait has passed; the call goes on".to_owned(),
            can_renew: false,
            is_retryable: false,
        }
    }

    pub(crate) fn status(&self) -> potluck_status {
        self.status
    }
}

impl From<Failure> for potluck_error {
    fn from(failure: Failure) -> potluck_error {
        potluck_error::of(&failure)
    }
}

impl From<Error> for potluck_error {
    fn from(error: Error) -> potluck_error {
        Failure::from(error).into()
    }
}

/// One sentence: the cause and the remedy. Valid until the error is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_error_message(error: *const potluck_error) -> *const c_char {
    // SAFETY: see `border`.
    let error = unsafe { handle(error, "error") };
    value(null(), || error.map_or(null(), |error| error.message.as_ptr()))
}

/// The stable code of the error, such as `aborted`. docs/errors.md lists the codes of all programs,
/// and docs/c.md those of bindings. Valid until the error is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_error_code(error: *const potluck_error) -> *const c_char {
    // SAFETY: see `border`.
    let error = unsafe { handle(error, "error") };
    value(null(), || error.map_or(null(), |error| error.code.as_ptr()))
}

/// Whether a program that goes on while members come and go should take a new context, sync its
/// state, and go on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_error_can_renew(error: *const potluck_error) -> bool {
    // SAFETY: see `border`.
    unsafe { handle(error, "error") }.is_ok_and(|error| error.can_renew)
}

/// Whether the same call should be made again on a new context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_error_retryable(error: *const potluck_error) -> bool {
    // SAFETY: see `border`.
    unsafe { handle(error, "error") }.is_ok_and(|error| error.is_retryable)
}

/// Frees an error. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_error_free(error: *mut potluck_error) {
    // SAFETY: see `border`.
    unsafe { freed(error) };
}
