//! The exchange, and the knowledge that an attacker between the two machines, or at one end, gains.

use super::super::message::KeyOutcome;
use super::super::testing::{CODE, code, welcome};
use super::*;
use crate::pairing::testing;
use proptest::prelude::*;
use rand_core::RngCore;

fn seed(n: u8) -> Zeroizing<[u8; 32]> {
    Zeroizing::new([n; 32])
}

fn receipt() -> Receipt {
    testing::receipt(KeyOutcome::Stored)
}

/// The messages of an exchange, each passed through `wire`; how far it came, and the results of
/// both ends.
#[derive(Debug, Default)]
struct Course {
    messages: Vec<Vec<u8>>,
    joiner: Option<Result<Welcome, Fault>>,
    inviter: Option<Result<Receipt, Fault>>,
}

/// The inviter has the selector of the joiner, as its shell has checked it.
fn run(ours: &str, theirs: &str, mut wire: impl FnMut(usize, &mut [u8])) -> Course {
    let mut course = Course::default();
    let mut pass = |course: &mut Course, message: &[u8]| {
        let mut message = message.to_vec();
        wire(course.messages.len(), &mut message);
        course.messages.push(message.clone());
        message
    };
    let (joiner, first) = Joiner::start(&code(ours), seed(1));
    let first = pass(&mut course, &first);
    let Some(element) = first.last_chunk() else { return course };
    let (inviter, element) = match Inviter::answer(&code(theirs), seed(2), element) {
        Ok(answer) => answer,
        Err(fault) => return Course { inviter: Some(Err(fault)), ..course },
    };
    let element = pass(&mut course, &element);
    let (joiner, confirmation) = match joiner.confirm(&fixed(&element)) {
        Ok(confirmed) => confirmed,
        Err(fault) => return Course { joiner: Some(Err(fault)), ..course },
    };
    let confirmation = pass(&mut course, &confirmation);
    let confirmation = confirmation.first_chunk().expect("its length is kept");
    let inviter = match inviter.verify(confirmation) {
        Ok(proven) => proven,
        Err(fault) => return Course { inviter: Some(Err(fault)), ..course },
    };
    let (inviter, message) = inviter.welcome(&welcome());
    let message = pass(&mut course, &message);
    let joiner = match joiner.open(message.first_chunk().expect("its length is kept")) {
        Ok((welcome, admitted)) => {
            course.joiner = Some(Ok(welcome));
            admitted
        }
        Err(fault) => return Course { joiner: Some(Err(fault)), ..course },
    };
    let message = pass(&mut course, &joiner.receipt(&receipt()));
    course.inviter = Some(inviter.receipt(message.first_chunk().expect("its length is kept")));
    course
}

fn honest() -> Course {
    run(CODE, CODE, |_, _| {})
}

#[test]
fn with_the_same_code_the_key_comes_over_and_the_name_back() {
    let course = honest();
    assert_eq!((course.joiner, course.inviter), (Some(Ok(welcome())), Some(Ok(receipt()))));
    let lengths: Vec<usize> = course.messages.iter().map(Vec::len).collect();
    assert_eq!(
        lengths,
        [FIRST_BYTES, ELEMENT_BYTES, CONFIRMATION_BYTES, WELCOME_BYTES, RECEIPT_BYTES]
    );
}

#[test]
fn the_exchange_never_changes() {
    // Computed by other software from the specification of SPAKE2, RFC 5869 and RFC 2104; two
    // versions of potluck must agree on these.
    let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
    let messages = honest().messages;
    assert_eq!(
        hex(&messages[0][Preamble::BYTES..]),
        "4145d49bebf20d8828e559afd53c147c9515619e0bb678450816876e1e3061a3db"
    );
    assert_eq!(
        hex(&messages[1]),
        "4271c4917250810aa12e2436bd1a47df7306f992531fcbb67829d6571e359cd9d0"
    );
    assert_eq!(
        hex(&messages[2]),
        "0883d6ac2e77dd40856c21c6dc4220291463d5f75419a5852323424b0212cb6f"
    );
    assert_eq!(
        hex(&messages[3][..CONFIRMATION_BYTES]),
        "a5120db0acf85ecfd4a6e1159b4cd2b1624fa444a77dc4df6559ea71af56318d"
    );
}

#[test]
fn no_message_shows_the_key_the_code_or_a_name() {
    for message in honest().messages {
        for secret in [&[7; 8][..], b"12345678", b"1234", b"ada", b"bob", b"lab"] {
            assert!(!message.windows(secret.len()).any(|window| window == secret));
        }
    }
}

#[test]
fn with_another_code_nothing_comes_after_the_confirmation() {
    for theirs in ["42-1234-5679", "42-8765-4321", "42-0000-0000"] {
        let course = run(CODE, theirs, |_, _| {});
        assert_eq!((course.joiner, course.inviter), (None, Some(Err(Fault::NotConfirmed))));
        assert_eq!(course.messages.len(), 3);
    }
}

#[test]
fn one_selector_is_not_another() {
    let course = run(CODE, "43-1234-5678", |_, _| {});
    assert_eq!((course.joiner, course.inviter), (None, Some(Err(Fault::NotConfirmed))));
}

/// The permitted results at each end if one byte of a message was changed.
#[test]
fn any_changed_byte_ends_the_exchange_and_only_a_changed_receipt_comes_after_the_key() {
    let lengths: Vec<usize> = honest().messages.iter().map(Vec::len).collect();
    for (number, length) in lengths.into_iter().enumerate() {
        for at in 0..length {
            if number == 0 && at < Preamble::BYTES {
                continue; // the inviter's shell compares the preamble before the exchange begins
            }
            for flip in [0x01, 0x80] {
                let course = run(CODE, CODE, |message, bytes| {
                    if message == number {
                        bytes[at] ^= flip;
                    }
                });
                let place = format!("message {number}, byte {at}, {flip:#x}: {course:?}");
                match number {
                    0..=2 => {
                        assert!(!matches!(course.joiner, Some(Ok(_))), "{place}");
                        let end = course
                            .joiner
                            .map(|end| end.map(drop))
                            .or(course.inviter.map(|end| end.map(drop)));
                        let refused =
                            [Some(Err(Fault::NotConfirmed)), Some(Err(Fault::NotAnElement))];
                        assert!(refused.contains(&end), "{place}");
                    }
                    3 => {
                        let fault = if at < CONFIRMATION_BYTES {
                            Fault::NotConfirmed
                        } else {
                            Fault::Forged
                        };
                        assert_eq!((course.joiner, course.inviter), (Some(Err(fault)), None));
                    }
                    _ => assert_eq!(
                        (course.joiner, course.inviter),
                        (Some(Ok(welcome())), Some(Err(Fault::Forged)))
                    ),
                }
            }
        }
    }
}

#[test]
fn a_recorded_joiner_does_not_know_the_code_of_a_new_exchange() {
    let recorded = honest().messages;
    let element = recorded[0].last_chunk().expect("an element");
    let confirmation = recorded[2].first_chunk().expect("a confirmation");
    // The same seed gives the same exchange: the second check fails only because the inviter's seed
    // is new.
    let again = |seed| Inviter::answer(&code(CODE), seed, element).expect("an element").0;
    assert!(again(seed(2)).verify(confirmation).is_ok());
    assert_eq!(again(seed(3)).verify(confirmation).map(drop), Err(Fault::NotConfirmed));
}

#[test]
fn a_recorded_inviter_gives_a_new_joiner_nothing() {
    let recorded = honest().messages;
    let (joiner, _) = Joiner::start(&code(CODE), seed(4));
    let (joiner, _) = joiner.confirm(&fixed(&recorded[1])).expect("an element");
    let message = recorded[3].first_chunk().expect("a welcome");
    assert_eq!(joiner.open(message).map(drop), Err(Fault::NotConfirmed));
}

#[test]
fn what_is_no_element_of_the_group_is_refused() {
    let low_order = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    ];
    let no_point = "0200000000000000000000000000000000000000000000000000000000000000";
    for text in low_order.into_iter().chain([no_point]) {
        let point = data_encoding::HEXLOWER.decode(text.as_bytes()).expect("digits");
        let element = |side: u8| fixed(&[&[side], &point[..]].concat());
        let answer = Inviter::answer(&code(CODE), seed(2), &element(b'A'));
        assert_eq!(answer.map(drop), Err(Fault::NotAnElement), "{text}");
        let (joiner, _) = Joiner::start(&code(CODE), seed(1));
        assert_eq!(joiner.confirm(&element(b'B')).map(drop), Err(Fault::NotAnElement), "{text}");
    }
}

#[test]
fn an_end_does_not_talk_to_itself() {
    let (joiner, first) = Joiner::start(&code(CODE), seed(1));
    let own: &[u8; ELEMENT_BYTES] = first.last_chunk().expect("an element");
    assert_eq!(joiner.confirm(own).map(drop), Err(Fault::NotAnElement));
    let (_, element) = Inviter::answer(&code(CODE), seed(2), own).expect("an element");
    let again = Inviter::answer(&code(CODE), seed(2), &element);
    assert_eq!(again.map(drop), Err(Fault::NotAnElement));
}

#[test]
fn every_key_has_its_own_use() {
    let keys = || Keys::of(&[5; 32], &[1; 16], &[2; 33], &[3; 33]);
    let Keys { of_joiner, of_inviter, welcome, receipt, transcript } = keys();
    let all = [of_joiner, of_inviter, welcome, receipt];
    let different: std::collections::BTreeSet<[u8; 32]> = all.iter().map(|key| **key).collect();
    assert!(different.len() == 4 && !different.contains(&transcript));
    for other in [
        Keys::of(&[6; 32], &[1; 16], &[2; 33], &[3; 33]),
        Keys::of(&[5; 32], &[0; 16], &[2; 33], &[3; 33]),
        Keys::of(&[5; 32], &[1; 16], &[0; 33], &[3; 33]),
        Keys::of(&[5; 32], &[1; 16], &[2; 33], &[0; 33]),
    ] {
        assert_ne!((*other.of_joiner, *other.welcome), (*keys().of_joiner, *keys().welcome));
    }
}

#[test]
fn random_numbers_go_on_and_depend_on_the_seed() {
    let drawn = |n: u8| {
        let (mut out, mut rng) = ([0; 96], SeededRng::of(seed(n)));
        rng.fill_bytes(&mut out[..64]);
        rng.fill_bytes(&mut out[64..]);
        out
    };
    let blocks: std::collections::BTreeSet<Vec<u8>> =
        [drawn(1), drawn(2)].concat().chunks(32).map(<[u8]>::to_vec).collect();
    assert_eq!(blocks.len(), 6);
    assert_eq!(drawn(1), drawn(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn only_the_same_digits_agree(ours: [u8; 16], theirs: [u8; 16], same: bool) {
        let ours = PairingCode::of_random(&ours);
        let theirs = if same { ours.clone() } else { PairingCode::of_random(&theirs) };
        let course = run(&ours.to_text(), &theirs.to_text(), |_, _| {});
        prop_assert_eq!(course.inviter == Some(Ok(receipt())), ours == theirs);
        prop_assert_eq!(course.joiner == Some(Ok(welcome())), ours == theirs);
    }

    #[test]
    fn random_bytes_in_place_of_any_message_never_panic_or_pass(
        number in 0usize..5,
        bytes in any::<[u8; 32]>(),
    ) {
        let course = run(CODE, CODE, |message, target| {
            if message == number {
                for (byte, other) in target.iter_mut().zip(bytes.iter().cycle()) {
                    *byte ^= other | 1;
                }
            }
        });
        prop_assert!(course.inviter != Some(Ok(receipt())));
        prop_assert!(number == 4 || course.joiner != Some(Ok(welcome())));
    }
}
