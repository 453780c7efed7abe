//! The calls on one View.

use super::asked::{Asked, operator};
use super::buffer::Buffer;
use super::cluster::KeptNode;
use super::codec::Codec;
use super::error::OrRaise;
use super::events::hex;
use super::lease::Lease;
use super::pending::returned;
use super::process::executor;
use super::results::{self, Gives, gathered, out_or_new};
use super::step::Step;
use super::waiting::{done, seconds};
use potluck_foreign::{Call, Failure, Memory, Options, ProcessLocal, Reply, SharedContext};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyList;

/// The place of this node in one View, and its calls.
#[pyclass(frozen, weakref, module = "potluck")]
pub struct Context {
    shared: ProcessLocal<SharedContext>,
    node: KeptNode,
}

type Begun = Result<Call<Reply>, Failure>;

impl Context {
    /// The Context of a View that this node is in.
    pub fn of(shared: SharedContext, node: KeptNode) -> Context {
        Context { shared: ProcessLocal::new(shared), node }
    }

    fn shared(&self, py: Python<'_>) -> PyResult<&SharedContext> {
        self.shared.get().or_raise(py)
    }

    fn size_of(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared(py)?.context().or_raise(py)?.size())
    }

    /// Makes a call with these buffers.
    fn call(
        &self,
        py: Python<'_>,
        buffers: Vec<Buffer>,
        gives: Gives,
        asked: &Asked,
        begin: impl FnOnce(&SharedContext, &Options) -> Begun + Send,
    ) -> PyResult<Py<PyAny>> {
        let (shared, options) = (self.shared(py)?, &asked.options);
        let lease = Lease::of(py, buffers)?;
        let call = py.detach(|| begin(shared, options)).or_raise(py)?;
        returned(py, call, vec![lease], gives, asked.async_op)
    }
}

#[pymethods]
impl Context {
    /// The rank of this node.
    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared(py)?.context().or_raise(py)?.rank().index())
    }

    /// The number of members.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        self.size_of(py)
    }

    /// The View's identifier.
    #[getter]
    fn view(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.shared(py)?.context().or_raise(py)?.view())
    }

    /// The members, in rank order.
    #[getter]
    fn members<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let members = self.shared(py)?.context().or_raise(py)?.members();
        let peer = py.import("potluck._peer")?.getattr("Peer")?;
        let peers = members.iter().map(|member| {
            peer.call1((member.rank.index(), member.name.as_str(), hex(member.node)))
        });
        PyList::new(py, peers.collect::<PyResult<Vec<_>>>()?)
    }

    /// Whether the members hold the same state. If not, all calls but `sync` raise NeedsSync.
    #[getter]
    fn in_sync(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.shared(py)?.context().or_raise(py)?.is_in_sync())
    }

    /// The engine that new calls run on.
    #[getter]
    fn engine(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.shared(py)?.context().or_raise(py)?.engine().to_string())
    }

    /// Begin and end of the part of so many elements that `reduce_scatter` gives this rank.
    fn shard(&self, py: Python<'_>, length: usize) -> PyResult<(usize, usize)> {
        let shard = self.shared(py)?.context().or_raise(py)?.shard(length);
        Ok((shard.start, shard.end))
    }

    /// Combines the buffers of all ranks, in place; returns the buffer. With a weight: a weighted
    /// mean.
    #[pyo3(signature = (
        buffer, op = "sum", *, codec = None, weight = None, deadline = None,
        reject_non_finite = false, best_effort = false, async_op = false,
    ))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        op: &str,
        codec: Option<&Bound<'_, Codec>>,
        weight: Option<f64>,
        deadline: Option<f64>,
        reject_non_finite: bool,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?.non_finite(reject_non_finite);
        let asked = asked.coded(codec.map(Bound::get)).weighted(weight);
        let (op, place) = (operator(py, op)?, Buffer::to_write(buffer)?);
        let memory = place.memory(py)?;
        self.call(py, vec![place], same(buffer), &asked, move |on, options| {
            on.all_reduce(memory, op, options)
        })
    }

    /// Combines the buffers of all ranks in that of the root, in place; returns the buffer.
    #[pyo3(signature = (
        buffer, root = 0, op = "sum", *, deadline = None, reject_non_finite = false,
        best_effort = false, async_op = false,
    ))]
    fn reduce(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        root: usize,
        op: &str,
        deadline: Option<f64>,
        reject_non_finite: bool,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?.non_finite(reject_non_finite);
        let (op, place) = (operator(py, op)?, Buffer::to_write(buffer)?);
        let memory = place.memory(py)?;
        self.call(py, vec![place], same(buffer), &asked, move |on, options| {
            on.reduce(memory, root, op, options)
        })
    }

    /// Copies the buffer of the root into those of all ranks; returns the buffer.
    #[pyo3(signature = (
        buffer, root = 0, *, deadline = None, best_effort = false, async_op = false,
    ))]
    fn broadcast(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        root: usize,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let place = Buffer::to_write(buffer)?;
        let memory = place.memory(py)?;
        self.call(py, vec![place], same(buffer), &asked, move |on, options| {
            on.broadcast(memory, root, options)
        })
    }

    /// Combines the buffers of all ranks; returns this rank's `shard` of the result, in one axis.
    #[pyo3(signature = (
        buffer, op = "sum", *, out = None, deadline = None, reject_non_finite = false,
        best_effort = false, async_op = false,
    ))]
    fn reduce_scatter<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        op: &str,
        out: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        reject_non_finite: bool,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?.non_finite(reject_non_finite);
        let (op, input) = (operator(py, op)?, Buffer::to_read(buffer)?);
        let shard = self.shared(py)?.context().or_raise(py)?.shard(input.count()).len();
        let out = out_or_new(py, out, buffer, &[shard], input.dtype())?;
        self.moved(py, input, &out, &asked, move |on, from, to, options| {
            on.reduce_scatter(from, to, op, options)
        })
    }

    /// Returns the buffers of all ranks, in a new first axis.
    #[pyo3(signature = (
        buffer, *, out = None, deadline = None, best_effort = false, async_op = false,
    ))]
    fn all_gather<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let shape = gathered(self.size_of(py)?, &input);
        let out = out_or_new(py, out, buffer, &shape, input.dtype())?;
        self.moved(py, input, &out, &asked, SharedContext::all_gather)
    }

    /// Sends an equal part of the buffer to each rank; returns the parts for this rank.
    #[pyo3(signature = (
        buffer, *, out = None, deadline = None, best_effort = false, async_op = false,
    ))]
    fn all_to_all<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let shape = input.shape().to_vec();
        let out = out_or_new(py, out, buffer, &shape, input.dtype())?;
        self.moved(py, input, &out, &asked, SharedContext::all_to_all)
    }

    /// As `all_gather`, at the root; None elsewhere.
    #[pyo3(signature = (
        buffer, root = 0, *, out = None, deadline = None, best_effort = false, async_op = false,
    ))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        buffer: &Bound<'py, PyAny>,
        root: usize,
        out: Option<Bound<'py, PyAny>>,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let from = input.memory(py)?;
        if self.rank(py)? != root {
            let nothing = Gives::Object(None);
            return self.call(py, vec![input], nothing, &asked, move |on, options| {
                on.gather(from, None, root, options)
            });
        }
        let shape = gathered(self.size_of(py)?, &input);
        let out = out_or_new(py, out, buffer, &shape, input.dtype())?;
        self.moved(py, input, &out, &asked, move |on, from, to, options| {
            on.gather(from, Some(to), root, options)
        })
    }

    /// The root gives the parts of all ranks; each rank's buffer gets its own, and is returned.
    #[pyo3(signature = (
        buffer, parts = None, root = 0, *, deadline = None, best_effort = false, async_op = false,
    ))]
    fn scatter(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        parts: Option<&Bound<'_, PyAny>>,
        root: usize,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let place = Buffer::to_write(buffer)?;
        let is_root = self.rank(py)? == root;
        let parts = parts.filter(|_| is_root).map(Buffer::to_read).transpose()?;
        let from = parts.as_ref().map(|parts| parts.memory(py)).transpose()?;
        let to = place.memory(py)?;
        let buffers = [Some(place), parts].into_iter().flatten().collect();
        self.call(py, buffers, same(buffer), &asked, move |on, options| {
            on.scatter(from, to, root, options)
        })
    }

    /// The buffers of all ranks, each of its own length: a list of one object for each rank.
    #[pyo3(signature = (buffer, *, deadline = None, async_op = false))]
    fn all_gather_uneven(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        deadline: Option<f64>,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, false, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let (from, gives) = (input.memory(py)?, Gives::Parts(buffer.clone().unbind()));
        results::new(py, Some(buffer), &[0], input.dtype())?;
        self.call(py, vec![input], gives, &asked, move |on, options| {
            on.all_gather_uneven(from, options)
        })
    }

    /// Sends `lengths[0]` elements to rank 0, and so on; returns a list of those from each rank.
    #[pyo3(signature = (buffer, lengths, *, deadline = None, async_op = false))]
    fn all_to_all_uneven(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        lengths: Vec<usize>,
        deadline: Option<f64>,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, false, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let (from, gives) = (input.memory(py)?, Gives::Parts(buffer.clone().unbind()));
        results::new(py, Some(buffer), &[0], input.dtype())?;
        self.call(py, vec![input], gives, &asked, move |on, options| {
            on.all_to_all_uneven(from, lengths, options)
        })
    }

    /// Sends a message. It ends when the receiver has it.
    #[pyo3(signature = (
        buffer, to, tag = 0, *, deadline = None, best_effort = false, async_op = false,
    ))]
    fn send(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        to: usize,
        tag: u32,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let input = Buffer::to_read(buffer)?;
        let memory = input.memory(py)?;
        self.call(py, vec![input], Gives::Object(None), &asked, move |on, options| {
            on.send(memory, to, tag, options)
        })
    }

    /// Receives a message of the rank `source`, or the next one with this tag of any rank. Returns
    /// the rank of the sender.
    #[pyo3(signature = (
        buffer, source = None, tag = 0, *, deadline = None, best_effort = false, async_op = false,
    ))]
    fn recv(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        source: Option<usize>,
        tag: u32,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        let place = Buffer::to_write(buffer)?;
        let memory = place.memory(py)?;
        self.call(py, vec![place], Gives::From, &asked, move |on, options| {
            on.recv(memory, source, tag, options)
        })
    }

    /// Waits for all ranks.
    #[pyo3(signature = (*, deadline = None, best_effort = false, async_op = false))]
    fn barrier(
        &self,
        py: Python<'_>,
        deadline: Option<f64>,
        best_effort: bool,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, best_effort, async_op)?;
        self.call(py, Vec::new(), Gives::Object(None), &asked, SharedContext::barrier)
    }

    /// Returns the state of the member that is furthest along; `version` decides among equals.
    #[pyo3(signature = (version, state, *, deadline = None, async_op = false))]
    fn sync(
        &self,
        py: Python<'_>,
        version: u64,
        state: PyBackedBytes,
        deadline: Option<f64>,
        async_op: bool,
    ) -> PyResult<Py<PyAny>> {
        let asked = Asked::of(deadline, false, async_op)?;
        self.call(py, Vec::new(), Gives::State, &asked, move |on, options| {
            on.sync(version, state.to_vec(), options)
        })
    }

    /// Several calls with one vote: all of their results are written, or none.
    #[pyo3(signature = (*, reject_non_finite = false))]
    fn step(&self, py: Python<'_>, reject_non_finite: bool) -> PyResult<Step> {
        Ok(Step::of(self.shared(py)?, reject_non_finite))
    }

    /// Another sequence of calls in this View, for another thread. Each tag once.
    fn lane(&self, py: Python<'_>, tag: u32) -> PyResult<Context> {
        let lane = self.shared(py)?.lane(tag).or_raise(py)?;
        Ok(Context::of(lane, self.node.clone()))
    }

    /// The calls of some ranks among themselves; these ranks make it, with their own one.
    #[pyo3(signature = (ranks, tag = 0))]
    fn group(&self, py: Python<'_>, ranks: Vec<usize>, tag: u32) -> PyResult<Context> {
        let group = self.shared(py)?.group(&ranks, tag).or_raise(py)?;
        Ok(Context::of(group, self.node.clone()))
    }

    /// The Context of the newest View. TimeoutError after the timeout, in seconds.
    #[pyo3(signature = (timeout = None))]
    fn renewed(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Context> {
        let renewed = self.shared(py)?.context().or_raise(py)?.renewed();
        let patience = seconds("timeout", timeout)?;
        let executor = executor(py)?;
        let context =
            done(py, patience, async move { Ok(SharedContext::new(renewed.await?, &executor)) })?;
        Ok(Context::of(context, self.node.clone()))
    }

    /// The result of a call that was given up and took effect anyway, in one axis; else None.
    fn take_result<'py>(
        &self,
        py: Python<'py>,
        dtype: &str,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let dtype = results::dtype(dtype)
            .ok_or_else(|| PyTypeError::new_err(format!("there is no dtype {dtype:?}")))?;
        // Before the result is taken: it would be lost.
        results::new(py, None, &[0], dtype)?;
        // The lock ends before Python runs, which may let a thread run that waits for it.
        let bytes: Option<Vec<u8>> = {
            let mut context = self.shared(py)?.context().or_raise(py)?;
            // By elements of the same width: a result of another length stays.
            match dtype.bytes() {
                1 => context.take_result::<u8>(),
                2 => context
                    .take_result::<u16>()
                    .map(|of| of.into_iter().flat_map(u16::to_le_bytes).collect()),
                4 => context
                    .take_result::<u32>()
                    .map(|of| of.into_iter().flat_map(u32::to_le_bytes).collect()),
                _ => context
                    .take_result::<u64>()
                    .map(|of| of.into_iter().flat_map(u64::to_le_bytes).collect()),
            }
        };
        bytes.map(|bytes| results::filled(py, None, &bytes, dtype)).transpose()
    }

    /// Discards that result; False if there is none.
    fn discard_result(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.shared(py)?.context().or_raise(py)?.discard_result())
    }

    fn __repr__(&self) -> String {
        match self.shared.get().map(SharedContext::context) {
            Ok(Ok(context)) => format!("<potluck.{context:?}>"),
            Ok(Err(_)) | Err(_) => "<potluck.Context: of another process>".to_owned(),
        }
    }
}

impl Context {
    /// Makes a call that reads one buffer and writes another one, which it returns.
    fn moved(
        &self,
        py: Python<'_>,
        input: Buffer,
        out: &Bound<'_, PyAny>,
        asked: &Asked,
        begin: impl FnOnce(&SharedContext, Memory, Memory, &Options) -> Begun + Send,
    ) -> PyResult<Py<PyAny>> {
        let place = Buffer::to_write(out)?;
        let (from, to) = (input.memory(py)?, place.memory(py)?);
        self.call(py, vec![input, place], same(out), asked, move |on, options| {
            begin(on, from, to, options)
        })
    }
}

/// A call in place returns its buffer.
fn same(buffer: &Bound<'_, PyAny>) -> Gives {
    Gives::Object(Some(buffer.clone().unbind()))
}
