//! A node of a cluster.
#![allow(non_camel_case_types)]

use crate::border::{guarded, handle, put, taken, value, write};
use crate::config::potluck_config;
use crate::context::{potluck_context, waited};
use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::{Executor, Failure, ProcessLocal};
use potluck_library::Cluster;
use potluck_library::blocking::{self, Wait};
use potluck_library::report::document::StatusDocument;
use std::ffi::{CString, c_char};

/// This process as a node of a cluster.
pub struct potluck_cluster {
    node: ProcessLocal<Node>,
}

/// The node, and the thread that polls its calls.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) cluster: Cluster,
    pub(crate) executor: Executor,
}

/// Makes this process a node: it finds the others and is found from now on. Returns when the node
/// runs, which takes up to some seconds; it does not wait for others. The configuration stays the
/// program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_join(
    config: *const potluck_config,
    cluster: *mut *mut potluck_cluster,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let config = handle(config, "config")?.config.clone();
            let executor = Executor::start()?;
            let joined = blocking::Cluster::join_with(config)?;
            let node = ProcessLocal::new(Node { cluster: joined.into(), executor });
            put(cluster, potluck_cluster { node });
            Ok(())
        })
    }
}

/// The context of the newest View. Waits until there are enough members, at most `timeout_ms`; -1
/// waits without bound.
///
/// Returns POTLUCK_NOT_ENOUGH_PEERS when the time has passed, POTLUCK_CLOSED when the node has
/// left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_context_get(
    cluster: *const potluck_cluster,
    timeout_ms: i64,
    context: *mut *mut potluck_context,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let node = handle(cluster, "cluster")?.node.get()?;
            put(context, waited(node, timeout_ms)?);
            Ok(())
        })
    }
}

/// The status of this node as JSON: the document of `potluck status --json`. Free it by
/// `potluck_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_status_json(
    cluster: *const potluck_cluster,
    json: *mut *mut c_char,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let status = handle(cluster, "cluster")?.node.get()?.cluster.status();
            let document = serde_json::to_string(&StatusDocument::from(&status));
            let text = document.map_err(|problem| Failure::Panic(problem.to_string()))?;
            let text = CString::new(text).map_err(|problem| Failure::Panic(problem.to_string()))?;
            write(json, text.into_raw());
            Ok(())
        })
    }
}

/// Frees text. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_string_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: text of this library that has not been freed.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Leaves the cluster as `potluck_leave` does, and keeps the handle for the threads that use it: a
/// `potluck_context_get` that waits in another thread returns POTLUCK_CLOSED. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_close(cluster: *const potluck_cluster) {
    // SAFETY: see `border`.
    let cluster = unsafe { handle(cluster, "cluster") };
    value((), || {
        if let Ok(node) = cluster.and_then(|cluster| cluster.node.get()) {
            node.cluster.clone().leave().wait();
        }
    });
}

/// Leaves the cluster: the others are told, open calls end with POTLUCK_INDETERMINATE and later
/// ones with POTLUCK_CLOSED, and the handle is freed. Contexts of it may still be freed afterwards.
/// Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_leave(cluster: *mut potluck_cluster) {
    // SAFETY: see `border`.
    let cluster = unsafe { taken(cluster) };
    value((), || {
        if let Some(Ok(node)) = cluster.map(|cluster| cluster.node.take()) {
            node.cluster.leave().wait();
        }
    });
}
