//! The events of a group, as dicts.

use super::error::OrRaise;
use super::waiting::done;
use potluck::report::NodeInfo;
use potluck::{Event, EventStream, NodeId, Peer};
use potluck_foreign::ProcessLocal;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::fmt::Write;
use std::sync::Arc;
use tokio::sync::Mutex;

/// An iterator over the events of a group. It ends when the node has left.
#[pyclass(frozen, module = "potluck")]
pub struct Events {
    stream: ProcessLocal<Arc<Mutex<EventStream>>>,
}

impl From<EventStream> for Events {
    fn from(stream: EventStream) -> Events {
        Events { stream: ProcessLocal::new(Arc::new(Mutex::new(stream))) }
    }
}

#[pymethods]
impl Events {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let stream = Arc::clone(self.stream.get().or_raise(py)?);
        let next = done(py, None, async move { Ok(stream.lock().await.next().await) })?;
        next.map(|event| described(py, &event)).transpose()
    }
}

/// The event with its `kind`, its `text` and its fields.
fn described<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = match event {
        Event::Installed { view, members, in_sync } => {
            dict.set_item("view", view.to_string())?;
            let members = members.iter().map(|peer| of_peer(py, peer));
            dict.set_item("members", PyList::new(py, members.collect::<PyResult<Vec<_>>>()?)?)?;
            dict.set_item("in_sync", in_sync)?;
            "installed"
        }
        Event::Joined(node) => with_node(py, &dict, node, "joined")?,
        Event::Left(node) => with_node(py, &dict, node, "left")?,
        Event::Duplicate(node) => with_node(py, &dict, node, "duplicate")?,
        Event::OneWay(node) => with_node(py, &dict, node, "one-way")?,
        Event::Merged(nodes) => {
            let nodes = nodes.iter().map(|node| of_node(py, node));
            dict.set_item("nodes", PyList::new(py, nodes.collect::<PyResult<Vec<_>>>()?)?)?;
            "merged"
        }
        Event::Lost { peer, why } => {
            dict.set_item("why", why.to_string())?;
            with_node(py, &dict, peer, "lost")?
        }
        Event::Quarantined { peer, lasts } => {
            dict.set_item("seconds", lasts.as_secs_f64())?;
            with_node(py, &dict, peer, "quarantined")?
        }
        Event::FirstMet { peer, namesake } => {
            dict.set_item("namesake", namesake.map(hex))?;
            with_node(py, &dict, peer, "first-met")?
        }
        Event::PathChanged { peer, interface } => {
            dict.set_item("interface", interface)?;
            with_node(py, &dict, peer, "path-changed")?
        }
        Event::Lagged(lost) => {
            dict.set_item("lost", lost)?;
            "lagged"
        }
        Event::Woke => "woke",
        _ => "other",
    };
    dict.set_item("kind", kind)?;
    dict.set_item("text", event.to_string())?;
    Ok(dict)
}

fn with_node<'a>(
    py: Python<'_>,
    dict: &Bound<'_, PyDict>,
    node: &NodeInfo,
    kind: &'a str,
) -> PyResult<&'a str> {
    dict.set_item("node", of_node(py, node)?)?;
    Ok(kind)
}

fn of_node<'py>(py: Python<'py>, node: &NodeInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", node.name.as_ref().map(potluck::report::Name::as_str))?;
    dict.set_item("node", hex(node.node))?;
    Ok(dict)
}

fn of_peer<'py>(py: Python<'py>, peer: &Peer) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rank", peer.rank.index())?;
    dict.set_item("name", peer.name.as_str())?;
    dict.set_item("node", hex(peer.node))?;
    Ok(dict)
}

/// All 64 digits of a public key.
pub fn hex(node: NodeId) -> String {
    node.0.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
