//! The reports of a data link to the control loop.

use super::traffic::Traffic;
use crate::node::event::{Event, LinkEnd};
use crate::protocol::RateStep;
use tokio::sync::mpsc;

/// The reports of a data link to the control loop. Nothing here blocks: engines' threads call it.
#[derive(Clone)]
pub struct Reports {
    pub link: LinkEnd,
    pub traffic: Traffic,
    pub events: mpsc::Sender<Event>,
    pub ends: mpsc::UnboundedSender<LinkEnd>,
}

impl Reports {
    /// A burst from the peer has a result.
    pub(super) fn burst(&self, said: RateStep) {
        let LinkEnd { view, peer } = self.link;
        // If the queue is full, the control loop is far behind. The result is lost, and rank 0 asks
        // for it again.
        let _ = self.events.try_send(Event::Burst { view, peer, said });
    }

    /// The peer's direction moves.
    pub(super) fn moved(&self) {
        let LinkEnd { view, peer } = self.link;
        // If the queue is full, this node's direction stays on its path, which still works.
        let _ = self.events.try_send(Event::Moved { view, peer });
    }

    /// The link has ended.
    pub(super) fn ended(&self) {
        // An error means that the control loop is gone.
        let _ = self.ends.send(self.link);
    }
}

#[cfg(test)]
impl Reports {
    /// Reports, and the ends at which they arrive.
    pub(in crate::node) fn to_test()
    -> (Reports, mpsc::Receiver<Event>, mpsc::UnboundedReceiver<LinkEnd>) {
        use crate::protocol::{Rank, ViewDigest};

        let ((events, told), (ends, ended)) = (mpsc::channel(1024), mpsc::unbounded_channel());
        let link = LinkEnd { view: ViewDigest([0; 32]), peer: Rank(1) };
        (Reports { link, traffic: Traffic::default(), events, ends }, told, ended)
    }
}
