//! The handshake as a state machine over byte arrays: Noise `XXpsk0_25519_AESGCM_SHA256` with an
//! Ed25519 proof in each introduction.
//!
//! ```text
//! -> preamble, psk, e                  64 bytes   a stranger fails here, unanswered, before any DH
//! <- e, ee, s, es, proof(responder)   416 bytes
//! -> s, se, proof(initiator)          384 bytes   only now is there a link
//! ```
//!
//! Each step consumes the type of the step before it, so the order of the steps is fixed at compile
//! time. All messages have a fixed size. A node's X25519 key lives as long as its process; the
//! Ed25519 key is its identity, and its signature covers the handshake so far (see
//! [`super::hello`]).
//!
//! # What the responder spends
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
        let verdict = self.end.judge(&peer);
        if let Err(silent @ (Refusal::WrongRank | Refusal::Denied | Refusal::NotPinned)) = verdict {
            return Err(silent);
        }
        let mut message3 = [0; MESSAGE3_BYTES];
        self.end.speak(Role::Initiator, &mut message3)?;
        let outcome = verdict.and_then(|()| self.end.into_channel(peer));
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
        } else if self.terms.purpose == Purpose::Observe {
            // Whatever the two ends run: no group comes of it.
            Ok(())
        } else if peer.observer || self.local.hello.observer {
            Err(Refusal::Observer)
        } else if peer.job != self.local.hello.job {
            let Hello { id, name, job, .. } = peer.clone();
            Err(Refusal::OtherJob(Box::new(JobMember { id, name, job })))
        } else if peer.partition != self.local.hello.partition {
            Err(Refusal::OtherPartition)
        } else if self.terms.expect.is_some_and(|expected| expected != peer.id) {
            Err(Refusal::WrongRank)
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
    use crate::link::Wire;

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
            wire: Wire::Untrusted,
            suite: Suite::Aes256Gcm,
            endpoints: None,
        };
        let identity = Arc::new(Identity::from_seed(&[n; 32]));
        Local::new(identity, hello, Zeroizing::new([100 + n; 32]), vec![Zeroizing::new([key; 32])])
    }

    pub(crate) fn control() -> Terms {
        Terms { purpose: Purpose::Control, expect: None, wire: Wire::Untrusted, endpoints: None }
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
mod tests {
    use crate::link::Wire;

    use super::testing::{control, local, respond};
    use super::*;
    use crate::identity::JobName;
    use crate::protocol::{Rank, ViewDigest};
    use std::collections::BTreeSet;
    use zeroize::Zeroizing;

    type Outcomes = (Result<SecureChannel, Refusal>, Result<SecureChannel, Refusal>);

    /// Runs a handshake whose messages pass through `tap` as (number, bytes).
    fn run(a: (&Local, Terms), b: (&Local, Terms), mut tap: impl FnMut(u8, &mut [u8])) -> Outcomes {
        let (initiator, mut first) = Initiator::start(a.0, a.1).expect("randomness");
        tap(1, &mut first);
        let (answered, mut message2) = match respond(b.0, b.1, &first) {
            Ok(answer) => answer,
            Err(refusal) => return (Err(Refusal::Closed), Err(refusal)),
        };
        tap(2, &mut message2);
        match initiator.conclude(&message2) {
            Ok(mut done) => {
                tap(3, &mut done.message3);
                (done.outcome, answered.finish(&done.message3))
            }
            Err(refusal) => (Err(refusal), Err(Refusal::Closed)),
        }
    }

    fn refusals(outcomes: Outcomes) -> (Option<Refusal>, Option<Refusal>) {
        (outcomes.0.err(), outcomes.1.err())
    }

    fn data(view: u8, src: u8, dst: u8) -> Terms {
        Terms {
            purpose: Purpose::Data { view: ViewDigest([view; 32]), src: Rank(src), dst: Rank(dst) },
            ..control()
        }
    }

    #[test]
    fn two_members_learn_who_the_other_is() {
        let (a, b) = (local(1, 11, 7), local(2, 22, 7));
        for terms in [control(), data(3, 0, 1)] {
            let (at_a, at_b) = run((&a, terms), (&b, terms), |_, _| ());
            let (at_a, at_b) = (at_a.expect("link at a"), at_b.expect("link at b"));
            assert_eq!((&at_a.peer, &at_b.peer), (&b.hello, &a.hello));
            assert_eq!((at_a.purpose, at_b.purpose), (terms.purpose, terms.purpose));
            assert_eq!((at_a.wire, at_b.wire), (Wire::Untrusted, Wire::Untrusted));
        }
    }

    #[test]
    fn a_wire_is_trusted_only_when_both_ends_say_so() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        for (x, y) in [
            (Wire::Trusted, Wire::Trusted),
            (Wire::Trusted, Wire::Untrusted),
            (Wire::Untrusted, Wire::Trusted),
        ] {
            let over = |wire| Terms { wire, ..control() };
            let (at_a, at_b) = run((&a, over(x)), (&b, over(y)), |_, _| ());
            let agreed = if x == y { Wire::Trusted } else { Wire::Untrusted };
            assert_eq!((at_a.map(|s| s.wire), at_b.map(|s| s.wire)), (Ok(agreed), Ok(agreed)));
        }
    }

    #[test]
    fn whoever_follows_another_roster_is_told_so_and_gets_no_link() {
        let (a, mut b) = (local(1, 1, 7), local(2, 2, 7));
        b.hello.partition = [1; 8];
        for terms in [control(), data(3, 0, 1)] {
            let seen = refusals(run((&a, terms), (&b, terms), |_, _| ()));
            assert_eq!(seen, (Some(Refusal::OtherPartition), Some(Refusal::OtherPartition)));
        }
    }

    #[test]
    fn nodes_of_two_jobs_learn_who_runs_what_and_get_no_link() {
        let (mut a, mut b) = (local(1, 1, 7), local(2, 2, 7));
        a.hello.job = JobName::parse("train").expect("a name");
        b.hello.job = JobName::parse("quickstart").expect("a name");
        // Two jobs may have two rules for a cut network.
        b.hello.partition = [1; 8];
        let shown = |node: &Local| {
            let Hello { id, name, job, .. } = node.hello.clone();
            Some(Refusal::OtherJob(Box::new(JobMember { id, name, job })))
        };
        for terms in [control(), Terms { purpose: Purpose::Relink, ..control() }, data(3, 0, 1)] {
            let seen = refusals(run((&a, terms), (&b, terms), |_, _| ()));
            assert_eq!(seen, (shown(&b), shown(&a)));
        }
    }

    #[test]
    fn an_observer_has_no_link_but_to_observe() {
        let (mut a, mut b) = (local(1, 1, 7), local(2, 2, 7));
        a.hello.observer = true;
        let observes = Terms { purpose: Purpose::Observe, ..control() };
        for (dialler, to) in [(&a, &b), (&b, &a)] {
            for terms in [control(), Terms { purpose: Purpose::Relink, ..control() }] {
                let seen = refusals(run((dialler, terms), (to, terms), |_, _| ()));
                assert_eq!(seen, (Some(Refusal::Observer), Some(Refusal::Observer)));
            }
            let seen = refusals(run((dialler, observes), (to, observes), |_, _| ()));
            assert_eq!(seen, (None, None));
        }
        // Neither job nor partition rule matter.
        b.hello.job = JobName::parse("other").expect("a name");
        b.hello.partition = [1; 8];
        assert_eq!(refusals(run((&a, observes), (&b, observes), |_, _| ())), (None, None));
        b.set_denied([a.hello.id.node].into());
        let (at_a, at_b) = refusals(run((&a, observes), (&b, observes), |_, _| ()));
        assert_eq!((at_a, at_b), (None, Some(Refusal::Denied)));
        // With the identity of the node that it dials it is a copy.
        let copy = local(2, 9, 7);
        let seen = refusals(run((&copy, observes), (&b, observes), |_, _| ()));
        assert_eq!(seen, (Some(Refusal::DuplicateIdentity), Some(Refusal::DuplicateIdentity)));
    }

    #[test]
    fn another_cluster_key_fails_at_the_first_message() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 8));
        let seen = refusals(run((&a, control()), (&b, control()), |number, _| {
            assert_eq!(number, 1, "something was sent back");
        }));
        assert_eq!(seen, (Some(Refusal::Closed), Some(Refusal::WrongKey)));
    }

    #[test]
    fn another_view_or_other_ranks_fail_at_the_first_message() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        for other in [data(4, 0, 1), data(3, 2, 1), data(3, 0, 2), control()] {
            let seen = refusals(run((&a, data(3, 0, 1)), (&b, other), |_, _| ()));
            assert_eq!(seen, (Some(Refusal::Closed), Some(Refusal::WrongKey)));
        }
    }

    #[test]
    fn any_flipped_byte_ends_the_handshake() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        for (number, len) in [(1, 64), (2, MESSAGE2_BYTES), (3, MESSAGE3_BYTES)] {
            for at in 0..len {
                let outcomes = run((&a, control()), (&b, control()), |n, bytes| {
                    if n == number {
                        bytes[at] ^= 0x40;
                    }
                });
                assert!(outcomes.1.is_err(), "byte {at} of message {number}");
                assert_eq!(outcomes.0.is_ok(), number == 3, "byte {at} of message {number}");
            }
        }
    }

    #[test]
    fn while_the_key_changes_either_one_admits() {
        let keys = |of: &[u8]| of.iter().map(|key| Zeroizing::new([*key; 32])).collect();
        let (old, new) = (local(1, 1, 7), local(2, 2, 8));
        let both = local(3, 3, 7);
        both.set_psks(keys(&[7, 8]));
        for one in [&old, &new] {
            let (at_one, at_both) = run((one, control()), (&both, control()), |_, _| ());
            let (at_one, at_both) = (at_one.expect("a link"), at_both.expect("a link"));
            assert_eq!(at_one.psk, at_both.psk);
            assert!(both.accepts(at_both.psk) && one.accepts(at_both.psk));
        }
        // The change is over: a link by the first key could not be made any more.
        let (_, by_old) = run((&old, control()), (&both, control()), |_, _| ());
        both.set_psks(keys(&[8]));
        assert!(!both.accepts(by_old.expect("a link").psk));
        let seen = refusals(run((&old, control()), (&both, control()), |_, _| ()));
        assert_eq!(seen, (Some(Refusal::Closed), Some(Refusal::WrongKey)));
    }

    #[test]
    fn who_is_denied_is_refused_and_learns_nothing() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        a.set_denied([b.hello.id.node].into());
        let mut messages = 0;
        let seen = refusals(run((&a, control()), (&b, control()), |_, _| messages += 1));
        assert_eq!(seen, (Some(Refusal::Denied), Some(Refusal::Closed)));
        assert_eq!(messages, 2, "the third message tells who this node is");
        let seen = refusals(run((&b, control()), (&a, control()), |_, _| ()));
        assert_eq!(seen.1, Some(Refusal::Denied));
        a.set_denied(BTreeSet::new());
        assert_eq!(refusals(run((&b, control()), (&a, control()), |_, _| ())), (None, None));
    }

    #[test]
    fn who_is_not_pinned_is_refused_and_learns_nothing() {
        let (a, b, c) = (local(1, 1, 7), local(2, 2, 7), local(3, 3, 7));
        a.pin([b.hello.id.node].into());
        assert_eq!(refusals(run((&a, control()), (&b, control()), |_, _| ())), (None, None));
        let mut messages = 0;
        let seen = refusals(run((&a, control()), (&c, control()), |_, _| messages += 1));
        assert_eq!(seen, (Some(Refusal::NotPinned), Some(Refusal::Closed)));
        assert_eq!(messages, 2, "the third message tells who this node is");
        let seen = refusals(run((&c, control()), (&a, control()), |_, _| ()));
        assert_eq!(seen.1, Some(Refusal::NotPinned));
        a.set_denied([b.hello.id.node].into());
        let seen = refusals(run((&b, control()), (&a, control()), |_, _| ()));
        assert_eq!(seen.1, Some(Refusal::Denied), "to deny goes before to pin");
    }

    #[test]
    fn a_recorded_handshake_cannot_be_played_again() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        let mut recorded = Vec::new();
        run((&a, control()), (&b, control()), |_, bytes| recorded.push(bytes.to_vec()))
            .1
            .expect("the genuine one");
        let first: [u8; 64] = recorded[0].as_slice().try_into().expect("64 bytes");
        let (answered, _) =
            respond(&b, control(), &first).expect("the first message alone proves the key only");
        let third: [u8; MESSAGE3_BYTES] = recorded[2].as_slice().try_into().expect("its size");
        assert_eq!(answered.finish(&third).err(), Some(Refusal::Forged));
        let (initiator, _) = Initiator::start(&a, control()).expect("randomness");
        let second: [u8; MESSAGE2_BYTES] = recorded[1].as_slice().try_into().expect("its size");
        assert_eq!(initiator.conclude(&second).err(), Some(Refusal::WrongKey));
    }

    #[test]
    fn a_forged_last_message_makes_no_link() {
        let (a, b) = (local(1, 1, 7), local(2, 2, 7));
        let (_, first) = Initiator::start(&a, control()).expect("randomness");
        let (answered, _) = respond(&b, control(), &first).expect("genuine");
        assert_eq!(answered.finish(&[0x55; MESSAGE3_BYTES]).err(), Some(Refusal::Forged));
    }

    #[test]
    fn a_member_cannot_pass_for_another() {
        let (mallory, b) = (local(3, 3, 7), local(2, 2, 7));
        let a = local(1, 1, 7).hello.id;
        let expecting = Terms { expect: Some(a), ..data(3, 0, 1) };
        let seen = refusals(run((&mallory, data(3, 0, 1)), (&b, expecting), |_, _| ()));
        assert_eq!(seen, (None, Some(Refusal::WrongRank)), "as initiator");
        let seen = refusals(run((&b, expecting), (&mallory, data(3, 0, 1)), |n, _| {
            assert!(n < 3, "it heard who we are");
        }));
        assert_eq!(seen, (Some(Refusal::WrongRank), Some(Refusal::Closed)), "as responder");

        let mut liar = local(3, 3, 7);
        liar.hello.id = a;
        let seen = refusals(run((&liar, control()), (&b, control()), |_, _| ()));
        assert_eq!(seen.1, Some(Refusal::BadSignature));
    }

    #[test]
    fn an_earlier_life_of_the_expected_member_is_not_it() {
        let (old, b) = (local(1, 1, 7), local(2, 2, 7));
        let expecting = Terms { expect: Some(local(1, 9, 7).hello.id), ..data(3, 0, 1) };
        assert_eq!(
            refusals(run((&old, data(3, 0, 1)), (&b, expecting), |_, _| ())).1,
            Some(Refusal::WrongRank)
        );
    }

    #[test]
    fn both_ends_hear_of_a_self_dial_and_of_a_twin() {
        let (me, twin) = (local(1, 1, 7), local(1, 2, 7));
        let seen = refusals(run((&me, control()), (&me, control()), |_, _| ()));
        assert_eq!(seen, (Some(Refusal::SelfDial), Some(Refusal::SelfDial)));
        let seen = refusals(run((&me, control()), (&twin, control()), |_, _| ()));
        assert_eq!(seen, (Some(Refusal::DuplicateIdentity), Some(Refusal::DuplicateIdentity)));
    }

    /// Which public keys of a member are points of low order: its static one, or the ephemeral one
    /// of this handshake.
    #[derive(Clone, Copy, PartialEq)]
    enum Weak {
        Static,
        Ephemeral,
    }

    struct WeakDh {
        real: Box<dyn snow::types::Dh>,
        weak: Weak,
        is: Weak,
    }

    impl snow::types::Dh for WeakDh {
        fn name(&self) -> &'static str {
            "25519"
        }
        fn pub_len(&self) -> usize {
            32
        }
        fn priv_len(&self) -> usize {
            32
        }
        fn set(&mut self, private: &[u8]) {
            self.is = Weak::Static;
            self.real.set(private);
        }
        fn generate(&mut self, rng: &mut dyn snow::types::Random) -> Result<(), snow::Error> {
            self.is = Weak::Ephemeral;
            self.real.generate(rng)
        }
        fn pubkey(&self) -> &[u8] {
            if self.is == self.weak { &[0; 32] } else { self.real.pubkey() }
        }
        fn privkey(&self) -> &[u8] {
            self.real.privkey()
        }
        fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
            self.real.dh(public, out)?;
            if self.is == self.weak {
                out[..32].fill(0);
            }
            Ok(())
        }
    }

    impl snow::resolvers::CryptoResolver for Weak {
        fn resolve_rng(&self) -> Option<Box<dyn snow::types::Random>> {
            snow::resolvers::RingResolver.resolve_rng()
        }
        fn resolve_dh(&self, choice: &snow::params::DHChoice) -> Option<Box<dyn snow::types::Dh>> {
            let real = snow::resolvers::DefaultResolver.resolve_dh(choice)?;
            Some(Box::new(WeakDh { real, weak: *self, is: Weak::Static }))
        }
        fn resolve_hash(
            &self,
            choice: &snow::params::HashChoice,
        ) -> Option<Box<dyn snow::types::Hash>> {
            snow::resolvers::RingResolver.resolve_hash(choice)
        }
        fn resolve_cipher(
            &self,
            choice: &snow::params::CipherChoice,
        ) -> Option<Box<dyn snow::types::Cipher>> {
            snow::resolvers::RingResolver.resolve_cipher(choice)
        }
    }

    /// The responder's refusal of a member whose keys are `weak`.
    fn meet_weak(weak: Weak) -> Option<Refusal> {
        let (mut a, b) = (local(1, 1, 7), local(2, 2, 7));
        a.static_public = if weak == Weak::Static { [0; 32] } else { a.static_public };
        let pattern = "Noise_XXpsk0_25519_AESGCM_SHA256".parse().expect("a pattern");
        let prologue = Purpose::Control.prologue();
        let builder = Builder::with_resolver(pattern, Box::new(weak))
            .local_private_key(a.static_private.as_slice());
        let psks = a.psks();
        let builder = builder
            .and_then(|b| b.psk(0, &psks[0].bytes))
            .and_then(|b| b.prologue(&prologue))
            .expect("fixed sizes");
        let mut end = End {
            noise: builder.build_initiator().expect("randomness"),
            psk: psks[0].number,
            local: &a,
            terms: control(),
        };
        let mut first = [0; 64];
        first[..16].copy_from_slice(&Purpose::Control.preamble());
        end.noise.write_message(&[], &mut first[16..]).expect("fixed sizes");
        let (answered, message2) = match respond(&b, control(), &first) {
            Ok(answer) => answer,
            Err(refusal) => return Some(refusal),
        };
        end.hear(&message2, Role::Responder, Refusal::WrongKey).expect("the responder is genuine");
        let mut message3 = [0; MESSAGE3_BYTES];
        end.speak(Role::Initiator, &mut message3).expect("fixed sizes");
        answered.finish(&message3).err()
    }

    #[test]
    fn a_member_that_makes_the_keys_guessable_is_refused() {
        assert_eq!(meet_weak(Weak::Ephemeral), Some(Refusal::WeakPoint));
        assert_eq!(meet_weak(Weak::Static), Some(Refusal::WeakPoint));
    }
}
