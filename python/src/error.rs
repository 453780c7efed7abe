//! Failures as exceptions of Python. The classes are in `potluck/_errors.py`.

use potluck_foreign::Failure;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

/// The exception for a failure.
pub fn raised(py: Python<'_>, failure: &Failure) -> PyErr {
    let made = || {
        let made = py.import("potluck._errors")?.getattr("made")?;
        let (retryable, can_renew) = (failure.is_retryable(), failure.can_renew());
        made.call1((failure.code(), failure.to_string(), retryable, can_renew))
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The exception for an argument that cannot be.
pub fn wrong(py: Python<'_>, problem: impl Into<String>) -> PyErr {
    raised(py, &Failure::Argument(problem.into()))
}

/// The exception of a wait that was too short. The operation goes on.
pub fn late() -> PyErr {
    PyTimeoutError::new_err("it has not ended within the timeout, and goes on")
}

/// Results with failures, in Python.
pub trait OrRaise<T> {
    /// The value.
    ///
    /// # Errors
    /// The exception for the failure.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Failure> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|failure| raised(py, &failure))
    }
}

impl<T> OrRaise<T> for Result<T, &Failure> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|failure| raised(py, failure))
    }
}
