//! The temporary directories of the demo's peers.

use anyhow::{Context, Result};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A directory for the owner alone. Dropping it removes the directory, unless `keep` is set.
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Creates it in the system's directory for temporary files.
    pub fn new(keep: bool) -> Result<Scratch> {
        let nanos =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path =
            std::env::temp_dir().join(format!("potluck-demo-{}-{nanos}", std::process::id()));
        // Not recursive, so it fails if the path exists.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("{}: cannot be made", path.display()))?;
        Ok(Scratch { path, keep })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The home of a peer.
    pub fn home(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The file for a peer's stderr.
    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.log"))
    }

    /// The last lines of the log of every peer that wrote one.
    pub fn logs(&self) -> Vec<String> {
        let entries =
            fs::read_dir(&self.path).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut logs: Vec<PathBuf> =
            entries.filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        logs.iter().filter_map(|log| last_words(log)).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // An error is harmless: the system clears temporary files by itself.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn last_words(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok().filter(|text| !text.trim().is_empty())?;
    let lines: Vec<&str> = text.lines().collect();
    let name = log.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    Some(last.iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>().join("\n"))
}

const LINES: usize = 20;
