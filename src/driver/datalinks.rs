//! Layer: Host.
//!
//! The data links of one View: the lower rank dials, until the link stands; one that ends is
//! reported. Where its dials do not get through it asks the higher one to dial, as a firewall on
//! one of two machines lets connections out.

use super::event::{Event, LinkEnd};
use crate::identity::MemberId;
use crate::link::{
    DataHeader, DataLink, DataReceiver, DataSender, Local, Net, Purpose, Shutdown, initiate,
    into_data_link,
};
use crate::view::{Rank, ViewDigest};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// How long a member of the View may refuse its data link; longer, and the View does not work.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a connection may take to come about: one packet may be lost, which is sent again after
/// a second.
const CONNECT_PATIENCE: Duration = Duration::from_millis(1250);

/// How long the dial of another path may take: as long as a busy radio needs.
const PATH_PATIENCE: Duration = Duration::from_millis(500);

/// How often an address that is only hearsay is tried: for about 75 ms, while the peer may not have
/// heard of the View.
const FIRST_TRIES: u32 = 4;

/// How long such a try may take: some round trips of a busy radio.
const FIRST_PATIENCE: Duration = Duration::from_millis(150);

/// A data link that stands, and where it lies.
pub(super) struct Laid {
    pub(super) link: Box<dyn DataLink>,
    /// This node's end of it, where the system told.
    pub(super) ours: Option<SocketAddr>,
    /// The other one, with whatever port.
    pub(super) theirs: SocketAddr,
}

/// The dials of the View that is installed.
#[derive(Default)]
pub(super) struct DataLinks {
    dials: JoinSet<()>,
    /// Members that are dialled, or were.
    dialled: BTreeSet<Rank>,
    /// Members that are asked to dial, and have not.
    asked: BTreeMap<Rank, AbortHandle>,
    /// Members with a data link, whether it still stands or not.
    linked: BTreeSet<Rank>,
}

/// Where and as whom to dial.
pub(super) struct DataDial {
    pub(super) view: ViewDigest,
    pub(super) me: Rank,
    pub(super) peer: Rank,
    pub(super) expect: MemberId,
    /// Where it might answer as well, and had better.
    pub(super) first: Option<SocketAddr>,
    /// Where its control link is.
    pub(super) to: SocketAddr,
}

impl DataLinks {
    /// Dials a member until its data link stands, unless it was dialled for this View before.
    pub(super) fn dial(
        &mut self,
        dial: DataDial,
        net: Arc<dyn Net>,
        local: Arc<Local>,
        events: mpsc::Sender<Event>,
    ) {
        if !self.dialled.insert(dial.peer) {
            return;
        }
        self.dials.spawn(async move {
            let (view, peer) = (dial.view, dial.peer);
            let event =
                match tokio::time::timeout(PATIENCE, until_it_stands(dial, net, local)).await {
                    Ok(Some(link)) => Event::DataLink { view, peer, link },
                    Ok(None) => Event::DataLinkBlocked { view, peer },
                    Err(_) => Event::DataLinkLost { view, peer },
                };
            let _ = events.send(event).await;
        });
    }

    /// Has a member asked to dial, until its data link [stands](DataLinks::stands).
    pub(super) fn ask(&mut self, view: ViewDigest, peer: Rank, events: mpsc::Sender<Event>) {
        let asking = self.dials.spawn(async move {
            let asking = async {
                let mut pause = Duration::from_millis(5);
                // The peer may not have heard of the View yet.
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

    /// The data link with a member stands, whoever has dialled.
    pub(super) fn stands(&mut self, peer: Rank) {
        self.linked.insert(peer);
        self.asked.remove(&peer).iter().for_each(AbortHandle::abort);
    }

    /// Whether the data link with a member stands, or has stood.
    pub(super) fn has_stood(&self, peer: Rank) -> bool {
        self.linked.contains(&peer)
    }

    /// Members that were asked to dial and have not.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = Rank> {
        self.asked.keys().copied()
    }

    /// Dials another path to a member, once.
    pub(super) fn try_path(
        &mut self,
        dial: &DataDial,
        net: Arc<dyn Net>,
        local: Arc<Local>,
        events: mpsc::Sender<Event>,
    ) {
        while self.dials.try_join_next().is_some() {}
        let (view, src, dst, expect, to) = (dial.view, dial.me, dial.peer, dial.expect, dial.to);
        self.dials.spawn(async move {
            let stands = stands(Purpose::Path { view, src, dst }, expect, to, &net, &local);
            let link = tokio::time::timeout(PATH_PATIENCE, stands).await.ok().and_then(Result::ok);
            let _ = events.send(Event::Path { view, peer: dst, to, link }).await;
        });
    }

    /// Gives all dials up: their View has ended.
    pub(super) fn clear(&mut self) {
        self.dialled.clear();
        self.asked.clear();
        self.linked.clear();
        self.dials.abort_all();
        while self.dials.try_join_next().is_some() {}
    }
}

/// `None` where nobody answers.
async fn until_it_stands(dial: DataDial, net: Arc<dyn Net>, local: Arc<Local>) -> Option<Laid> {
    let purpose = Purpose::Data { view: dial.view, src: dial.me, dst: dial.peer };
    let mut pause = Duration::from_millis(5);
    // Nobody has proven yet who is there.
    let (mut first, mut tries) = (dial.first, FIRST_TRIES);
    loop {
        if let Some(to) = first {
            match tokio::time::timeout(
                FIRST_PATIENCE,
                stands(purpose, dial.expect, to, &net, &local),
            )
            .await
            {
                Ok(Ok(link)) => return Some(link),
                Ok(Err(Missed::Refused)) if tries > 1 => tries -= 1,
                Ok(Err(_)) | Err(_) => {
                    first = None;
                    continue;
                }
            }
        } else {
            match stands(purpose, dial.expect, dial.to, &net, &local).await {
                Ok(link) => return Some(link),
                Err(Missed::Nobody) => return None,
                Err(Missed::Refused) => {}
            }
        }
        // The peer may not have heard of the View yet.
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(Duration::from_millis(250));
    }
}

/// Why a dial made no link.
enum Missed {
    /// Nothing listens there, or nothing that leads there.
    Nobody,
    /// Whoever is there does not want it, or not yet.
    Refused,
}

async fn stands(
    purpose: Purpose,
    expect: MemberId,
    to: SocketAddr,
    net: &Arc<dyn Net>,
    local: &Arc<Local>,
) -> Result<Laid, Missed> {
    let connected = tokio::time::timeout(CONNECT_PATIENCE, net.dial(to)).await;
    let stream = connected.ok().and_then(Result::ok).ok_or(Missed::Nobody)?;
    let (stream, session) =
        initiate(stream, local, purpose, Some(expect)).await.map_err(|_| Missed::Refused)?;
    let ours = stream.local_addr().ok();
    let link = into_data_link(stream, session).map_err(|_| Missed::Refused)?;
    Ok(Laid { link, ours, theirs: to })
}

/// A link whose end is reported.
pub(super) fn watched(
    link: Box<dyn DataLink>,
    end: LinkEnd,
    ends: mpsc::UnboundedSender<LinkEnd>,
) -> Box<dyn DataLink> {
    Box::new(Watched { link, end: End { end, ends } })
}

struct Watched {
    link: Box<dyn DataLink>,
    end: End,
}

/// Reports when it is dropped: with the receiving half.
struct End {
    end: LinkEnd,
    ends: mpsc::UnboundedSender<LinkEnd>,
}

struct WatchedReceiver {
    receiver: Box<dyn DataReceiver>,
    _end: End,
}

impl DataLink for Watched {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        let (sender, receiver, shutdown) = self.link.split();
        (sender, Box::new(WatchedReceiver { receiver, _end: self.end }), shutdown)
    }
}

impl DataReceiver for WatchedReceiver {
    fn header(&mut self) -> io::Result<DataHeader> {
        self.receiver.header()
    }

    fn payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        self.receiver.payload(into)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // Dropped on an engine's thread. Without a driver there is nobody to be told.
        let _ = self.ends.send(self.end);
    }
}
