//! Durable state on its own thread: a slow disk delays an answer, never a heartbeat.

use crate::identity::{NodeId, Nodes, NodesFile, PeersFile, StateFile};
use crate::trace;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The store of durable state.
pub trait Store: Send {
    /// Makes `state`, or one that is saved later, durable. Then calls `done`, in the order of the
    /// calls and on any thread, the caller's included. Must not block, and neither must `done`.
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>);

    /// Stores addresses for the next start, at some later time. Never blocks.
    fn remember(&mut self, peers: Vec<SocketAddr>);

    /// Adds a node to those that were met, at some later time. Never blocks. Without an
    /// implementation it is forgotten.
    fn know(&mut self, _node: NodeId, _name: String) {}

    /// Stores the known rates of paths for the next start, at some later time. Never blocks.
    /// Without an implementation it is forgotten.
    fn keep_paths(&mut self, _known: Vec<u8>) {}
}

/// A [`Store`] in files. Dropping it waits a moment for the writes that are queued.
pub struct Disk {
    /// `None` once it is being dropped.
    writes: Option<mpsc::Sender<Write>>,
    /// Fails when the thread has ended.
    ended: mpsc::Receiver<()>,
}

enum Write {
    State(Vec<u8>, Box<dyn FnOnce() + Send>),
    Peers(Vec<SocketAddr>),
    Known(NodeId, String),
    Paths(Vec<u8>),
}

/// The files of a node.
pub struct Files {
    /// Its promised ballot, and the View that it accepted last.
    pub state: StateFile,
    /// Addresses of its peers.
    pub peers: PeersFile,
    /// The nodes that it has met.
    pub known: NodesFile,
    /// The paths that it knows.
    pub paths: StateFile,
}

impl Disk {
    /// Starts the thread. After the `Disk` is dropped it tries the remaining writes once and ends.
    /// It keeps `lock` until then: no other process may write these files meanwhile.
    pub fn start(files: Files, lock: impl Send + 'static) -> io::Result<Disk> {
        // Unbounded: the election queues at most one write per message, and waits for each.
        let (writes, queue) = mpsc::channel::<Write>();
        let (end, ended) = mpsc::channel();
        std::thread::Builder::new().name("potluck-disk".to_owned()).spawn(move || {
            write_all(&queue, &files);
            drop(lock);
            drop(end);
        })?;
        Ok(Disk { writes: Some(writes), ended })
    }

    fn send(&self, write: Write) {
        // The send cannot fail: the thread ends only after this sender is dropped.
        let _ = self.writes.as_ref().map(|writes| writes.send(write));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.writes = None;
        // Then another node may use the files at once. An error means that the thread has ended, or
        // that the disk takes too long; the lock is then released later.
        let _ = self.ended.recv_timeout(LAST_WRITES);
    }
}

impl Store for Disk {
    fn save(&mut self, state: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        self.send(Write::State(state, done));
    }

    fn remember(&mut self, peers: Vec<SocketAddr>) {
        self.send(Write::Peers(peers));
    }

    fn know(&mut self, node: NodeId, name: String) {
        self.send(Write::Known(node, name));
    }

    fn keep_paths(&mut self, known: Vec<u8>) {
        self.send(Write::Paths(known));
    }
}

/// How long a `Disk` that is dropped waits for its thread.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// Back-off between attempts to write a state: doubled from the first value to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The thread's loop, until the sender is dropped. A failed write is repeated, with the writes that
/// arrived meanwhile.
fn write_all(queue: &mpsc::Receiver<Write>, files: &Files) {
    let Files { state, peers, known, paths } = files;
    let mut batch = Batch::default();
    let mut retry = RETRY.0;
    loop {
        let write = match &batch.state {
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => queue.recv_timeout(retry),
        };
        let is_over = matches!(write, Err(RecvTimeoutError::Disconnected));
        write.into_iter().chain(queue.try_iter()).for_each(|write| batch.add(write));
        match batch.state.as_ref().map(|bytes| state.save(bytes)) {
            None | Some(Ok(())) => {
                if retry > RETRY.0 {
                    trace::info!(path = %state.path().display(), "the ballot is durable again");
                }
                retry = RETRY.0;
                batch.state = None;
                batch.done.drain(..).for_each(|done| done());
            }
            // Without durable state this node must stay silent in the election; the others continue
            // without it.
            Some(Err(error)) => {
                trace::error!(%error, path = %state.path().display(), ?retry, "the ballot cannot \
                    be made durable");
                retry = (2 * retry).min(RETRY.1);
            }
        }
        if let Some(Err(error)) = batch.peers.take().map(|addresses| peers.save(&addresses)) {
            trace::warn!(%error, path = %peers.path().display(), "the addresses of peers were not \
                kept");
        }
        if let Some(Err(error)) = batch.paths.take().map(|bytes| paths.save(&bytes)) {
            trace::warn!(%error, path = %paths.path().display(), "the rates of paths were not \
                kept");
        }
        let mut met = std::mem::take(&mut batch.known);
        if !met.is_empty()
            && let Err(error) = known.change(|known| known.append(&mut met))
        {
            trace::warn!(%error, "the nodes that were met were not kept");
        }
        if is_over {
            return;
        }
    }
}

/// All writes that wait for the disk. A newer state contains all promises of an older one, so one
/// write serves both, and a slow disk does not fall further behind.
#[derive(Default)]
struct Batch {
    state: Option<Vec<u8>>,
    done: Vec<Box<dyn FnOnce() + Send>>,
    peers: Option<Vec<SocketAddr>>,
    known: Nodes,
    paths: Option<Vec<u8>>,
}

impl Batch {
    fn add(&mut self, write: Write) {
        match write {
            Write::State(bytes, done) => {
                self.state = Some(bytes);
                self.done.push(done);
            }
            Write::Peers(addresses) => self.peers = Some(addresses),
            Write::Known(node, name) => _ = self.known.insert(node, name),
            Write::Paths(bytes) => self.paths = Some(bytes),
        }
    }
}

#[cfg(test)]
impl Files {
    /// `state`, and the other files in a folder.
    pub(crate) fn with(state: StateFile, folder: &std::path::Path) -> Files {
        let home = crate::identity::Home::at(folder.join("home"));
        let known = NodesFile::known(&home, &crate::identity::NamespaceName::default());
        let paths = StateFile::at(folder.join("paths.bin"));
        Files { state, peers: PeersFile::at(folder.join("peers.toml")), known, paths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Scratch;

    /// A write that sends its number when it is done.
    fn state(n: u8, said: &mpsc::Sender<u8>) -> (Vec<u8>, Box<dyn FnOnce() + Send>) {
        let said = said.clone();
        (vec![n], Box::new(move || said.send(n).expect("heard")))
    }

    #[test]
    fn what_waits_is_one_write_and_everybody_hears_of_it_in_order() {
        let (said, heard) = mpsc::channel();
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut batch = Batch::default();
        for n in 1..=3 {
            let (bytes, done) = state(n, &said);
            batch.add(Write::State(bytes, done));
            batch.add(Write::Peers(vec![at(n.into())]));
        }
        assert_eq!((batch.state, batch.peers), (Some(vec![3]), Some(vec![at(3)])));
        batch.done.into_iter().for_each(|done| done());
        assert_eq!(heard.try_iter().collect::<Vec<u8>>(), [1, 2, 3]);
    }

    /// Tells when it is dropped.
    struct Lock(mpsc::Sender<&'static str>);

    impl Drop for Lock {
        fn drop(&mut self) {
            self.0.send("released").expect("heard");
        }
    }

    #[test]
    fn the_lock_is_released_after_the_last_write() {
        let scratch = Scratch::new();
        let file = StateFile::at(scratch.path().join("state-x.bin"));
        let (say, said) = mpsc::channel();
        let mut disk = Disk::start(Files::with(file.clone(), scratch.path()), Lock(say.clone()))
            .expect("a thread");
        let (go_on, waits) = mpsc::channel::<()>();
        // The thread is held up, as by a slow disk, and another state is queued behind it.
        disk.save(vec![1], Box::new(move || _ = waits.recv()));
        disk.save(vec![2], Box::new(move || say.send("written").expect("heard")));
        drop(disk);
        assert!(said.try_recv().is_err(), "it waits for a while, not without end");
        drop(go_on);
        assert_eq!(said.iter().collect::<Vec<_>>(), ["written", "released"]);
        assert_eq!(file.load().expect("whole"), Some(vec![2]));
    }

    #[test]
    fn what_could_not_be_written_is_written_as_soon_as_it_can_be() {
        let scratch = Scratch::new();
        let (folder, said) = (scratch.path().join("state"), mpsc::channel());
        // Nothing can be written into a folder that is a file.
        std::fs::write(&folder, b"").expect("written");
        let file = StateFile::at(folder.join("state-x.bin"));
        let files = Files::with(file.clone(), scratch.path());
        let mut disk = Disk::start(files, ()).expect("a thread");
        let (said, heard) = said;
        for n in [1, 2] {
            let (bytes, done) = state(n, &said);
            disk.save(bytes, done);
        }
        assert!(heard.recv_timeout(3 * RETRY.0).is_err(), "it says so although nothing is written");
        std::fs::remove_file(&folder).expect("removed");
        let patience = 10 * RETRY.1;
        assert_eq!((heard.recv_timeout(patience), heard.recv_timeout(patience)), (Ok(1), Ok(2)));
        assert_eq!(file.load().expect("whole"), Some(vec![2]));
        // Later states are written at once.
        let (bytes, done) = state(3, &said);
        disk.save(bytes, done);
        assert_eq!(heard.recv_timeout(patience), Ok(3));
        assert_eq!(file.load().expect("whole"), Some(vec![3]));
    }
}
