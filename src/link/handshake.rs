//! The handshake as a state machine over byte arrays: Noise `XXpsk0_25519_AESGCM_SHA256` with an
//! Ed25519 proof in each introduction.
//!
//! ```text
//! -> preamble, psk, e                  64 bytes   a stranger fails here, unanswered, before any DH
//! <- e, ee, s, es, proof(responder)   436 bytes
//! -> s, se, proof(initiator)          404 bytes   only now is there a link
//! ```
//!
//! Each step consumes the type of the step before it, so the order of the steps is fixed at compile
//! time. All messages have a fixed size. A node's X25519 key lives as long as its process; the
//! Ed25519 key is its identity, and its signature covers the handshake so far (see
//! [`super::hello`]).
//!
//! # The cost to the responder
//! For a stranger two hashes. For a holder of the cluster key two key exchanges and a signature,
//! but only once for each first message (see [`super::handshake_limiter::Replays`]).

#[cfg(test)]
pub(crate) use testing::{channel_pair, channel_pair_over, respond};
#[cfg(any(fuzzing, test))]
pub(crate) use testing::{channel_pair_of, control, local};

use super::hello::{Binding, Hello, PROVEN_BYTES, Role};
use super::local::{Local, Psk, PskNumber, contributes};
use super::preamble::{Preamble, Purpose};
use super::refusal::Refusal;
use super::secure_channel::SecureChannel;
use super::terms::Terms;
use crate::identity::JobMember;
use snow::{Builder, HandshakeState};

/// Length of the first message in bytes, without its preamble.
pub const MESSAGE1_BYTES: usize = 32 + TAG;
/// Length of the second message in bytes.
pub const MESSAGE2_BYTES: usize = 32 + 32 + TAG + PROVEN_BYTES + TAG;
/// Length of the third message in bytes.
pub const MESSAGE3_BYTES: usize = 32 + TAG + PROVEN_BYTES + TAG;

/// The initiator, waiting for the second message.
pub struct Initiator<'a> {
    end: End<'a>,
}

/// The initiator's result after the second message.
pub struct Conclusion {
    /// The third message. Send it even if the outcome is a refusal: the peer learns from it of a
    /// self-dial, of its own identity on another node, of another job or of another partition rule.
    pub message3: [u8; MESSAGE3_BYTES],
    /// The session, or the reason for having none.
    pub outcome: Result<SecureChannel, Refusal>,
}

/// The responder after reading the first message.
pub struct Responder<'a> {
    end: End<'a>,
    ephemeral: [u8; 32],
}

/// The responder, waiting for the third message.
pub struct Answered<'a> {
    end: End<'a>,
}

struct End<'a> {
    noise: HandshakeState,
    psk: PskNumber,
    local: &'a Local,
    terms: Terms,
}

impl<'a> Initiator<'a> {
    /// Starts a handshake with this node's first pre-shared key, and returns the first message
    /// behind its preamble.
    #[cfg(any(test, fuzzing))]
    pub fn start(
        local: &'a Local,
        terms: Terms,
    ) -> Result<(Initiator<'a>, [u8; Preamble::BYTES + MESSAGE1_BYTES]), Refusal> {
        Initiator::start_with(local, &local.psks()[0], terms)
    }

    /// The same with one of this node's pre-shared keys.
    pub fn start_with(
        local: &'a Local,
        psk: &Psk,
        terms: Terms,
    ) -> Result<(Initiator<'a>, [u8; Preamble::BYTES + MESSAGE1_BYTES]), Refusal> {
        let noise = noise_of(local, psk, &terms.purpose, Role::Initiator)?;
        let mut end = End { noise, psk: psk.number, local, terms };
        let mut first = [0; Preamble::BYTES + MESSAGE1_BYTES];
        first[..Preamble::BYTES].copy_from_slice(&terms.purpose.preamble());
        end.noise
            .write_message(&[], &mut first[Preamble::BYTES..])
            .map_err(|_| Refusal::NoEntropy)?;
        Ok((Initiator { end }, first))
    }

    /// Reads the second message and makes the third one.
    ///
    /// # Errors
    /// [`Refusal::WrongKey`] if the message is not authentic, [`Refusal::WeakPoint`], an error of
    /// the peer's introduction, [`Refusal::WrongRank`], [`Refusal::Denied`] or
    /// [`Refusal::NotPinned`]. Then no third message exists, so a wrong peer does not learn this
    /// node's identity.
    pub fn conclude(mut self, message2: &[u8; MESSAGE2_BYTES]) -> Result<Conclusion, Refusal> {
        let peer = self.end.hear(message2, Role::Responder, Refusal::WrongKey)?;
        if !contributes(&message2[..32]) {
            return Err(Refusal::WeakPoint);
        }
        let judged = self.end.judge(&peer);
        if let Err(silent @ (Refusal::WrongRank | Refusal::Denied | Refusal::NotPinned)) = judged {
            return Err(silent);
        }
        let mut message3 = [0; MESSAGE3_BYTES];
        self.end.speak(Role::Initiator, &mut message3)?;
        let outcome = judged.and_then(|()| self.end.into_channel(peer));
        Ok(Conclusion { message3, outcome })
    }
}

impl<'a> Responder<'a> {
    /// Reads the first message, without a key exchange.
    ///
    /// # Errors
    /// [`Refusal::WrongKey`] if the initiator holds none of this node's pre-shared keys, or means
    /// another View.
    pub fn open(
        local: &'a Local,
        terms: Terms,
        message1: &[u8; MESSAGE1_BYTES],
    ) -> Result<Responder<'a>, Refusal> {
        let mut ephemeral = [0; 32];
        ephemeral.copy_from_slice(&message1[..32]);
        for psk in &*local.psks() {
            let mut noise = noise_of(local, psk, &terms.purpose, Role::Responder)?;
            if noise.read_message(message1, &mut []).is_ok() {
                return Ok(Responder {
                    end: End { noise, psk: psk.number, local, terms },
                    ephemeral,
                });
            }
        }
        Err(Refusal::WrongKey)
    }

    /// The initiator's ephemeral X25519 key, which identifies a replay.
    pub fn ephemeral(&self) -> [u8; 32] {
        self.ephemeral
    }

    /// Makes the second message.
    ///
    /// # Errors
    /// [`Refusal::WeakPoint`] or [`Refusal::NoEntropy`].
    pub fn answer(mut self) -> Result<(Answered<'a>, [u8; MESSAGE2_BYTES]), Refusal> {
        if !contributes(&self.ephemeral) {
            return Err(Refusal::WeakPoint);
        }
        let mut message2 = [0; MESSAGE2_BYTES];
        self.end.speak(Role::Responder, &mut message2)?;
        Ok((Answered { end: self.end }, message2))
    }
}

impl Answered<'_> {
    /// Reads the third message.
    ///
    /// # Errors
    /// [`Refusal::Forged`] if the message is not authentic, an error of the peer's introduction, or
    /// the reason for refusing this peer.
    pub fn finish(mut self, message3: &[u8; MESSAGE3_BYTES]) -> Result<SecureChannel, Refusal> {
        let peer = self.end.hear(message3, Role::Initiator, Refusal::Forged)?;
        self.end.judge(&peer)?;
        self.end.into_channel(peer)
    }
}

impl End<'_> {
    fn speak(&mut self, role: Role, message: &mut [u8]) -> Result<(), Refusal> {
        let local = self.local;
        let binding = Binding {
            role,
            hash: self.noise.get_handshake_hash(),
            static_public: &local.static_public,
        };
        let proven = local.hello_over(&self.terms).proven_by(&local.identity, &binding);
        // All sizes are fixed, so only the system's randomness can fail here.
        self.noise.write_message(&proven, message).map(drop).map_err(|_| Refusal::NoEntropy)
    }

    fn hear(&mut self, message: &[u8], role: Role, unreadable: Refusal) -> Result<Hello, Refusal> {
        let mut hash = [0; 32];
        hash.copy_from_slice(self.noise.get_handshake_hash());
        let mut proven = [0; PROVEN_BYTES];
        if self.noise.read_message(message, &mut proven) != Ok(PROVEN_BYTES) {
            return Err(unreadable);
        }
        let static_public = self.noise.get_remote_static().unwrap_or_default();
        if !contributes(static_public) {
            return Err(Refusal::WeakPoint);
        }
        Hello::verified(&proven, &Binding { role, hash: &hash, static_public })
    }

    fn judge(&self, peer: &Hello) -> Result<(), Refusal> {
        let me = self.local.hello.id;
        if peer.id == me {
            Err(Refusal::SelfDial)
        } else if peer.id.node == me.node {
            Err(Refusal::DuplicateIdentity)
        } else if let Err(refusal) = self.local.admits(peer.id.node) {
            Err(refusal)
        } else if self.terms.expect.is_some_and(|expected| expected != peer.id) {
            Err(Refusal::WrongRank)
        } else if self.terms.purpose == Purpose::Observe
            && (peer.observer || self.local.hello.observer)
        {
            // Whatever the two ends run: no group comes of it.
            Ok(())
        } else if peer.observer || self.local.hello.observer {
            Err(Refusal::Observer)
        } else if peer.job != self.local.hello.job {
            let Hello { id, name, job, .. } = peer.clone();
            Err(Refusal::OtherJob(Box::new(JobMember { id, name, job })))
        } else if peer.partition != self.local.hello.partition {
            Err(Refusal::OtherPartition)
        } else {
            Ok(())
        }
    }

    fn into_channel(self, peer: Hello) -> Result<SecureChannel, Refusal> {
        let own = self.local.hello_over(&self.terms);
        SecureChannel::new(self.noise, self.psk, &own, peer, self.terms.purpose)
    }
}

fn noise_of(
    local: &Local,
    psk: &Psk,
    purpose: &Purpose,
    role: Role,
) -> Result<HandshakeState, Refusal> {
    // The pattern and all lengths are fixed, so only the system's randomness can be missing.
    let no_entropy = |_| Refusal::NoEntropy;
    let prologue = purpose.prologue();
    let builder = Builder::new("Noise_XXpsk0_25519_AESGCM_SHA256".parse().map_err(no_entropy)?)
        .local_private_key(local.static_private.as_slice())
        .and_then(|b| b.psk(0, &psk.bytes))
        .and_then(|b| b.prologue(&prologue))
        .map_err(no_entropy)?;
    match role {
        Role::Initiator => builder.build_initiator(),
        Role::Responder => builder.build_responder(),
    }
    .map_err(no_entropy)
}

const TAG: usize = super::keys::TAG_BYTES;

#[cfg(any(fuzzing, test))]
#[cfg_attr(not(test), allow(dead_code, reason = "fuzz targets use a part of it"))]
pub(crate) mod testing {
    use crate::identity::MemberId;
    use crate::link::DataEncryption;

    use super::super::suite::Suite;
    use super::*;
    use crate::identity::{Boot, Identity, JobName, Name, NodeId};
    use crate::protocol::Engines;
    use std::path::Path;
    use std::sync::Arc;
    use zeroize::Zeroizing;

    /// The node number `n` of the tests, in the cluster number `key`.
    pub(crate) fn local(n: u8, boot: u64, key: u8) -> Local {
        let hello = Hello {
            id: MemberId { node: NodeId([0; 32]), boot: Boot(boot) },
            name: Name::from_lossy(&format!("n{n}")),
            job: JobName::of_program(Path::new("train")),
            port: 1000 + u16::from(n),
            stateless: false,
            observer: false,
            engines: Engines::NATIVE,
            partition: [0; 8],
            encryption: DataEncryption::Required,
            suite: Suite::Aes256Gcm,
            endpoints: None,
            host: None,
        };
        let identity = Arc::new(Identity::from_seed(&[n; 32]));
        Local::new(identity, hello, Zeroizing::new([100 + n; 32]), vec![Zeroizing::new([key; 32])])
    }

    pub(crate) fn control() -> Terms {
        Terms {
            purpose: Purpose::Control,
            expect: None,
            encryption: DataEncryption::Required,
            endpoints: None,
        }
    }

    /// The two sessions of a control link from node 1 to node 2.
    pub(crate) fn channel_pair() -> (SecureChannel, SecureChannel) {
        channel_pair_over(control())
    }

    pub(crate) fn channel_pair_over(terms: Terms) -> (SecureChannel, SecureChannel) {
        channel_pair_between(&local(1, 1, 7), &local(2, 2, 7), terms)
    }

    /// Two sessions whose records are sealed with `suite`.
    pub(crate) fn channel_pair_of(suite: Suite) -> (SecureChannel, SecureChannel) {
        let (a, mut b) = (local(1, 1, 7), local(2, 2, 7));
        b.hello.suite = suite;
        channel_pair_between(&a, &b, control())
    }

    fn channel_pair_between(a: &Local, b: &Local, terms: Terms) -> (SecureChannel, SecureChannel) {
        let (initiator, first) = Initiator::start(a, terms).expect("randomness");
        let (answered, message2) = respond(b, terms, &first).expect("the first message is genuine");
        let done = initiator.conclude(&message2).expect("the second message is genuine");
        (
            done.outcome.expect("a welcome peer"),
            answered.finish(&done.message3).expect("a welcome peer"),
        )
    }

    pub(crate) fn respond<'a>(
        local: &'a Local,
        terms: Terms,
        first: &[u8; 64],
    ) -> Result<(Answered<'a>, [u8; MESSAGE2_BYTES]), Refusal> {
        let (preamble, message1) = first.split_at(Preamble::BYTES);
        Preamble::parse(preamble.try_into().expect("16 bytes"))?;
        Responder::open(local, terms, message1.try_into().expect("48 bytes"))?.answer()
    }
}

#[cfg(test)]
mod tests;
