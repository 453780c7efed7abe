//! Whether a folder can be written now.

use std::fs::{OpenOptions, remove_file};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// More than the state of a node usually has.
const BYTES: usize = 16 << 10;

/// Several nodes may ask one process at a time.
static PROBES: AtomicU32 = AtomicU32::new(0);

/// Writes a file in this folder, or in the nearest one above it that exists, and removes it. Blocks
/// as long as the disk does.
///
/// # Errors
/// Why it cannot be written.
pub fn probe_folder(folder: &Path) -> io::Result<()> {
    let mut nearest = folder;
    while !nearest.exists() {
        nearest = nearest.parent().ok_or(io::ErrorKind::NotFound)?;
    }
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let path = nearest.join(format!(".potluck-probe-{}-{number}", std::process::id()));
    // Left over by a process that was killed.
    let _ = remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    let written = file.write_all(&[0; BYTES]).and_then(|()| file.sync_all());
    remove_file(&path)?;
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_to_be_made_is_probed_above_and_nothing_stays() {
        let folder = std::env::temp_dir().join(format!("potluck-probe-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        assert!(probe_folder(&folder.join("new/deep")).is_ok());
        std::fs::remove_dir(&folder).expect("it is empty");
        assert!(probe_folder(Path::new("/proc/self")).is_err());
    }
}
