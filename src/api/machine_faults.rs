//! Looks for faults of this machine that keep its nodes from working.

use super::config::{Config, Network};
use super::environment::home_of;
use super::machine_interfaces::MachineInterfaces;
use crate::os::{InterfaceSource, probe_folder, taken_routes};
use crate::report::{MachineFaults, Result};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a disk may take for a small file.
const DISK: Duration = Duration::from_secs(3);

/// Looks whether this machine's nodes can store their files, and whether packets to the machines of
/// its own subnets take the interface of that subnet. It writes a small file in each of the two
/// folders of potluck's files and removes it; it sends nothing. Takes up to 3 s for each folder
/// whose disk does not answer, 6 s in all. Needs a tokio runtime with time.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) if the interface filter is invalid.
/// [`Error::Identity`](crate::Error::Identity) if there is no directory for files.
pub async fn machine_faults(config: &Config) -> Result<MachineFaults> {
    if config.network == Network::Process {
        return Ok(MachineFaults::default());
    }
    let home = home_of(config)?;
    let mut disk = None;
    for folder in [home.config_dir(), home.state_dir()] {
        disk = disk.or(disk_fault(folder).await);
    }
    let used = MachineInterfaces::of(config)?.look().map(|set| set.chosen).unwrap_or_default();
    let own: Vec<IpAddr> = used.iter().flat_map(|i| &i.addresses).map(|a| a.ip).collect();
    Ok(MachineFaults { disk, routes: taken_routes(&own) })
}

/// Why this folder cannot be written. A thread of its own waits for the disk.
async fn disk_fault(folder: &Path) -> Option<String> {
    let (done, ended) = oneshot::channel();
    let path: PathBuf = folder.to_owned();
    // An error of the channel means that nobody waits any more.
    let probe = move || drop(done.send(probe_folder(&path)));
    std::thread::Builder::new().name("potluck-probe".to_owned()).spawn(probe).ok()?;
    let error = match timeout(DISK, ended).await {
        Ok(ended) => ended.ok()?.err()?,
        Err(_) => io::ErrorKind::TimedOut.into(),
    };
    Some(format!("{} cannot be written: {error}", folder.display()))
}
