//! The connections that this node accepts or dials, until their handshake has ended.
//!
//! Each runs in a task of its own, and its result is an [`Event`].

use super::data_link::Dialler;
use super::event::{Event, Linked};
use crate::discovery::Dial;
use crate::identity::MemberId;
use crate::link::{
    DataAsk, DataTerms, HandshakeLimiter, Local, Net, Purpose, Refusal, Replays, Stream, Ticket,
    initiate, reach, respond,
};
use crate::protocol::{Rank, View, ViewDigest};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Timeout of a handshake over a circuit. Over three Wi-Fi hops it usually takes a tenth of this.
const CIRCUIT_PATIENCE: Duration = Duration::from_secs(1);

/// Connections of a member's redial, 80 ms apart.
const DIALS: u32 = 3;
const DIALS_APART: Duration = Duration::from_millis(80);

/// How long another dial may take when a member has already answered over an unproven path.
const PROVEN_WITHIN: Duration = Duration::from_millis(300);

/// Accepts and dials connections.
pub(super) struct Handshakes {
    dialler: Dialler,
    gate: HandshakeLimiter,
    replays: Arc<Mutex<Replays>>,
    /// Views that a data link may belong to. The tasks that answer handshakes read it.
    open: Arc<RwLock<Vec<OpenView>>>,
    /// The Views that `open` was last written from.
    open_now: Vec<Arc<View>>,
}

/// The part of a View that the responder to a data handshake needs.
struct OpenView {
    digest: ViewDigest,
    members: Vec<MemberId>,
    me: Rank,
}

impl Handshakes {
    pub(super) fn new(
        net: Arc<dyn Net>,
        local: Arc<Local>,
        events: mpsc::Sender<Event>,
    ) -> Handshakes {
        Handshakes {
            dialler: Dialler { net, local, events },
            gate: HandshakeLimiter::new(),
            replays: Arc::new(Mutex::new(Replays::default())),
            open: Arc::new(RwLock::new(Vec::new())),
            open_now: Vec::new(),
        }
    }

    /// The keys and the hello of this node.
    pub(super) fn local(&self) -> &Local {
        &self.dialler.local
    }

    /// For the dials of data links.
    pub(super) fn dialler(&self) -> Dialler {
        self.dialler.clone()
    }

    /// Answers a connection, which has two seconds for its handshake. Returns false if the gate
    /// turns it away.
    pub(super) fn answer(&mut self, now: u64, stream: Box<dyn Stream>, from: SocketAddr) -> bool {
        let Ok(ticket) = self.gate.admit(now, from.ip().to_canonical()) else { return false };
        let Dialler { local, events, .. } = self.dialler();
        let (replays, open) = (Arc::clone(&self.replays), Arc::clone(&self.open));
        tokio::spawn(async move {
            let result = respond(stream, &local, &replays, |ask| terms(&open, ask)).await;
            let _ = events.send(Event::Answered { from, ticket, result }).await;
        });
        true
    }

    /// The handshake of an accepted connection has ended.
    pub(super) fn ended(&mut self, ticket: Ticket) {
        self.gate.release(ticket);
    }

    /// A handshake has shown that an honest node is at this address.
    pub(super) fn authenticated(&mut self, now: u64, ip: IpAddr) {
        self.gate.authenticated(now, ip.to_canonical());
    }

    /// Data links may belong to these Views.
    pub(super) fn open_views(&mut self, views: Vec<Arc<View>>) {
        let same = views.len() == self.open_now.len()
            && views.iter().zip(&self.open_now).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            let me = self.local().hello.id;
            let open = views.iter().filter_map(|v| {
                let members = v.members.iter().map(|m| m.id).collect();
                Some(OpenView { digest: v.digest(), members, me: v.rank_of(me)? })
            });
            *self.open.write().unwrap_or_else(PoisonError::into_inner) = open.collect();
            self.open_now = views;
        }
    }

    /// Dials an address for a control link, or for a link for the status if this node or the one
    /// there is an observer.
    pub(super) fn dial(&self, dial: Dial) {
        let Dialler { net, local, events } = self.dialler();
        let Dial { to, to_observer, .. } = dial;
        let observes = to_observer || local.hello.observer;
        let purpose = if observes { Purpose::Observe } else { Purpose::Control };
        tokio::spawn(async move {
            let result = connect(net, &local, to, purpose).await;
            let _ = events.send(Event::Dialled { to, result }).await;
        });
    }

    /// Dials a known member for a control link, at the first of these addresses that connects.
    pub(super) fn redial(&self, member: MemberId, to: Vec<SocketAddr>) {
        let Dialler { net, local, events } = self.dialler();
        tokio::spawn(async move {
            let (to, result) = connect_first(net, &local, to, member).await;
            let _ = events.send(Event::Redialled { member, to, result }).await;
        });
    }

    /// Answers over a circuit that another node opened. The opener authenticates itself as over any
    /// connection, and may not ask for a data link.
    pub(super) fn answer_circuit(&self, stream: Box<dyn Stream>, nodes: Vec<MemberId>) {
        let (Dialler { local, events, .. }, replays) = (self.dialler(), Arc::clone(&self.replays));
        tokio::spawn(async move {
            let result = respond(stream, &local, &replays, |_| None).await;
            let _ = events.send(Event::RelayAnswered { nodes, result }).await;
        });
    }

    /// Begins a control link over a circuit that this node opened.
    pub(super) fn dial_circuit(&self, stream: Box<dyn Stream>, to: MemberId, nodes: Vec<MemberId>) {
        let Dialler { local, events, .. } = self.dialler();
        tokio::spawn(async move {
            let handshake = initiate(stream, &local, Purpose::Control, Some(to));
            let result =
                timeout(CIRCUIT_PATIENCE, handshake).await.unwrap_or(Err(Refusal::TooSlow));
            let _ = events.send(Event::RelayDialled { nodes, result }).await;
        });
    }
}

fn terms(open: &RwLock<Vec<OpenView>>, ask: &DataAsk) -> Option<DataTerms> {
    let open = open.read().unwrap_or_else(PoisonError::into_inner);
    let view = open.iter().find(|v| v.digest.hint() == ask.hint && v.me == ask.dst)?;
    Some(DataTerms { view: view.digest, expect: *view.members.get(ask.src.index())? })
}

async fn connect(net: Arc<dyn Net>, local: &Local, to: SocketAddr, purpose: Purpose) -> Linked {
    let stream = net.dial(to).await?;
    reach(stream, || net.dial(to), local, purpose, None).await
}

/// Opens a replacement link to a member, at the first of these addresses where a connection and the
/// handshake succeed and the path is proven; if there is none within [`PROVEN_WITHIN`] of another
/// link, that one. If all fail, returns the refusal at the first address of the list. The connects
/// run in parallel. The handshakes run one after another, because the peer keeps the last link
/// whose handshake ended.
async fn connect_first(
    net: Arc<dyn Net>,
    local: &Local,
    to: Vec<SocketAddr>,
    member: MemberId,
) -> (SocketAddr, Linked) {
    let mut dials = JoinSet::new();
    // Only the refusal at the address of the last link counts: another node may be at the others.
    let (was_at, mut refused) = (to[0], Refusal::TooSlow);
    for to in to {
        let net = Arc::clone(&net);
        dials.spawn(async move { (to, dial_soon(net, to).await) });
    }
    let mut detour = None;
    loop {
        let dialled = match &detour {
            None => dials.join_next().await,
            Some(_) => timeout(PROVEN_WITHIN, dials.join_next()).await.unwrap_or(None),
        };
        let Some(dialled) = dialled else { break };
        let Ok((to, stream)) = dialled else { continue };
        let linked = match stream {
            Ok(stream) => {
                reach(stream, || net.dial(to), local, Purpose::Relink, Some(member)).await
            }
            Err(error) => Err(error.into()),
        };
        match linked {
            Ok(linked) if linked.1.path.is_proven() => return (to, Ok(linked)),
            Ok(linked) => detour = Some((to, linked)),
            Err(refusal) if to == was_at => refused = refusal,
            Err(_) => {}
        }
    }
    detour.map_or((was_at, Err(refused)), |(to, linked)| (to, Ok(linked)))
}

/// The first connection of up to three that are dialled 80 ms apart. TCP retransmits a lost SYN
/// after one second, which is longer than a member may be without a link, and a saturated cable
/// loses one now and then.
async fn dial_soon(net: Arc<dyn Net>, to: SocketAddr) -> io::Result<Box<dyn Stream>> {
    let mut dials = JoinSet::new();
    for _ in 1..DIALS {
        let net = Arc::clone(&net);
        dials.spawn(async move { net.dial(to).await });
        if let Ok(Some(Ok(dialled))) = timeout(DIALS_APART, dials.join_next()).await {
            return dialled;
        }
    }
    dials.spawn(async move { net.dial(to).await });
    let first = dials.join_next().await.and_then(Result::ok);
    first.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Whether the peer's machine has answered that no node, or another one, is at this address. Then
/// no other path leads to the member either.
pub(super) fn is_proof_of_absence(refusal: Refusal) -> bool {
    match refusal {
        Refusal::Io(kind) => kind == io::ErrorKind::ConnectionRefused,
        // An overloaded node also closes the connection.
        refusal => !matches!(refusal, Refusal::TooSlow | Refusal::Closed | Refusal::Overloaded(_)),
    }
}
