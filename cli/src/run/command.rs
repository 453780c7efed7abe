//! The command that the user of this machine has typed, and how it is run here.

use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// The command that each process of this machine runs.
#[derive(Debug)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// How many processes this machine starts, at least 1.
    pub processes: u8,
    /// The name of the run, if it has one.
    pub run_name: Option<String>,
    /// The namespace, if one was named.
    pub namespace: Option<String>,
    /// The folder of the files with the output.
    pub logs: Option<PathBuf>,
    /// The time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// The first of the ports that the programs use, if it was named.
    pub port: Option<u16>,
}

impl Command {
    /// Equal for equal commands. It is compared with those of the other machines, and tells them
    /// no more than that.
    pub fn digest(&self) -> u64 {
        let mut hash = Sha256::new();
        for word in &self.words {
            // With its length, so that words cannot be cut in another place.
            hash.update(word.len().to_le_bytes());
            hash.update(word.as_bytes());
        }
        hash.finalize().iter().take(8).fold(0, |digest, byte| digest << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_differ_in_a_word_or_its_end_have_other_digests() {
        let digest = |words: &[&str]| {
            let words = words.iter().map(OsString::from).collect();
            let (run_name, namespace, logs, port) = (None, None, None, None);
            let grace = Duration::ZERO;
            Command { words, processes: 1, run_name, namespace, logs, grace, port }.digest()
        };
        let one = digest(&["python3", "train.py"]);
        assert_eq!(one, digest(&["python3", "train.py"]));
        assert_ne!(one, digest(&["python3", "other.py"]));
        assert_ne!(one, digest(&["python3t", "rain.py"]));
        assert_ne!(one, digest(&["python3", "train.py", ""]));
    }
}
