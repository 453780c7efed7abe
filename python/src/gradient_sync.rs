//! Means of gradients, while the backward pass continues.

use super::buffer::Buffer;
use super::cluster::{Cluster, KeptNode};
use super::codec::Codec;
use super::context::Context;
use super::error::{OrRaise, late, wrong};
use super::lease::Lease;
use super::pending::returned;
use super::process::executor;
use super::results::Gives;
use super::waiting::{done, seconds, wait};
use potluck_foreign::{Call, Failure, ProcessLocal, Reply, SharedContext};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The gradients of a model, averaged step by step.
#[pyclass(frozen, module = "potluck")]
pub struct GradientSync {
    sync: ProcessLocal<Shared>,
    cluster: ProcessLocal<potluck::Cluster>,
    node: KeptNode,
    is_open: IsOpen,
}

/// One step has it at a time.
type Shared = Arc<tokio::sync::Mutex<potluck::GradientSync>>;

/// Whether there is a step that is neither finished nor given up: another one would wait for it
/// without bound.
type IsOpen = Arc<AtomicBool>;

/// One step of it.
#[pyclass(frozen, module = "potluck")]
pub struct GradientStep {
    work: ProcessLocal<Mutex<Option<Work>>>,
    place: (usize, usize),
    is_open: IsOpen,
}

/// The call that makes the step, and its orders.
struct Work {
    call: Call<Reply>,
    orders: mpsc::UnboundedSender<Order>,
    leases: Vec<Lease>,
}

/// An order of a program to its step.
enum Order {
    /// Here is the gradient of a parameter.
    Push(usize, &'static mut [f32]),
    /// That was all of them.
    Finish,
}

#[pymethods]
impl GradientSync {
    #[new]
    #[pyo3(signature = (cluster, lens, *, codec = None, bucket_bytes = 1048576))]
    fn new(
        py: Python<'_>,
        cluster: &Bound<'_, Cluster>,
        lens: Vec<usize>,
        codec: Option<&Bound<'_, Codec>>,
        bucket_bytes: usize,
    ) -> PyResult<GradientSync> {
        let (cluster, node) = (cluster.get().handle(py)?, cluster.get().kept());
        let sync = potluck::GradientSync::new(&cluster, &lens).bucket_bytes(bucket_bytes);
        let sync = match codec {
            Some(codec) => sync.compress(codec.get().copy()),
            None => sync,
        };
        let sync = ProcessLocal::new(Arc::new(tokio::sync::Mutex::new(sync)));
        let cluster = ProcessLocal::new(cluster);
        Ok(GradientSync { sync, cluster, node, is_open: IsOpen::default() })
    }

    /// The newest View, in the lane of the gradients: for a `sync` before a step.
    #[pyo3(signature = (timeout = None))]
    fn context(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Context> {
        let cluster = self.cluster.get().or_raise(py)?.clone();
        let patience = seconds("timeout", timeout)?;
        let executor = executor(py)?;
        let context = done(py, patience, async move {
            let newest = cluster.context().await?;
            Ok(SharedContext::new(newest.lane(potluck::GradientSync::LANE), &executor))
        })?;
        Ok(Context::of(context, self.node.clone()))
    }

    /// Begins a step, when the one before is finished or given up. TimeoutError if it has not begun
    /// within the timeout, in seconds.
    #[pyo3(signature = (*, weight = None, deadline = None, timeout = None))]
    fn step(
        &self,
        py: Python<'_>,
        weight: Option<f64>,
        deadline: Option<f64>,
        timeout: Option<f64>,
    ) -> PyResult<GradientStep> {
        let sync = Arc::clone(self.sync.get().or_raise(py)?);
        let terms = Terms { weight, deadline: seconds("deadline", deadline)? };
        let patience = seconds("timeout", timeout)?;
        if self.is_open.swap(true, Ordering::AcqRel) {
            return Err(wrong(py, "the step before is open; finish it or drop it"));
        }
        let step = begun(py, sync, terms, patience, &self.is_open);
        if step.is_err() {
            self.is_open.store(false, Ordering::Release);
        }
        step
    }
}

/// A step that has begun.
fn begun(
    py: Python<'_>,
    sync: Shared,
    terms: Terms,
    patience: Option<Duration>,
    is_open: &IsOpen,
) -> PyResult<GradientStep> {
    let (orders, inbox) = mpsc::unbounded_channel();
    let (tell, told) = oneshot::channel();
    let executor = executor(py)?;
    let call = py.detach(|| Call::begin(&executor, carried_out(sync, terms, inbox, tell)));
    // If the step does not begin, its call says why.
    let begun = py.detach(|| Call::begin(&executor, async { Ok(told.await.ok()) }));
    let in_time = wait(py, &begun, patience);
    let place = begun.outcome().and_then(|told| told.as_ref().ok().copied().flatten());
    let step = match (in_time, place) {
        (Ok(true), Some(place)) => {
            let work = Work { call, orders, leases: Vec::new() };
            let work = ProcessLocal::new(Mutex::new(Some(work)));
            return Ok(GradientStep { work, place, is_open: Arc::clone(is_open) });
        }
        (Ok(true), None) => returned(py, call, Vec::new(), Gives::Object(None), false),
        (Ok(false), _) => {
            py.detach(|| drop(call));
            Err(late())
        }
        (Err(error), _) => {
            py.detach(|| drop(call));
            Err(error)
        }
    };
    step.and(Err(wrong(py, "the step has ended before it began")))
}

struct Terms {
    weight: Option<f64>,
    deadline: Option<Duration>,
}

/// Makes one step, as it is told.
async fn carried_out(
    sync: Shared,
    terms: Terms,
    mut inbox: mpsc::UnboundedReceiver<Order>,
    tell: oneshot::Sender<(usize, usize)>,
) -> Result<Reply, Failure> {
    let mut sync = sync.lock().await;
    match terms.weight {
        Some(weight) => sync.weighted(weight),
        // An earlier step that has not begun may have left its weight.
        None => sync.unweighted(),
    };
    let mut step = sync.step().await?;
    if let Some(deadline) = terms.deadline {
        step.deadline(deadline);
    }
    // Nobody hears it if the program has given up.
    let _ = tell.send((step.rank().index(), step.size()));
    loop {
        match inbox.recv().await {
            Some(Order::Push(parameter, gradient)) => step.push(parameter, gradient),
            Some(Order::Finish) => break,
            None => return Err(Failure::GivenUp),
        }
    }
    step.finish().await?;
    Ok(Reply::Done)
}

impl GradientStep {
    fn work(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Work>>> {
        let work = self.work.get().or_raise(py)?;
        Ok(work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn give_up(&self, py: Python<'_>) -> PyResult<()> {
        let abandoned = self.work(py)?.take();
        if let Some(Work { call, leases, .. }) = abandoned {
            py.detach(|| drop(call));
            drop(leases);
            self.is_open.store(false, Ordering::Release);
        }
        Ok(())
    }
}

#[pymethods]
impl GradientStep {
    /// This node's rank in the View of the step.
    #[getter]
    fn rank(&self) -> usize {
        self.place.0
    }

    /// The number of members of that View.
    #[getter]
    fn size(&self) -> usize {
        self.place.1
    }

    /// The gradient of a parameter. Leave it alone until the step has ended, which writes the mean
    /// to it.
    fn push(&self, py: Python<'_>, parameter: usize, gradient: &Bound<'_, PyAny>) -> PyResult<()> {
        self.work.get().or_raise(py)?;
        let buffer = Buffer::to_write(gradient)?;
        let not_floats = || PyTypeError::new_err("a gradient has aligned elements of f32");
        let lease_of = |buffer| Lease::of(py, vec![buffer]);
        let gradient = buffer.floats().ok_or_else(not_floats)?;
        let lease = lease_of(buffer)?;
        let mut work = self.work(py)?;
        let Some(work) = &mut *work else {
            drop(work);
            return Err(wrong(py, "this step has ended; begin another one"));
        };
        work.leases.push(lease);
        // If it has ended, `finish` says why.
        let _ = work.orders.send(Order::Push(parameter, gradient));
        Ok(())
    }

    /// Waits until all members have the means, and writes them to the gradients.
    #[pyo3(signature = (*, async_op = false))]
    fn finish(&self, py: Python<'_>, async_op: bool) -> PyResult<Py<PyAny>> {
        let work = self.work(py)?.take();
        let Some(Work { call, orders, leases }) = work else {
            return Err(wrong(py, "this step has ended"));
        };
        // The next step waits for the end of this one.
        self.is_open.store(false, Ordering::Release);
        let _ = orders.send(Order::Finish);
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
            self.give_up(py)?;
        } else if self.work(py)?.is_some() {
            self.finish(py, false)?;
        }
        Ok(())
    }
}

impl Drop for GradientStep {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            // In a fork there is nothing to give up.
            let _ = self.give_up(py);
        });
    }
}
