//! Runs the exchange on a stream, with messages of exact length and a deadline.
//!
//! Cancellation: dropping one of these futures closes the stream. A joiner that was admitted may
//! then have the key.

#[cfg(test)]
mod tests;

use super::exchange::{
    Admitted, CONFIRMATION_BYTES, ELEMENT_BYTES, Fault, Inviter, Joiner, RECEIPT_BYTES,
    WELCOME_BYTES, Welcomed,
};
use super::message::{KeyOutcome, Receipt, Welcome};
use super::window::{Verdict, Window};
use crate::identity::{Name, PairingCode};
use crate::link::{Preamble, Stream};
use derive_more::Display;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use zeroize::Zeroizing;

/// Longest duration of an exchange until the cluster key is sent. A stranger holds a place no
/// longer.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for the receipt: meanwhile the joiner writes a file, on a slow disk perhaps.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(5);

/// The terms of an invitation.
pub struct Terms {
    /// The code.
    pub code: PairingCode,
    /// Gives the message for a machine that knows the code. It is asked for each one, since the
    /// cluster key may change meanwhile.
    pub welcome: Box<dyn Fn() -> Welcome + Send + Sync>,
    /// Counts the admitted machines and the wrong codes.
    pub window: Mutex<Window>,
    /// When the window's clock was 0.
    pub began: Instant,
}

/// How a joiner's visit has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visit {
    /// It has the key. Its receipt, if it came, has its name.
    Took {
        /// Its name.
        name: Option<Name>,
        /// How many more machines may come.
        left: usize,
    },
    /// It knows the code, and did not keep the key.
    Declined(Name),
    /// Its code was wrong.
    WrongCode {
        /// Wrong codes until the invitation ends.
        left: u32,
    },
    /// It did not get as far as to show a code.
    Left(Trouble),
}

/// Why an exchange could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Trouble {
    /// The peer did not ask for this invitation.
    #[display("the peer did not ask for this invitation")]
    NotInvited,
    /// The invitation has ended.
    #[display("the invitation has ended")]
    Over,
    /// It took too long.
    #[display("the exchange took too long")]
    TooSlow,
    /// The connection has ended.
    #[display("the peer closed the connection")]
    Closed,
    /// The operating system reported an error, or gave no randomness.
    #[display("the connection failed: {_0}")]
    System(io::ErrorKind),
    /// A message of the peer is wrong.
    #[display("{_0}")]
    Fault(Fault),
}

/// How far a joiner has come when its exchange fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The peer has sent nothing: it is perhaps no inviter.
    Unanswered,
    /// The peer has sent its element, and knows from the confirmation whether its code is ours.
    Confirmed,
}

/// A joiner that has the key and has not said so yet.
pub struct Reply {
    stream: Box<dyn Stream>,
    admitted: Admitted,
}

impl Terms {
    /// The window, now.
    pub fn window<T>(&self, look: impl FnOnce(&mut Window, u64) -> T) -> T {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        look(&mut window, self.began.elapsed().as_millis() as u64)
    }
}

/// Runs the inviter's end. A peer that does not begin like a joiner with the code's selector gets
/// no byte, and one with a wrong code none after the inviter's element.
pub async fn receive(mut stream: Box<dyn Stream>, terms: &Terms) -> Visit {
    let verified = timeout(EXCHANGE_TIMEOUT, verify(&mut stream, terms)).await;
    let welcomed = match verified.unwrap_or(Err(Visit::Left(Trouble::TooSlow))) {
        Ok(welcomed) => welcomed,
        Err(visit) => return visit,
    };
    let receipt = timeout(RECEIPT_TIMEOUT, receipt(&mut stream, welcomed)).await;
    let receipt = receipt.unwrap_or(Err(Trouble::TooSlow));
    // A joiner that has not said that it declined may have the key.
    if let Ok(Receipt { kept: KeyOutcome::Declined, name }) = receipt {
        terms.window(|window, _| window.declined());
        return Visit::Declined(name);
    }
    let left = terms.window(|window, _| window.took());
    Visit::Took { name: receipt.ok().map(|receipt| receipt.name), left }
}

/// Until the joiner has shown that it knows the code; then nothing is awaited any more, so the
/// place that the window has given is not lost to the deadline.
async fn verify(stream: &mut Box<dyn Stream>, terms: &Terms) -> Result<Proof, Visit> {
    let expected = Preamble::of_pairing(terms.code.selector());
    if read::<{ Preamble::BYTES }>(stream).await? != expected {
        return Err(Visit::Left(Trouble::NotInvited));
    }
    let element = read::<ELEMENT_BYTES>(stream).await?;
    let (inviter, own) = Inviter::answer(&terms.code, seed()?, &element).map_err(Trouble::Fault)?;
    write(stream, &own).await?;
    let confirmation = read::<CONFIRMATION_BYTES>(stream).await?;
    let mut proven = None;
    let verdict = terms.window(|window, now| {
        window.judge(now, || {
            proven = inviter.verify(&confirmation).ok();
            proven.is_some()
        })
    });
    match (verdict, proven) {
        (Verdict::Admitted, Some(proven)) => Ok(proven.welcome(&(terms.welcome)())),
        (Verdict::Wrong { left }, _) => Err(Visit::WrongCode { left }),
        _ => Err(Visit::Left(Trouble::Over)),
    }
}

type Proof = (Welcomed, [u8; WELCOME_BYTES]);

async fn receipt(
    stream: &mut Box<dyn Stream>,
    (welcomed, message): Proof,
) -> Result<Receipt, Trouble> {
    write(stream, &message).await?;
    welcomed.receipt(&read::<RECEIPT_BYTES>(stream).await?).map_err(Trouble::Fault)
}

/// Runs the joiner's end until it has the key. `may_confirm` is asked before the confirmation is
/// sent, by which the peer learns whether one guess of its own is right.
pub async fn ask(
    stream: Box<dyn Stream>,
    code: &PairingCode,
    may_confirm: impl FnOnce() -> bool,
) -> Result<(Welcome, Reply), (Stage, Trouble)> {
    let mut stage = Stage::Unanswered;
    let asked = ask_unbounded(stream, code, may_confirm, &mut stage);
    let asked = timeout(EXCHANGE_TIMEOUT, asked).await.unwrap_or(Err(Trouble::TooSlow));
    asked.map_err(|trouble| (stage, trouble))
}

async fn ask_unbounded(
    mut stream: Box<dyn Stream>,
    code: &PairingCode,
    may_confirm: impl FnOnce() -> bool,
    stage: &mut Stage,
) -> Result<(Welcome, Reply), Trouble> {
    let (joiner, first) = Joiner::start(code, seed()?);
    write(&mut stream, &first).await?;
    let element = read::<ELEMENT_BYTES>(&mut stream).await?;
    let (confirmed, confirmation) = joiner.confirm(&element).map_err(Trouble::Fault)?;
    if !may_confirm() {
        return Err(Trouble::Over);
    }
    *stage = Stage::Confirmed;
    write(&mut stream, &confirmation).await?;
    let message = read::<WELCOME_BYTES>(&mut stream).await?;
    let (welcome, admitted) = confirmed.open(&message).map_err(Trouble::Fault)?;
    Ok((welcome, Reply { stream, admitted }))
}

impl Reply {
    /// Says whether the key was kept. An error is no matter for the joiner: it has the key.
    pub async fn send(mut self, receipt: &Receipt) -> Result<(), Trouble> {
        let message = self.admitted.receipt(receipt);
        let sending = async {
            write(&mut self.stream, &message).await?;
            Ok(self.stream.shutdown().await?)
        };
        timeout(RECEIPT_TIMEOUT, sending).await.unwrap_or(Err(Trouble::TooSlow))
    }
}

async fn read<const N: usize>(stream: &mut Box<dyn Stream>) -> Result<[u8; N], Trouble> {
    let mut message = [0; N];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(stream: &mut Box<dyn Stream>, message: &[u8]) -> Result<(), Trouble> {
    Ok(stream.write_all(message).await?)
}

fn seed() -> Result<Zeroizing<[u8; 32]>, Trouble> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|_| Trouble::System(io::ErrorKind::Other))?;
    Ok(seed)
}

impl From<Trouble> for Visit {
    fn from(trouble: Trouble) -> Visit {
        Visit::Left(trouble)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected => Trouble::Closed,
            kind => Trouble::System(kind),
        }
    }
}
