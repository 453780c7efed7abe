//! The dials for the data links of one View. The lower rank dials until the link is established. If
//! the dials do not get through, it asks the higher one to dial: a firewall on one of the two
//! machines usually lets outgoing connections pass.

use super::established_link::{EstablishedLink, established};
use crate::identity::MemberId;
use crate::link::{Local, Net, Purpose, reach};
use crate::node::event::Event;
use crate::protocol::{Rank, ViewDigest};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// How long a member may refuse or delay its data link before the View counts as broken.
const PATIENCE: Duration = Duration::from_secs(3);

/// Timeout of a connect. TCP retransmits a lost first packet after one second, so one loss is
/// tolerated.
const CONNECT_PATIENCE: Duration = Duration::from_millis(1250);

/// Timeout for dialling another path, handshake included: enough for a busy Wi-Fi link.
const PATH_PATIENCE: Duration = Duration::from_millis(500);

/// How often an unverified address is tried while it refuses, because the peer may not have learned
/// of the View yet. The pauses between the tries are 35 ms in total.
const FIRST_TRIES: u32 = 4;

/// Timeout of such a try: a few round trips of a busy Wi-Fi link.
const FIRST_PATIENCE: Duration = Duration::from_millis(150);

/// The dials for the installed View.
#[derive(Default)]
pub struct DataLinks {
    dials: JoinSet<()>,
    /// Peers for which a dial was started.
    dialled: BTreeSet<Rank>,
    /// Peers that were asked to dial and have not, with the asking task.
    asked: BTreeMap<Rank, AbortHandle>,
    /// Peers whose data link is or was established.
    linked: BTreeSet<Rank>,
}

/// The target of a dial and the ranks of both ends.
pub struct DataDial {
    pub view: ViewDigest,
    pub me: Rank,
    pub peer: Rank,
    pub expect: MemberId,
    /// A cheaper but unverified address, tried first.
    pub first: Option<SocketAddr>,
    /// The address of the peer's control link.
    pub to: SocketAddr,
}

/// The common values of all dials: the network, the keys of this node, and the queue of their
/// results.
#[derive(Clone)]
pub struct Dialler {
    pub net: Arc<dyn Net>,
    pub local: Arc<Local>,
    pub events: mpsc::Sender<Event>,
}

impl DataLinks {
    /// Dials a peer until its data link is established, for [`PATIENCE`]. The result is an event.
    /// Does nothing if the peer was dialled for this View before.
    pub fn dial(&mut self, dial: DataDial, by: Dialler) {
        if !self.dialled.insert(dial.peer) {
            return;
        }
        self.dials.spawn(async move {
            let (view, peer) = (dial.view, dial.peer);
            let event = match tokio::time::timeout(PATIENCE, until_it_stands(dial, &by)).await {
                Ok(Some(link)) => Event::DataLink { view, peer, link },
                Ok(None) => Event::DataLinkBlocked { view, peer },
                Err(_) => Event::DataLinkLost { view, peer },
            };
            let _ = by.events.send(event).await;
        });
    }

    /// Asks a peer repeatedly to dial, until its data link [stands](DataLinks::stands) or
    /// [`PATIENCE`] has passed.
    pub fn ask(&mut self, view: ViewDigest, peer: Rank, events: mpsc::Sender<Event>) {
        let asking = self.dials.spawn(async move {
            let asking = async {
                let mut pause = Duration::from_millis(5);
                // The peer may not have learned of the View yet.
                while events.send(Event::DialWanted { view, peer }).await.is_ok() {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(Duration::from_millis(250));
                }
            };
            if tokio::time::timeout(PATIENCE, asking).await.is_err() {
                let _ = events.send(Event::DataLinkBlocked { view, peer }).await;
            }
        });
        self.asked.insert(peer, asking);
    }

    /// The data link with a peer is established, dialled by either end.
    pub fn stands(&mut self, peer: Rank) {
        self.linked.insert(peer);
        self.asked.remove(&peer).iter().for_each(AbortHandle::abort);
    }

    /// Whether the data link with a peer is or was established.
    pub fn has_stood(&self, peer: Rank) -> bool {
        self.linked.contains(&peer)
    }

    /// Peers that were asked to dial and have not.
    pub fn unanswered(&self) -> impl Iterator<Item = Rank> {
        self.asked.keys().copied()
    }

    /// Dials another path to a peer, once.
    pub fn try_path(&mut self, dial: &DataDial, by: Dialler) {
        while self.dials.try_join_next().is_some() {}
        let (view, src, dst, expect, to) = (dial.view, dial.me, dial.peer, dial.expect, dial.to);
        self.dials.spawn(async move {
            let stands = stands(Purpose::Path { view, src, dst }, expect, to, &by);
            let link = tokio::time::timeout(PATH_PATIENCE, stands).await.ok().and_then(Result::ok);
            let _ = by.events.send(Event::Path { view, peer: dst, to, link }).await;
        });
    }

    /// Cancels all dials: their View has ended.
    pub fn clear(&mut self) {
        self.dialled.clear();
        self.asked.clear();
        self.linked.clear();
        self.dials.abort_all();
        while self.dials.try_join_next().is_some() {}
    }
}

/// Retries while the peer refuses. `None` if nothing answers at `dial.to`. Has no timeout of its
/// own.
async fn until_it_stands(dial: DataDial, by: &Dialler) -> Option<EstablishedLink> {
    let purpose = Purpose::Data { view: dial.view, src: dial.me, dst: dial.peer };
    let mut pause = Duration::from_millis(5);
    // The identity at `first` is not verified yet.
    let (mut first, mut tries) = (dial.first, FIRST_TRIES);
    loop {
        if let Some(to) = first {
            let stands = stands(purpose, dial.expect, to, by);
            match tokio::time::timeout(FIRST_PATIENCE, stands).await {
                Ok(Ok(link)) => return Some(link),
                Ok(Err(Missed::Refused)) if tries > 1 => tries -= 1,
                Ok(Err(_)) | Err(_) => {
                    first = None;
                    continue;
                }
            }
        } else {
            match stands(purpose, dial.expect, dial.to, by).await {
                Ok(link) => return Some(link),
                Err(Missed::Nobody) => return None,
                Err(Missed::Refused) => {}
            }
        }
        // The peer may not have learned of the View yet.
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(Duration::from_millis(250));
    }
}

/// Why a dial made no link.
enum Missed {
    /// No connection: nothing listens there, or no route leads there.
    Nobody,
    /// The handshake failed: the wrong node, or the peer does not accept the link, or not yet.
    Refused,
}

async fn stands(
    purpose: Purpose,
    expect: MemberId,
    to: SocketAddr,
    by: &Dialler,
) -> Result<EstablishedLink, Missed> {
    let connected = tokio::time::timeout(CONNECT_PATIENCE, by.net.dial(to)).await;
    let stream = connected.ok().and_then(Result::ok).ok_or(Missed::Nobody)?;
    let linked = reach(stream, || by.net.dial(to), &by.local, purpose, Some(expect)).await;
    let (stream, session) = linked.map_err(|_| Missed::Refused)?;
    established(stream, session, to).ok_or(Missed::Refused)
}
