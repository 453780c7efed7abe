//! Waits that let other Python threads run, and that signals end.

use super::error::{OrRaise, late, raised};
use super::process::executor;
use potluck_foreign::{Call, Failure};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// How often a wait looks for signals.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Waits for the end of a call, at most `patience`; `None` waits without bound. Whether it has
/// ended: the call goes on if that is too short.
///
/// # Errors
/// The exception of a signal's handler, for example KeyboardInterrupt; and a wait inside of a
/// function that is called when a call has ended.
pub fn wait<T: Send + Sync + 'static>(
    py: Python<'_>,
    call: &Call<T>,
    patience: Option<Duration>,
) -> PyResult<bool> {
    let until = patience.and_then(|patience| Instant::now().checked_add(patience));
    while call.outcome().is_none() {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        let slice = left.map_or(SIGNALS_EVERY, |left| left.min(SIGNALS_EVERY));
        py.detach(|| call.wait(Some(slice)).map(|_| ())).or_raise(py)?;
        py.check_signals()?;
    }
    Ok(true)
}

/// Carries out something that has no name in Python: given up when a signal ends the wait.
///
/// # Errors
/// Those of [`wait`], TimeoutError, and the failure.
pub fn done<T: Clone + Send + Sync + 'static>(
    py: Python<'_>,
    patience: Option<Duration>,
    future: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> PyResult<T> {
    let executor = executor(py)?;
    let call = py.detach(|| Call::begin(&executor, future));
    let ended = wait(py, &call, patience);
    let outcome = ended.and_then(|has_ended| match call.outcome() {
        Some(Ok(value)) if has_ended => Ok(value.clone()),
        Some(Err(failure)) if has_ended => Err(raised(py, failure)),
        _ => Err(late()),
    });
    // Its end may need the interpreter, which this thread has.
    py.detach(|| drop(call));
    outcome
}

/// A number of seconds as Python has it. `None` and infinity are no bound.
///
/// # Errors
/// ValueError for a value that is not a time.
pub fn seconds(name: &str, value: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(value) = value.filter(|value| *value != f64::INFINITY) else { return Ok(None) };
    let time = Duration::try_from_secs_f64(value);
    let problem =
        |_| PyValueError::new_err(format!("{name} is {value}, which is no time in seconds"));
    time.map(Some).map_err(problem)
}
