//! The Context of the newest View, for which a program waits.

use super::cluster::Cluster;
use super::context::Context;
use crate::report::{Error, Result, State};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

impl Cluster {
    /// The newest View, once the group has begun and has at least `min_members` members. Waits
    /// without bound. Cancel-safe.
    ///
    /// # Errors
    /// [`Error::Closed`] when the node has left.
    pub async fn context(&self) -> Result<Context> {
        let mut views = self.handles.views.clone();
        let _wait = self.handles.waits.begin();
        loop {
            let newest = views.borrow_and_update().clone();
            if let Some(session) = newest.filter(|e| !e.is_frozen()) {
                return Ok(Context::new(session, self.clone()));
            }
            // A View that is being replaced has a successor, unless this node ends.
            views.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// The members that are here, and those that it takes.
    fn missing(&self) -> (usize, usize) {
        match (self.status().state, self.status().view) {
            (State::NotEnoughPeers { present, wanted, .. }, _) => (present, wanted),
            (_, Some(view)) => (view.members.len(), self.sizes.min_members()),
            (_, None) => (1, self.sizes.members()),
        }
    }

    /// Like [`Cluster::context`], for at most `patience`. Cancel-safe; if dropped, its timer thread
    /// lives on until `patience` has passed.
    ///
    /// # Errors
    /// [`Error::NotEnoughPeers`] when the time has passed, [`Error::Closed`] when the node has left
    /// or the system starts no thread.
    pub async fn context_within(&self, patience: Duration) -> Result<Context> {
        let started = Instant::now();
        let (give_up, given_up) = oneshot::channel::<()>();
        // Any executor may poll this future, so the timer is a thread. `unpark` ends it early; if
        // this future is dropped, the thread sleeps on until `patience` has passed.
        let timer = std::thread::Builder::new().name("potluck-timer".to_owned()).spawn(move || {
            std::thread::park_timeout(patience);
            drop(give_up);
        });
        let timer = timer.map_err(|_| Error::Closed)?;
        tokio::select! {
            context = self.context() => {
                timer.thread().unpark();
                context
            }
            _ = given_up => {
                let (present, wanted) = self.missing();
                Err(Error::NotEnoughPeers { present, wanted, waited: started.elapsed() })
            }
        }
    }
}
