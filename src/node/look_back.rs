//! A look back: another node is asked whether it hears and reaches the node that asks.

use super::event::Event;
use crate::identity::{MemberId, NodeId};
use crate::link::{Local, Net, Purpose, Refusal, reach};
use crate::os::wall_clock;
use crate::report::{DialBack, Sight};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Most addresses that are dialled for one look back.
const DIALS_MAX: usize = 8;

/// How long one dial may take, handshake included.
const DIAL: Duration = Duration::from_secs(3);

/// A question for a look back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookBack {
    /// Own addresses to dial; only the first eight are.
    pub dial: Vec<String>,
    /// Any text, so that the question travels in packets of full size.
    pub padding: String,
    /// How many bytes of padding the answer is to have, at most 64 KiB.
    pub pad: usize,
}

impl LookBack {
    /// A question that travels in packets of full size, as its answer does.
    pub(super) fn of(dial: Vec<String>) -> LookBack {
        LookBack { dial, padding: "x".repeat(PADDING_MAX), pad: PADDING_MAX }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookedBack {
    /// The milliseconds since 1970 on the clock of that machine.
    pub clock_ms: u64,
    /// Whether it hears announcements of the node that asks.
    pub hears: bool,
    /// How its dials have ended.
    pub dials: Vec<DialedBack>,
    /// As much padding as was asked for.
    pub padding: String,
}

impl From<LookedBack> for Sight {
    fn from(answer: LookedBack) -> Sight {
        let dials = answer.dials.into_iter().take(DIALS_MAX);
        Sight {
            clock: Duration::from_millis(answer.clock_ms),
            hears: answer.hears,
            dials: dials.map(|DialedBack { to, error }| DialBack { to, error }).collect(),
        }
    }
}

/// A dial for a look back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialedBack {
    /// The address.
    pub to: String,
    /// Why no node answers there; null if one does.
    pub error: Option<String>,
}

/// The answers to one question for a look back.
#[derive(Clone, Debug, Default)]
pub struct LookBackRound {
    /// The nodes whose answers are missing.
    pub waits_for: BTreeSet<NodeId>,
    /// Those that have answered, or that have lost their link before they did.
    pub answers: Vec<LookedBackOf>,
}

/// The answer of a node; `None` if none has come.
pub type LookedBackOf = (NodeId, Option<Sight>);

/// What the control plane knows of a node that asks for a look back.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whether announcements of it are heard.
    pub(super) hears: bool,
    /// Those of the addresses it names that may be dialled.
    pub(super) dial: Vec<SocketAddr>,
}

/// What answering takes.
#[derive(Clone)]
pub(super) struct LooksBack {
    pub(super) net: Arc<dyn Net>,
    pub(super) local: Arc<Local>,
    pub(super) events: mpsc::Sender<Event>,
}

impl LooksBack {
    /// Answers a node. Takes as long as the slowest dial.
    pub(super) async fn answer(self, to: MemberId, question: LookBack) -> LookedBack {
        let (reply, known) = oneshot::channel();
        let dial = question.dial.iter().take(DIALS_MAX).filter_map(|to| to.parse().ok()).collect();
        // An error means that this node ends.
        let _ = self.events.send(Event::LookBack { node: to, dial, reply }).await;
        let Known { hears, dial } = known.await.unwrap_or_default();
        let mut dials = JoinSet::new();
        for (place, to) in dial.into_iter().enumerate() {
            let asked = self.clone();
            dials.spawn(async move { (place, asked.dial(to).await) });
        }
        let mut ended = Vec::new();
        while let Some(Ok(dialed)) = dials.join_next().await {
            ended.push(dialed);
        }
        ended.sort_by_key(|(place, _)| *place);
        let dials = ended.into_iter().map(|(_, dialed)| dialed).collect();
        let padding = "x".repeat(question.pad.min(PADDING_MAX));
        let clock_ms = u64::try_from(wall_clock().as_millis()).unwrap_or(u64::MAX);
        LookedBack { clock_ms, hears, dials, padding }
    }

    /// Dials an address of the node that asks, as any node would.
    async fn dial(self, to: SocketAddr) -> DialedBack {
        let error = self.reaches(to).await.err().map(|refusal| refusal.to_string());
        DialedBack { to: to.to_string(), error }
    }

    async fn reaches(&self, to: SocketAddr) -> Result<(), Refusal> {
        let linked = async {
            let stream = self.net.dial(to).await?;
            reach(stream, || self.net.dial(to), &self.local, Purpose::Control, None).await.map(drop)
        };
        match timeout(DIAL, linked).await.unwrap_or(Err(Refusal::TooSlow)) {
            // It answers, and is of another kind than this node: that is enough.
            Err(Refusal::Observer | Refusal::OtherJob(_)) => Ok(()),
            ended => ended,
        }
    }
}

/// Most padding of an answer.
const PADDING_MAX: usize = 64 << 10;
