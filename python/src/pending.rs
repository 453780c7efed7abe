//! A call that was begun.

use super::buffer::Buffer;
use super::error::{OrRaise, late};
use super::lease::Lease;
use super::results::Gives;
use super::waiting::{seconds, wait};
use potluck_foreign::{Call, Failure, ProcessLocal, Reply};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A call under way, or ended.
#[pyclass(frozen, weakref, module = "potluck")]
pub struct Pending {
    running: ProcessLocal<Running>,
}

struct Running {
    call: Call<Reply>,
    /// Those of the call. Given back when its end is seen.
    buffers: Mutex<Vec<Buffer>>,
    gives: Gives,
    result: PyOnceLock<Py<PyAny>>,
}

/// The end of a method that begins a call: with `async_op` a [`Pending`], else its result.
///
/// # Errors
/// Those of the call; and of a signal, which gives it up.
pub fn returned(
    py: Python<'_>,
    call: Call<Reply>,
    leases: Vec<Lease>,
    gives: Gives,
    async_op: bool,
) -> PyResult<Py<PyAny>> {
    let pending = Pending::of(call, leases, gives);
    if async_op {
        return Ok(Py::new(py, pending)?.into_any());
    }
    pending.result(py, None)
}

impl Pending {
    fn of(call: Call<Reply>, leases: Vec<Lease>, gives: Gives) -> Pending {
        let (claims, buffers): (Vec<_>, Vec<_>) = leases.into_iter().map(Lease::apart).unzip();
        call.hold(claims);
        let buffers = Mutex::new(buffers.into_iter().flatten().collect());
        let running = Running { call, buffers, gives, result: PyOnceLock::new() };
        Pending { running: ProcessLocal::new(running) }
    }

    fn result(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<Py<PyAny>> {
        let running = self.running.get().or_raise(py)?;
        if !wait(py, &running.call, patience)? {
            return Err(late());
        }
        running.give_back();
        match running.call.outcome() {
            Some(Ok(reply)) => {
                let result = running.result.get_or_try_init(py, || running.gives.of(py, reply))?;
                Ok(result.clone_ref(py))
            }
            Some(Err(failure)) => Err(failure).or_raise(py),
            None => Err(late()),
        }
    }

    /// Calls `f` when it has ended, in any thread.
    fn when_ended(
        &self,
        py: Python<'_>,
        f: impl for<'py> FnOnce(Python<'py>) -> PyResult<()> + Send + 'static,
    ) -> PyResult<()> {
        let running = self.running.get().or_raise(py)?;
        running.call.on_end(move |_| {
            // Not when the interpreter ends: then nobody is left to be told.
            Python::try_attach(|py| {
                if let Err(error) = f(py) {
                    error.write_unraisable(py, None);
                }
            });
        });
        Ok(())
    }
}

#[pymethods]
impl Pending {
    /// The result. TimeoutError after the timeout, in seconds; the call then goes on.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let patience = seconds("timeout", timeout)?;
        self.result(py, patience)
    }

    /// Whether the call has ended.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let running = self.running.get().or_raise(py)?;
        let has_ended = running.call.outcome().is_some();
        if has_ended {
            running.give_back();
        }
        Ok(has_ended)
    }

    /// Calls `f` once with this, when the call has ended: at once if it has, else in a thread of
    /// potluck.
    #[pyo3(signature = (f, /))]
    fn add_done_callback(slf: &Bound<'_, Self>, f: Py<PyAny>) -> PyResult<()> {
        let me = slf.clone().unbind();
        slf.get().when_ended(slf.py(), move |py| f.call1(py, (me,)).map(drop))
    }

    /// Whether it has ended, after so many seconds at most. Raises the exception of a signal's
    /// handler, and no error of the call.
    #[pyo3(signature = (timeout = None))]
    fn _ended(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let running = self.running.get().or_raise(py)?;
        let has_ended = wait(py, &running.call, seconds("timeout", timeout)?)?;
        if has_ended {
            running.give_back();
        }
        Ok(has_ended)
    }

    #[pyo3(signature = (f, /))]
    fn _when_ended(&self, py: Python<'_>, f: Py<PyAny>) -> PyResult<()> {
        self.when_ended(py, move |py| f.call0(py).map(drop))
    }

    /// Gives it up, as the drop of this does.
    fn _give_up(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.get().or_raise(py)?;
        // A function that is told of the end may be waiting for the interpreter.
        py.detach(|| running.call.give_up());
        running.give_back();
        Ok(())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let ended = slf.py().import("potluck._awaiting")?.getattr("ended")?;
        ended.call1((slf,))?.call_method0("__await__")
    }

    /// For annotations: `Pending[int]`.
    #[classmethod]
    #[pyo3(signature = (item, /))]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }

    fn __repr__(&self) -> String {
        let state = match self.running.get().map(|running| running.call.outcome()) {
            Err(_) | Ok(Some(Err(Failure::Forked))) => "of another process",
            Ok(None) => "under way",
            Ok(Some(Ok(_))) => "done",
            Ok(Some(Err(failure))) => failure.code(),
        };
        format!("<potluck.Pending: {state}>")
    }
}

impl Running {
    /// The exporters of the memory get it back.
    fn give_back(&self) {
        let buffers = {
            let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *buffers)
        };
        drop(buffers);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A function that is told of the end may be waiting for the interpreter.
        let detached = Python::try_attach(|py| py.detach(|| self.call.give_up()));
        if detached.is_none() {
            self.call.give_up();
        }
    }
}
