//! Runs the handshake on a stream: reads of exact length, under one deadline for the whole
//! handshake.
//!
//! Cancellation: dropping one of these futures closes the stream and leaves nothing else behind.

use super::endpoints::Endpoints;
use super::handshake::{Initiator, MESSAGE1_BYTES, MESSAGE2_BYTES, MESSAGE3_BYTES, Responder};
use super::handshake_limiter::Replays;
use super::local::{Local, Psk};
use super::preamble::{DataAsk, Preamble, Purpose};
use super::refusal::Refusal;
use super::secure_channel::SecureChannel;
use super::terms::Terms;
use super::transport::Stream;
use crate::identity::MemberId;
use crate::protocol::ViewDigest;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longest duration of a whole handshake, from its first byte to its last.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// The responder's knowledge about a requested data link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataTerms {
    /// The full digest of the View.
    pub view: ViewDigest,
    /// The member at the rank that the peer claims.
    pub expect: MemberId,
}

/// Runs the initiator's end of the handshake with this node's first pre-shared key: proves this
/// node's identity and learns the peer's, within [`HANDSHAKE_TIMEOUT`].
///
/// # Errors
/// The [`Refusal`]; the stream is then closed. [`Refusal::WrongRank`] if the peer is not `expect`.
pub async fn initiate(
    stream: Box<dyn Stream>,
    local: &Local,
    purpose: Purpose,
    expect: Option<MemberId>,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal> {
    let psks = local.psks();
    let psk = psks.first().ok_or(Refusal::WrongKey)?;
    initiate_with(psk, stream, local, purpose, expect).await
}

/// The same with each of this node's pre-shared keys in turn: while a cluster changes its key, the
/// peer may accept only the second one. The first attempt uses `stream`, and `dial` opens the
/// connection for another.
pub async fn reach<D>(
    stream: Box<dyn Stream>,
    dial: impl Fn() -> D,
    local: &Local,
    purpose: Purpose,
    expect: Option<MemberId>,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal>
where
    D: Future<Output = io::Result<Box<dyn Stream>>>,
{
    let (psks, mut stream) = (local.psks(), Some(stream));
    let mut refused = Refusal::WrongKey;
    for psk in &*psks {
        let stream = match stream.take() {
            Some(first) => first,
            None => dial().await?,
        };
        match initiate_with(psk, stream, local, purpose, expect).await {
            // A peer that does not hold this key closes the connection without an answer.
            Err(refusal @ (Refusal::Closed | Refusal::WrongKey)) => refused = refusal,
            result => return result,
        }
    }
    Err(refused)
}

async fn initiate_with(
    psk: &Psk,
    stream: Box<dyn Stream>,
    local: &Local,
    purpose: Purpose,
    expect: Option<MemberId>,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal> {
    let encryption = local.encryption_at(stream.local_addr()?.ip());
    let endpoints = endpoints_of(&*stream)?;
    let terms = Terms { purpose, expect, encryption, endpoints };
    let handshake = initiate_unbounded(psk, stream, local, terms);
    timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_| Refusal::TooSlow)?
}

/// Runs the responder's end. For a requested data link, `views` returns the terms if a View of this
/// node matches the hint, this node has the rank `dst` in it, and the rank `src` exists. A peer
/// that does not hold the cluster key receives no byte.
///
/// # Errors
/// The [`Refusal`]; the stream is then closed.
pub async fn respond(
    stream: Box<dyn Stream>,
    local: &Local,
    replays: &Mutex<Replays>,
    views: impl Fn(&DataAsk) -> Option<DataTerms>,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal> {
    timeout(HANDSHAKE_TIMEOUT, respond_unbounded(stream, local, replays, views))
        .await
        .map_err(|_| Refusal::TooSlow)?
}

async fn initiate_unbounded(
    psk: &Psk,
    mut stream: Box<dyn Stream>,
    local: &Local,
    terms: Terms,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal> {
    let (initiator, first) = Initiator::start_with(local, psk, terms)?;
    stream.write_all(&first).await?;
    let message2 = read_message::<MESSAGE2_BYTES>(&mut stream).await?;
    let done = initiator.conclude(&message2)?;
    let sent = stream.write_all(&done.message3).await;
    let channel = done.outcome?;
    sent?;
    Ok((stream, channel))
}

async fn respond_unbounded(
    mut stream: Box<dyn Stream>,
    local: &Local,
    replays: &Mutex<Replays>,
    views: impl Fn(&DataAsk) -> Option<DataTerms>,
) -> Result<(Box<dyn Stream>, SecureChannel), Refusal> {
    let encryption = local.encryption_at(stream.local_addr()?.ip());
    let endpoints = endpoints_of(&*stream)?;
    let preamble = Preamble::parse(&read_message(&mut stream).await?)?;
    let (purpose, expect) = terms_of(preamble, views)?;
    let message1 = read_message::<MESSAGE1_BYTES>(&mut stream).await?;
    let terms = Terms { purpose, expect, encryption, endpoints };
    let responder = Responder::open(local, terms, &message1)?;
    if !replays.lock().unwrap_or_else(PoisonError::into_inner).is_first(responder.ephemeral()) {
        return Err(Refusal::Replayed);
    }
    let (answered, message2) = responder.answer()?;
    stream.write_all(&message2).await?;
    let channel = answered.finish(&read_message::<MESSAGE3_BYTES>(&mut stream).await?)?;
    Ok((stream, channel))
}

fn terms_of(
    preamble: Preamble,
    views: impl Fn(&DataAsk) -> Option<DataTerms>,
) -> Result<(Purpose, Option<MemberId>), Refusal> {
    let known = |ask: &DataAsk| views(ask).ok_or(Refusal::UnknownView);
    match preamble {
        Preamble::Control => Ok((Purpose::Control, None)),
        Preamble::Relink => Ok((Purpose::Relink, None)),
        Preamble::Observe => Ok((Purpose::Observe, None)),
        // An invitation has a port of its own.
        Preamble::Pairing(_) => Err(Refusal::NotPotluck),
        Preamble::Data(ask) => {
            let known = known(&ask)?;
            Ok((Purpose::Data { view: known.view, src: ask.src, dst: ask.dst }, Some(known.expect)))
        }
        Preamble::Path(ask) => {
            let known = known(&ask)?;
            Ok((Purpose::Path { view: known.view, src: ask.src, dst: ask.dst }, Some(known.expect)))
        }
    }
}

fn endpoints_of(stream: &dyn Stream) -> io::Result<Option<Endpoints>> {
    Ok(Endpoints::new(stream.local_addr()?, stream.peer_addr()?))
}

async fn read_message<const N: usize>(stream: &mut Box<dyn Stream>) -> Result<[u8; N], Refusal> {
    let mut message = [0; N];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

#[cfg(test)]
mod tests;
