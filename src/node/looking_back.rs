//! How a node answers another one that asks it to look back.

use super::event::Event;
use super::look_back::{DIALS_MAX, DialedBack, Known, LookBack, LookBackAnswer, PADDING_MAX};
use crate::identity::MemberId;
use crate::link::{Local, Net, Purpose, Refusal, reach};
use crate::os::wall_clock;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long one dial may take, handshake included.
const DIAL: Duration = Duration::from_secs(3);

/// The means to answer a look back.
#[derive(Clone)]
pub(super) struct LooksBack {
    pub(super) net: Arc<dyn Net>,
    pub(super) local: Arc<Local>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) faults: FaultsOf,
}

/// Finds the faults of this machine.
pub type FaultsOf =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<String>> + Send>> + Send + Sync>;

impl LooksBack {
    /// Answers a node. Takes as long as its slowest dial or its search for faults, 6 s at most.
    pub(super) async fn answer(self, node: MemberId, question: LookBack) -> LookBackAnswer {
        let (reply, known) = oneshot::channel();
        let dial = question.dial.iter().take(DIALS_MAX).filter_map(|to| to.parse().ok()).collect();
        // An error means that this node ends.
        let _ = self.events.send(Event::LookBack { node, dial, reply }).await;
        let Known { hears, dial } = known.await.unwrap_or_default();
        let mut dials = JoinSet::new();
        for (index, to) in dial.into_iter().enumerate() {
            let asked = self.clone();
            dials.spawn(async move { (index, asked.dial(node, to).await) });
        }
        let faults = (self.faults)().await;
        let mut ended = Vec::new();
        while let Some(Ok(dialed)) = dials.join_next().await {
            ended.push(dialed);
        }
        ended.sort_by_key(|(index, _)| *index);
        let dials = ended.into_iter().map(|(_, dialed)| dialed).collect();
        let padding = "x".repeat(question.pad.min(PADDING_MAX));
        let clock_ms = u64::try_from(wall_clock().as_millis()).unwrap_or(u64::MAX);
        LookBackAnswer { clock_ms, hears, faults, dials, padding }
    }

    /// Dials an address of the node that asks, as any node would.
    async fn dial(self, node: MemberId, to: SocketAddr) -> DialedBack {
        let error = self.reaches(node, to).await.err().map(|refusal| refusal.to_string());
        DialedBack { to: to.to_string(), error }
    }

    /// Another node at that address gets no link: it might take the place of its present one.
    async fn reaches(&self, node: MemberId, to: SocketAddr) -> Result<(), Refusal> {
        let linked = async {
            let stream = self.net.dial(to).await?;
            let again = || self.net.dial(to);
            reach(stream, again, &self.local, Purpose::Control, Some(node)).await.map(drop)
        };
        match timeout(DIAL, linked).await.unwrap_or(Err(Refusal::TooSlow)) {
            // It is the one that asks, and of another kind than this node: that is enough.
            Err(Refusal::Observer | Refusal::OtherJob(_)) => Ok(()),
            ended => ended,
        }
    }
}
