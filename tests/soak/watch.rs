//! Reads the nodes' logs while they grow.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::node::watch::Watch;

/// The log of one running process.
pub struct Tail {
    path: PathBuf,
    read: u64,
    rest: Vec<u8>,
    watch: Watch,
}

impl Tail {
    pub fn new(path: &Path, node: &str) -> Tail {
        Tail { path: path.to_owned(), read: 0, rest: Vec::new(), watch: Watch::new(node) }
    }

    /// Whether the process has told its start. From then on it leaves when it is asked to.
    pub fn has_begun(&self) -> bool {
        self.read > 0
    }

    /// Reads what is new.
    pub fn look(&mut self) -> Result<()> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(()) };
        file.seek(SeekFrom::Start(self.read))?;
        self.read += file.read_to_end(&mut self.rest)? as u64;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).context("a line of a log")?;
            self.watch.hear(&event)?;
        }
        Ok(())
    }
}

impl Deref for Tail {
    type Target = Watch;

    fn deref(&self) -> &Watch {
        &self.watch
    }
}
