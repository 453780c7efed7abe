//! Several calls with one vote.

use super::asked::operator;
use super::buffer::Buffer;
use super::codec::Codec;
use super::error::{OrRaise, wrong};
use super::lease::Lease;
use super::pending::returned;
use super::results::{Gives, gathered, out_or_new};
use super::waiting::seconds;
use potluck_foreign::{Failure, Memory, Options, ProcessLocal, SharedContext, SharedStep};
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls that are committed together.
#[pyclass(frozen, module = "potluck")]
pub struct Step {
    parts: ProcessLocal<Mutex<Option<Parts>>>,
    shared: ProcessLocal<SharedContext>,
}

struct Parts {
    step: SharedStep,
    leases: Vec<Lease>,
    reject_non_finite: bool,
}

impl Step {
    /// A step of this Context, without calls.
    pub fn of(shared: &SharedContext, reject_non_finite: bool) -> Step {
        let parts = Parts { step: shared.step(), leases: Vec::new(), reject_non_finite };
        let parts = ProcessLocal::new(Mutex::new(Some(parts)));
        Step { parts, shared: ProcessLocal::new(shared.clone()) }
    }

    fn parts(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Parts>>> {
        let parts = self.parts.get().or_raise(py)?;
        Ok(parts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a call with these buffers.
    fn add(
        &self,
        py: Python<'_>,
        buffers: Vec<Buffer>,
        add: impl FnOnce(&mut SharedStep) -> Result<(), Failure>,
    ) -> PyResult<()> {
        self.parts.get().or_raise(py)?;
        let lease = Lease::of(py, buffers)?;
        let mut parts = self.parts(py)?;
        let Some(Parts { step, leases, .. }) = &mut *parts else {
            drop(parts);
            return Err(wrong(py, "this step is committed; begin another one"));
        };
        let added = add(step);
        // The buffers of a call that is refused are free again.
        let refused = match added {
            Ok(()) => {
                leases.push(lease);
                None
            }
            Err(_) => Some(lease),
        };
        drop(parts);
        drop(refused);
        added.or_raise(py)
    }

    /// Adds a call that reads one buffer and writes another one, which it returns.
    fn add_moved(
        &self,
        py: Python<'_>,
        input: Buffer,
        out: Bound<'_, PyAny>,
        add: impl FnOnce(&mut SharedStep, Memory, Memory) -> Result<(), Failure>,
    ) -> PyResult<Py<PyAny>> {
        let place = Buffer::to_write(&out)?;
        let (from, to) = (input.memory(py)?, place.memory(py)?);
        self.add(py, vec![input, place], |step| add(step, from, to))?;
        Ok(out.unbind())
    }

    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared.get().or_raise(py)?.context().or_raise(py)?.size())
    }
}

#[pymethods]
impl Step {
    /// As that of the Context.
    #[pyo3(signature = (buffer, op = "sum", *, codec = None, weight = None))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        buffer: Bound<'_, PyAny>,
        op: &str,
        codec: Option<&Bound<'_, Codec>>,
        weight: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let (op, place) = (operator(py, op)?, Buffer::to_write(&buffer)?);
        let (memory, codec) = (place.memory(py)?, codec.map(|codec| codec.get().shared()));
        let options = Options { codec, weight, ..Options::default() };
        self.add(py, vec![place], |step| step.all_reduce(memory, op, &options))?;
        Ok(buffer.unbind())
    }

    /// As that of the Context.
    #[pyo3(signature = (buffer, root = 0, op = "sum"))]
    fn reduce(
        &self,
        py: Python<'_>,
        buffer: Bound<'_, PyAny>,
        root: usize,
        op: &str,
    ) -> PyResult<Py<PyAny>> {
        let (op, place) = (operator(py, op)?, Buffer::to_write(&buffer)?);
        let memory = place.memory(py)?;
        self.add(py, vec![place], |step| step.reduce(memory, root, op))?;
        Ok(buffer.unbind())
    }

    /// As that of the Context.
    #[pyo3(signature = (buffer, root = 0))]
    fn broadcast(
        &self,
        py: Python<'_>,
        buffer: Bound<'_, PyAny>,
        root: usize,
    ) -> PyResult<Py<PyAny>> {
        let place = Buffer::to_write(&buffer)?;
        let memory = place.memory(py)?;
        self.add(py, vec![place], |step| step.broadcast(memory, root))?;
        Ok(buffer.unbind())
    }

    /// As that of the Context; the object that it returns is written by the commit.
    #[pyo3(signature = (buffer, op = "sum", *, out = None))]
    fn reduce_scatter<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        op: &str,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (op, input) = (operator(py, op)?, Buffer::to_read(buffer)?);
        let shard =
            self.shared.get().or_raise(py)?.context().or_raise(py)?.shard(input.count()).len();
        let out = out_or_new(py, out, buffer, &[shard], input.dtype())?;
        self.add_moved(py, input, out, |step, from, to| step.reduce_scatter(from, to, op))
    }

    /// As that of the Context; the object that it returns is written by the commit.
    #[pyo3(signature = (buffer, *, out = None))]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let input = Buffer::to_read(buffer)?;
        let out = out_or_new(py, out, buffer, &gathered(self.size(py)?, &input), input.dtype())?;
        self.add_moved(py, input, out, SharedStep::all_gather)
    }

    /// As that of the Context; the object that it returns is written by the commit.
    #[pyo3(signature = (buffer, *, out = None))]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let input = Buffer::to_read(buffer)?;
        let out = out_or_new(py, out, buffer, input.shape(), input.dtype())?;
        self.add_moved(py, input, out, SharedStep::all_to_all)
    }

    /// Makes all of these calls.
    #[pyo3(signature = (*, deadline = None, async_op = false))]
    fn commit(&self, py: Python<'_>, deadline: Option<f64>, async_op: bool) -> PyResult<Py<PyAny>> {
        let deadline = seconds("deadline", deadline)?;
        let taken = self.parts(py)?.take();
        let Some(Parts { step, leases, reject_non_finite }) = taken else {
            return Err(wrong(py, "this step is committed"));
        };
        let options = Options { deadline, reject_non_finite, ..Options::default() };
        let call = py.detach(|| step.commit(&options)).or_raise(py)?;
        returned(py, call, leases, Gives::Object(None), async_op)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind = None, _value = None, _trace = None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_some() {
            let abandoned = self.parts(py)?.take();
            drop(abandoned);
        } else if self.parts(py)?.is_some() {
            self.commit(py, None, false)?;
        }
        Ok(())
    }
}
