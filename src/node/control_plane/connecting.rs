//! Dials one of several addresses.

use crate::identity::MemberId;
use crate::link::{Local, Net, Purpose, Refusal, Session, Stream, reach};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Opens a replacement link to a member, at the first of these addresses where a connection and the
/// handshake succeed and the path is proven; if there is none within [`PROVEN_WITHIN`] of another
/// link, that one. If all fail, returns the refusal at the first address of the list. The connects
/// run in parallel. The handshakes run one after another, because the peer keeps the last link
/// whose handshake ended.
pub(super) async fn connect_first(
    net: Arc<dyn Net>,
    local: &Local,
    to: Vec<SocketAddr>,
    member: MemberId,
) -> (SocketAddr, Result<(Box<dyn Stream>, Session), Refusal>) {
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

pub(super) async fn connect(
    net: Arc<dyn Net>,
    local: &Local,
    to: SocketAddr,
    purpose: Purpose,
    expect: Option<MemberId>,
) -> Result<(Box<dyn Stream>, Session), Refusal> {
    let stream = net.dial(to).await?;
    reach(stream, || net.dial(to), local, purpose, expect).await
}

const DIALS: u32 = 3;

/// How long another dial may take when a member has already answered over an unproven path.
pub(super) const PROVEN_WITHIN: Duration = Duration::from_millis(300);

pub(super) const DIALS_APART: Duration = Duration::from_millis(80);
