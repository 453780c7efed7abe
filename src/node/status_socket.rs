//! The Unix socket on which a node tells its status to other programs of the same user.
//!
//! Each connection receives one [`StatusDocument`]; the node reads nothing.

use crate::report::Status;
use crate::report::document::StatusDocument;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// A client that does not take its document within this time is dropped.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause after an error of the system.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening socket. Dropping it removes the socket file.
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Listens at `path`, which only the owner may connect to. The caller holds the slot that the
    /// name of the file contains, so a file that is there is a leftover of a killed process.
    ///
    /// # Errors
    /// Those of the system, for example if the path is too long for a socket (107 bytes on Linux).
    pub fn bind(path: PathBuf) -> io::Result<StatusSocket> {
        Ok(StatusSocket { listener: bind_private(&path)?, path })
    }

    /// Answers connections, one at a time; never returns.
    pub async fn serve(
        self,
        status: watch::Receiver<Status>,
        observed: watch::Receiver<Vec<StatusDocument>>,
    ) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                // Most likely there are no free file descriptors. That passes; the pause avoids a
                // busy loop.
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let document = StatusDocument::of_observer(&status.borrow(), &observed.borrow());
            let Ok(answer) = serde_json::to_vec(&document) else { continue };
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

/// Binds a socket to which only this user can connect. It gets its permissions in a directory that
/// others cannot enter, then its name. The process's umask would apply to files that other threads
/// make meanwhile.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = path.with_file_name(format!(".{file}"));
    // A leftover of a process that was killed in this function.
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
