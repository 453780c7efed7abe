//! The handshake between two ends in memory: what each learns, and every reason to refuse.

use crate::link::DataEncryption;

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
        assert_eq!(
            (at_a.encryption, at_b.encryption),
            (DataEncryption::Required, DataEncryption::Required)
        );
    }
}

#[test]
fn a_wire_is_trusted_only_when_both_ends_say_so() {
    let (a, b) = (local(1, 1, 7), local(2, 2, 7));
    for (x, y) in [
        (DataEncryption::Waived, DataEncryption::Waived),
        (DataEncryption::Waived, DataEncryption::Required),
        (DataEncryption::Required, DataEncryption::Waived),
    ] {
        let over = |encryption| Terms { encryption, ..control() };
        let (at_a, at_b) = run((&a, over(x)), (&b, over(y)), |_, _| ());
        let agreed = if x == y { DataEncryption::Waived } else { DataEncryption::Required };
        assert_eq!(
            (at_a.map(|s| s.encryption), at_b.map(|s| s.encryption)),
            (Ok(agreed), Ok(agreed))
        );
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
    assert_eq!(messages, 2, "the third message tells this node's identity");
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
    assert_eq!(messages, 2, "the third message tells this node's identity");
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
        assert!(n < 3, "it heard our identity");
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
fn both_ends_hear_of_a_self_dial_and_of_a_duplicate() {
    let (me, duplicate) = (local(1, 1, 7), local(1, 2, 7));
    let seen = refusals(run((&me, control()), (&me, control()), |_, _| ()));
    assert_eq!(seen, (Some(Refusal::SelfDial), Some(Refusal::SelfDial)));
    let seen = refusals(run((&me, control()), (&duplicate, control()), |_, _| ()));
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
