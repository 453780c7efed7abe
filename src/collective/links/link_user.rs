//! The two threads of each link of an engine. They end with their link, and it ends with the first
//! of them.

use super::super::threads::Threads;
use super::current_link::Generation;
use crate::link::{DataHeader, DataLink, DataReceiver, DataSender, Shutdown};
use crate::protocol::{EngineFault, Rank};
use std::io;
use std::sync::Arc;

/// The state of an engine that its links' threads share.
pub trait LinkUser: Send + Sync + 'static {
    /// The state that a receiver thread keeps from one frame to the next.
    type Scratch: Default;

    /// The generation of the link in use to `peer`.
    fn generation(&self, peer: Rank) -> Option<Generation>;

    /// Starts to use a link. `None` if one is in use, there is no such peer, or the engine is
    /// closed.
    fn connect(&self, peer: Rank, end: &Arc<dyn Shutdown>) -> Option<Generation>;

    /// Ends the link `generation`, if it is in use, and fails the operations that need it.
    fn lose(&self, peer: Rank, generation: Generation, fault: EngineFault);

    /// Sends the frames for the link `generation` until it is over.
    fn send_all(&self, peer: Rank, generation: Generation, sender: Box<dyn DataSender>);

    /// Handles a frame of the link `generation`, whose payload is still to be read.
    ///
    /// # Errors
    /// The link is over.
    fn receive(
        &self,
        from: Rank,
        generation: Generation,
        header: &DataHeader,
        receiver: &mut dyn DataReceiver,
        scratch: &mut Self::Scratch,
    ) -> io::Result<()>;
}

/// A thread's handle on its link. Dropping it, for any reason, ends the link.
pub struct LinkThread<U: LinkUser> {
    pub(in crate::collective) user: Arc<U>,
    pub(in crate::collective) peer: Rank,
    pub(in crate::collective) generation: Generation,
}

/// The state of an engine, and the count of its threads.
pub type LinkParty<'a, U> = (&'a Arc<U>, &'a Arc<Threads>);

/// Gives a link to an engine, in place of an earlier one to the same peer, and starts its threads.
/// A link that the engine does not accept is shut down.
pub fn attach<U: LinkUser>((user, threads): LinkParty<'_, U>, peer: Rank, link: Box<dyn DataLink>) {
    let (sender, mut receiver, end) = link.split();
    let Some([tx, rx]) = LinkThread::connect(user, peer, &end) else { return };
    tx.spawn_sender(threads, sender);
    threads.spawn(format!("potluck-rx-{peer}"), move || {
        let mut scratch = U::Scratch::default();
        while let Ok(header) = receiver.header()
            && rx.receive(&header, receiver.as_mut(), &mut scratch).is_ok()
        {}
    });
}

impl<U: LinkUser> LinkThread<U> {
    /// Starts to use a link, in place of an earlier one. Returns a handle for the sender thread and
    /// one for the receiver thread; `None`, and the link is shut down, if the engine does not
    /// accept it.
    pub fn connect(
        user: &Arc<U>,
        peer: Rank,
        end: &Arc<dyn Shutdown>,
    ) -> Option<[LinkThread<U>; 2]> {
        if let Some(former) = user.generation(peer) {
            user.lose(peer, former, EngineFault::LinkLost(peer));
        }
        let Some(generation) = user.connect(peer, end) else {
            end.shutdown();
            return None;
        };
        Some([(); 2].map(|()| LinkThread { user: Arc::clone(user), peer, generation }))
    }

    /// Starts the sender thread. If the system cannot, the closure is dropped with this handle,
    /// which ends the link.
    pub fn spawn_sender(self, threads: &Arc<Threads>, sender: Box<dyn DataSender>) {
        threads.spawn(format!("potluck-tx-{}", self.peer), move || self.send_all(sender));
    }

    fn send_all(&self, sender: Box<dyn DataSender>) {
        self.user.send_all(self.peer, self.generation, sender);
    }

    /// Handles a frame, whose payload is still to be read.
    ///
    /// # Errors
    /// The link is over.
    pub fn receive(
        &self,
        header: &DataHeader,
        receiver: &mut dyn DataReceiver,
        scratch: &mut U::Scratch,
    ) -> io::Result<()> {
        self.user.receive(self.peer, self.generation, header, receiver, scratch)
    }
}

impl<U: LinkUser> Drop for LinkThread<U> {
    fn drop(&mut self) {
        self.user.lose(self.peer, self.generation, EngineFault::LinkLost(self.peer));
    }
}
