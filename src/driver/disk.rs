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
    /// Makes `state`, or one that was saved after it, durable; then calls `done`, in the order of the calls; from any thread,
    /// also this one. Never blocks, and nor does `done`.
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
        let waiting = std::iter::once(job).chain(queue.try_iter()).collect();
        let Batch { state: newest, done, peers: addresses } = Batch::of(waiting);
        match newest.map(|bytes| state.save(&bytes)) {
            None | Some(Ok(())) => done.into_iter().for_each(|done| done()),
            // Without durable state this node must stay silent in the election; the others go on without it.
            Some(Err(error)) => {
                tracing::error!(%error, path = %state.path().display(), "the ballot cannot be made durable");
            }
        }
        if let Some(Err(error)) = addresses.map(|addresses| peers.save(&addresses)) {
            tracing::warn!(%error, path = %peers.path().display(), "the addresses of peers were not kept");
        }
    }
}

/// Everything that waits for the disk. A newer state holds all that an older one promises, so one write serves both: a
/// slow disk does not fall further behind.
#[derive(Default)]
struct Batch {
    state: Option<Vec<u8>>,
    done: Vec<Box<dyn FnOnce() + Send>>,
    peers: Option<Vec<SocketAddr>>,
}

impl Batch {
    fn of(jobs: Vec<Job>) -> Batch {
        jobs.into_iter().fold(Batch::default(), |mut batch, job| {
            match job {
                Job::State(bytes, done) => {
                    batch.state = Some(bytes);
                    batch.done.push(done);
                }
                Job::Peers(addresses) => batch.peers = Some(addresses),
            }
            batch
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_one_write_and_everybody_hears_of_it_in_order() {
        let (said, heard) = mpsc::channel();
        let state = |n: u8| {
            let said = said.clone();
            Job::State(vec![n], Box::new(move || said.send(n).expect("heard")))
        };
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let batch = Batch::of(vec![state(1), Job::Peers(vec![at(1)]), state(2), Job::Peers(vec![at(2)]), state(3)]);
        assert_eq!((batch.state, batch.peers), (Some(vec![3]), Some(vec![at(2)])));
        batch.done.into_iter().for_each(|done| done());
        assert_eq!(heard.try_iter().collect::<Vec<u8>>(), [1, 2, 3]);
    }
}
