//! Layer: Host.
//!
//! Durable state on a thread of its own: a slow disk delays an answer, never a heartbeat.

use crate::identity::peers_file::PeersFile;
use crate::identity::state_file::StateFile;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;

/// Where durable state goes.
pub trait Store: Send {
    /// Makes `state` durable, then calls `done`, in the order of the calls; from any thread, also this one. Never blocks, and
    /// nor does `done`.
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>);

    /// Remembers addresses for the next start, some time. Never blocks.
    fn remember(&mut self, peers: Vec<SocketAddr>);
}

/// A [`Store`] in files.
pub struct Disk {
    jobs: mpsc::Sender<Job>,
}

enum Job {
    State(Vec<u8>, Box<dyn FnOnce() + Send>),
    Peers(Vec<SocketAddr>),
}

impl Disk {
    /// Starts the thread; it ends with the last of its jobs after the disk is dropped.
    pub fn start(state: StateFile, peers: PeersFile) -> io::Result<Disk> {
        // At most one write per message of the election is queued, and the election waits for each.
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("potluck-disk".to_owned()).spawn(move || write_all(&queue, &state, &peers))?;
        Ok(Disk { jobs })
    }
}

impl Store for Disk {
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        // The thread ends only after this sender does.
        let _ = self.jobs.send(Job::State(state, done));
    }

    fn remember(&mut self, peers: Vec<SocketAddr>) {
        let _ = self.jobs.send(Job::Peers(peers));
    }
}

fn write_all(queue: &mpsc::Receiver<Job>, state: &StateFile, peers: &PeersFile) {
    while let Ok(job) = queue.recv() {
        match job {
            Job::State(bytes, done) => match state.save(&bytes) {
                Ok(()) => done(),
                // Without durable state this node must stay silent in the election; the others go on without it.
                Err(error) => tracing::error!(%error, path = %state.path().display(), "the ballot cannot be made durable"),
            },
            Job::Peers(addresses) => {
                if let Err(error) = peers.save(&addresses) {
                    tracing::warn!(%error, path = %peers.path().display(), "the addresses of peers were not kept");
                }
            }
        }
    }
}
