//! The Unix socket in the state directory on which `potluck up` answers `potluck status`. Only the
//! owner may connect.
//!
//! Each connection receives one [`StatusDocument`]; the server reads nothing.

use crate::document::StatusDocument;
use anyhow::{Context, Result, bail, ensure};
use potluck::Cluster;
use potluck::keys::Keys;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The socket of a namespace.
pub fn path_of(keys: &Keys) -> PathBuf {
    keys.state_dir().join(format!("up-{}.sock", keys.namespace()))
}

/// The status of the node of this namespace, if one runs.
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

/// Binds a socket to which only this user can connect. It gets its permissions in a directory that
/// others cannot enter, then its name. The process's umask would apply to files that other threads
/// make meanwhile.
fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    let directory = path.with_file_name(format!(".up-{:08x}", std::process::id()));
    // A leftover of a killed process with this number.
    let _ = std::fs::remove_dir_all(&directory);
    DirBuilder::new().mode(0o700).create(&directory)?;
    let place = directory.join("s");
    let bound = UnixListener::bind(&place).and_then(|listener| {
        std::fs::set_permissions(&place, Permissions::from_mode(0o600))?;
        std::fs::rename(&place, path)?;
        Ok(listener)
    });
    // Empty after the rename.
    let _ = std::fs::remove_dir_all(&directory);
    bound
}

/// The listening socket. Dropping it removes the socket file.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Fails if another node of this namespace serves it already, or if the path is too long for a
    /// socket.
    pub async fn open(keys: &Keys) -> Result<StatusSocket> {
        let path = path_of(keys);
        if UnixStream::connect(&path).await.is_ok() {
            bail!(
                "another `potluck up` of namespace {} answers `potluck status`",
                keys.namespace()
            );
        }
        // No process listens, so the file is a leftover of a killed process.
        ensure!(
            path.symlink_metadata().is_err() || std::fs::remove_file(&path).is_ok(),
            "{} is in the way",
            path.display()
        );
        let listener = bind_private(&path).with_context(|| {
            format!("`potluck status` will not reach this node: {}", path.display())
        })?;
        Ok(StatusSocket { listener, path })
    }

    /// Answers connections; never returns.
    pub async fn serve(&self, cluster: &Cluster) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Most likely there are no free file descriptors. That passes; the pause avoids a
                // busy loop.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(answer) = serde_json::to_vec(&StatusDocument::from(&cluster.status())) else {
                continue;
            };
            // Connections are served one at a time; a client that does not read is dropped after
            // `PATIENCE`.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(&answer)).await;
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        // The file may have been removed with its directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

// A status has at most 16 members and a few dozen sentences.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(3);
