//! The node of this process in its group.

use super::context::Context;
use super::error::OrRaise;
use super::events::Events;
use super::process::executor;
use super::settings::{self, Settings};
use super::waiting::{done, seconds};
use potluck::Error;
use potluck::report::document::StatusDocument;
use potluck_foreign::{Call, Executor, Failure, ProcessLocal, SharedContext};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// A running node; empty when it has left.
type Node = Mutex<Option<potluck::Cluster>>;

/// Keeps a node among those that Python leaves with at its end, also without its [`Cluster`].
pub type KeptNode = ProcessLocal<Arc<Node>>;

/// All nodes of this process and of those that it is a fork of.
static NODES: Mutex<Vec<ProcessLocal<Weak<Node>>>> = Mutex::new(Vec::new());

/// A running node of a group.
#[pyclass(frozen, weakref, module = "potluck")]
pub struct Cluster {
    node: KeptNode,
}

#[pyfunction]
#[pyo3(signature = (
    namespace = None, *, key = None, open_lan = None, loopback = false, job = None, members = None,
    min_members = None, max_members = None, peers = None, interfaces = None, name = None,
    home = None, engine = None, partition = None, stateless = false, notices = None,
))]
pub fn join(
    py: Python<'_>,
    namespace: Option<String>,
    key: Option<String>,
    open_lan: Option<String>,
    loopback: bool,
    job: Option<String>,
    members: Option<usize>,
    min_members: Option<usize>,
    max_members: Option<usize>,
    peers: Option<Vec<String>>,
    interfaces: Option<String>,
    name: Option<String>,
    home: Option<PathBuf>,
    engine: Option<String>,
    partition: Option<String>,
    stateless: bool,
    notices: Option<bool>,
) -> PyResult<Cluster> {
    let settings = Settings {
        namespace,
        key,
        open_lan,
        loopback,
        job,
        members,
        min_members,
        max_members,
        peers: peers.unwrap_or_default(),
        interfaces,
        name,
        home,
        engine,
        partition,
        stateless,
        notices,
    };
    let config = settings.config(&settings::program(py)?).or_raise(py)?;
    let cluster = done(py, None, async { Ok(potluck::Cluster::join_with(config).await?) })?;
    let node = Arc::new(Mutex::new(Some(cluster)));
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.retain(|node| node.get().is_ok_and(|node| node.strong_count() > 0));
    nodes.push(ProcessLocal::new(Arc::downgrade(&node)));
    Ok(Cluster { node: ProcessLocal::new(node) })
}

/// Leaves with all nodes of this process. Python calls it at its end.
#[pyfunction(name = "_leave_all")]
pub fn leave_all(py: Python<'_>) {
    // In a fork, the lock may be that of a thread which is not here.
    let Ok(nodes) = NODES.try_lock().map(|mut nodes| std::mem::take(&mut *nodes)) else { return };
    let Ok(executor) = executor(py) else { return };
    py.detach(|| {
        let here = nodes.iter().filter_map(|node| node.get().ok()?.upgrade());
        let leaving: Vec<_> =
            here.filter_map(|node| locked(&node).take()).map(|c| left(&executor, c)).collect();
        for call in leaving {
            let _ = call.wait(Some(LEAVES_WITHIN));
        }
    });
}

/// The longest time in which a node leaves that the end of Python waits for.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

fn left(executor: &Executor, cluster: potluck::Cluster) -> Call<()> {
    Call::begin(executor, async move {
        cluster.leave().await;
        Ok(())
    })
}

fn locked(node: &Node) -> MutexGuard<'_, Option<potluck::Cluster>> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// A handle of the node.
    ///
    /// # Errors
    /// Closed when it has left, Forked in a fork.
    pub fn handle(&self, py: Python<'_>) -> PyResult<potluck::Cluster> {
        let handle = locked(self.node.get().or_raise(py)?).clone();
        handle.ok_or(Failure::Call(Error::Closed)).or_raise(py)
    }

    /// The node, for an object that may live longer than this.
    pub fn kept(&self) -> KeptNode {
        self.node.clone()
    }
}

#[pymethods]
impl Cluster {
    /// Waits for a View: a group of enough members. NotEnoughPeers after the timeout, in seconds.
    #[pyo3(signature = (timeout = None))]
    fn context(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Context> {
        let (cluster, patience) = (self.handle(py)?, seconds("timeout", timeout)?);
        let executor = executor(py)?;
        let context = done(py, None, async move {
            let context = match patience {
                Some(patience) => cluster.context_within(patience).await?,
                None => cluster.context().await?,
            };
            Ok(SharedContext::new(context, &executor))
        })?;
        Ok(Context::of(context, self.kept()))
    }

    /// The document that `potluck status --json` prints of this node, as a dict.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let document = StatusDocument::from(&self.handle(py)?.status());
        let text = serde_json::to_string(&document);
        let text = text.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// The events of the group from now on: an iterator of dicts.
    fn events(&self, py: Python<'_>) -> PyResult<Events> {
        Ok(self.handle(py)?.events().into())
    }

    /// Leaves the group. The other members go on at once; open calls of this node end
    /// with Indeterminate, later ones with Closed.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let cluster = locked(self.node.get().or_raise(py)?).take();
        match cluster {
            Some(cluster) => done(py, None, async move {
                cluster.leave().await;
                Ok(())
            }),
            None => Ok(()),
        }
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        // A fork that leaves the block of its parent has nothing to leave.
        if self.node.get().is_ok() { self.leave(py) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        match self.node.get() {
            Err(_) => "<potluck.Cluster: of another process>".to_owned(),
            Ok(node) => match &*locked(node) {
                Some(cluster) => format!("<potluck.{cluster:?}>"),
                None => "<potluck.Cluster: has left>".to_owned(),
            },
        }
    }
}
