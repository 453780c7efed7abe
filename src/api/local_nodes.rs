//! Asks the nodes that run on this machine for their status.

use super::config::Config;
use super::environment::home_of;
use super::environment::{job_of, namespace_of};
use crate::identity::{Home, JobName, NamespaceName};
use crate::node::own_thread;
use crate::report::document::StatusDocument;
use crate::report::{Error, LocalNodes, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// The status of every node of the configured namespace that runs on this machine with the
/// configured home, whatever program it is; if the configuration names a job, of that job only.
///
/// It runs on its own thread with its own runtime, so the caller needs no tokio runtime, and takes
/// at most three seconds. If the future is dropped, the answers are discarded.
///
/// # Errors
/// [`Error::Config`] if the configuration is invalid, [`Error::Identity`] if there is no home
/// directory, [`Error::Closed`] if this process may not start a thread.
pub async fn local_nodes(config: Config) -> Result<LocalNodes> {
    let (home, namespace) = (home_of(&config)?, namespace_of(&config)?);
    let job = config.job.is_some().then(|| job_of(&config)).transpose()?;
    let asked = own_thread(
        "potluck-local",
        |_| Error::Closed,
        async move |done| {
            let sockets = sockets_of(&home, &namespace, job.as_ref());
            // An error means that the caller has dropped the future.
            drop(done.send(Ok(ask_all(sockets).await)));
        },
    );
    asked?.await.unwrap_or(Err(Error::Closed))
}

/// The status sockets of a namespace and a job, at most [`NODES_MAX`].
fn sockets_of(home: &Home, namespace: &NamespaceName, job: Option<&JobName>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home.state_dir()).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let of_job = |path: &PathBuf| {
        let of = home.job_of_status_socket(namespace, path);
        of.is_some_and(|of| job.is_none_or(|job| *job == of))
    };
    paths.filter(of_job).take(NODES_MAX).collect()
}

async fn ask_all(sockets: Vec<PathBuf>) -> LocalNodes {
    let mut asked = JoinSet::new();
    for path in sockets {
        asked.spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, ask(&path)).await;
            (path, answer)
        });
    }
    let mut found = LocalNodes { nodes: Vec::new(), silent: Vec::new() };
    while let Some(told) = asked.join_next().await {
        match told {
            Ok((_, Ok(Ok(document)))) => found.nodes.push(document),
            // Nobody listens there: a leftover of a killed process.
            Ok((_, Ok(Err(error)))) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok((_, Ok(Err(error)))) if error.kind() == io::ErrorKind::NotFound => {}
            Ok((path, _)) => found.silent.push(path),
            Err(_) => {}
        }
    }
    found.nodes.sort_by(|a, b| (&a.job, a.process, &a.node).cmp(&(&b.job, b.process, &b.node)));
    found.silent.sort();
    found
}

async fn ask(path: &Path) -> io::Result<StatusDocument> {
    let mut answer = Vec::new();
    let stream = UnixStream::connect(path).await?;
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).await?;
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

const PATIENCE: Duration = Duration::from_secs(3);

/// More programs than this on one machine are a mistake.
const NODES_MAX: usize = 256;

/// An observer passes on the documents of nodes: 4 MB for a group of 32, each of whose members
/// names all of its links.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
