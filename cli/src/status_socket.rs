//! How a running `potluck up` answers `potluck status`: a Unix socket in the state directory, for
//! the owner alone.
//!
//! One connection is one [`StatusDocument`]; nothing is read from it.

use crate::document::StatusDocument;
use anyhow::{Context, Result, bail, ensure};
use potluck::{Cluster, Keys};
use rustix::fs::Mode;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The socket of a namespace.
pub fn path_of(keys: &Keys) -> PathBuf {
    keys.state_dir().join(format!("up-{}.sock", keys.namespace()))
}

/// Asks the node of this namespace, if one runs.
pub async fn ask(keys: &Keys) -> Result<Option<StatusDocument>> {
    let Ok(stream) = UnixStream::connect(path_of(keys)).await else { return Ok(None) };
    let mut answer = Vec::new();
    let mut stream = stream.take(ANSWER_BYTES_MAX);
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    read.context("the running `potluck up` does not answer; end it and start it again")??;
    Ok(Some(
        serde_json::from_slice(&answer)
            .context("the running `potluck up` is of another version; restart it")?,
    ))
}

/// The listening end. Dropping it removes the socket.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Fails when another node of this namespace serves it already, or the path is too long for a
    /// socket.
    pub async fn open(keys: &Keys) -> Result<StatusSocket> {
        let path = path_of(keys);
        if UnixStream::connect(&path).await.is_ok() {
            bail!(
                "another `potluck up` of namespace {} answers `potluck status`",
                keys.namespace()
            );
        }
        // Nobody listens: what is there was left by one that was killed.
        ensure!(
            path.symlink_metadata().is_err() || std::fs::remove_file(&path).is_ok(),
            "{} is in the way",
            path.display()
        );
        // The mode must be right from the first moment.
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        rustix::process::umask(before);
        let listener = bound.with_context(|| {
            format!("`potluck status` will not reach this node: {}", path.display())
        })?;
        Ok(StatusSocket { listener, path })
    }

    /// Answers for ever.
    pub async fn serve(&self, cluster: &Cluster) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Out of file descriptors, most likely: that passes, and must not become a busy
                // loop.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(answer) = serde_json::to_vec(&StatusDocument::from(&cluster.status())) else {
                continue;
            };
            // One at a time; who does not take its answer soon loses it.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&answer)).await;
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // It may be gone with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

// A status has at most 16 members and a few dozen sentences.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(3);
