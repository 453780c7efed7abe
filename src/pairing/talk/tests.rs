//! The exchange over streams: with honest ends, with one dishonest end, and with an attacker
//! between them.

use super::super::testing::{CODE, WRONG, code, receipt, terms, welcome};
use super::*;
use crate::link::streams;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf, split};

type Asked = Result<Welcome, (Stage, Trouble)>;

/// A joiner that stores the key.
async fn joiner(stream: Box<dyn Stream>, text: &str) -> Asked {
    let (welcome, reply) = ask(stream, &code(text), || true).await?;
    // The connection may be cut behind the key.
    let _ = reply.send(&receipt(KeyOutcome::Stored)).await;
    Ok(welcome)
}

async fn meet(terms: &Terms, text: &str) -> (Asked, Visit) {
    let (near, far) = streams();
    tokio::join!(joiner(near, text), receive(far, terms))
}

fn took(left: usize) -> Visit {
    Visit::Took { name: Some(receipt(KeyOutcome::Stored).name), left }
}

/// The next wrong code; it is the first to count if there was none before.
async fn wrong_codes_left(terms: &Terms) -> u32 {
    match meet(terms, WRONG).await.1 {
        Visit::WrongCode { left } => left,
        visit => panic!("{visit:?}"),
    }
}

/// Sends `bytes` to an inviter and closes; returns how the visit has ended and the answer.
async fn answer_to(bytes: &[u8], terms: &Terms) -> (Visit, Vec<u8>) {
    let (mut near, far) = streams();
    let mut answer = Vec::new();
    let talking = async {
        near.write_all(bytes).await.expect("the pipe is wide enough");
        near.shutdown().await.expect("closed");
        near.read_to_end(&mut answer).await.expect("read");
    };
    let (visit, ()) = tokio::join!(receive(far, terms), talking);
    (visit, answer)
}

/// An attacker between the two ends, which forwards so many bytes of each direction and then cuts
/// both.
struct Between {
    up: usize,
    down: usize,
    heard: Vec<u8>,
}

async fn meet_over(between: &mut Between, terms: &Terms) -> (Asked, Visit) {
    let ((near, here), (there, far)) = (streams(), streams());
    let (up, down) = (between.up, between.down);
    let ends = async { tokio::join!(joiner(near, CODE), receive(far, terms)) };
    let proxy = async {
        let ((from_joiner, to_joiner), (from_inviter, to_inviter)) = (split(here), split(there));
        tokio::select! {
            heard = pump(from_joiner, to_inviter, up) => heard,
            _ = pump(from_inviter, to_joiner, down) => Vec::new(),
        }
    };
    tokio::pin!(ends, proxy);
    tokio::select! {
        biased;
        heard = &mut proxy => between.heard = heard,
        both = &mut ends => return both,
    }
    ends.await
}

/// Passes on `limit` bytes, and returns them; pending if fewer come.
async fn pump<R: AsyncRead, W: AsyncWrite>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    limit: usize,
) -> Vec<u8> {
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while heard.len() < limit {
        if !matches!(from.read(&mut byte).await, Ok(1)) {
            std::future::pending::<()>().await;
        }
        let _ = to.write_all(&byte).await;
        heard.push(byte[0]);
    }
    heard
}

const UP: usize = Preamble::BYTES + ELEMENT_BYTES + CONFIRMATION_BYTES + RECEIPT_BYTES;
const DOWN: usize = ELEMENT_BYTES + WELCOME_BYTES;
const UNTIL_CONFIRMED: usize = UP - RECEIPT_BYTES;

#[tokio::test(start_paused = true)]
async fn the_key_comes_over_and_both_ends_know() {
    let terms = terms(2);
    assert_eq!(meet(&terms, CODE).await, (Ok(welcome()), took(1)));
    assert_eq!(meet(&terms, CODE).await, (Ok(welcome()), took(0)));
    let late = meet(&terms, CODE).await;
    assert_eq!(late.1, Visit::Left(Trouble::Over));
    assert_eq!(late.0, Err((Stage::Confirmed, Trouble::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_code_counts_and_gets_no_answer() {
    let terms = terms(1);
    for left in [2, 1, 0] {
        let (asked, visit) = meet(&terms, WRONG).await;
        assert_eq!(visit, Visit::WrongCode { left });
        assert_eq!(asked, Err((Stage::Confirmed, Trouble::Closed)));
    }
    let (asked, visit) = meet(&terms, CODE).await;
    assert_eq!((asked.is_err(), visit), (true, Visit::Left(Trouble::Over)), "the window is closed");
}

#[tokio::test(start_paused = true)]
async fn a_joiner_that_declines_leaves_its_place_to_the_next() {
    let terms = terms(1);
    let (near, far) = streams();
    let declining = async {
        let (_, reply) = ask(near, &code(CODE), || true).await.expect("it knows the code");
        reply.send(&receipt(KeyOutcome::Declined)).await
    };
    let (sent, visit) = tokio::join!(declining, receive(far, &terms));
    assert_eq!((sent, visit), (Ok(()), Visit::Declined(receipt(KeyOutcome::Declined).name)));
    assert_eq!(meet(&terms, CODE).await.1, took(0));
}

#[tokio::test(start_paused = true)]
async fn who_does_not_begin_like_a_joiner_of_this_code_gets_no_byte_and_counts_nothing() {
    let terms = terms(1);
    let other = Preamble::of_pairing(code("43-1234-5678").selector());
    let ours = Preamble::of_pairing(code(CODE).selector());
    let openings = [
        [&other[..], &[b'A'; 33 + 32]].concat(),
        [&ours[..], &[b'A'; 33 + 32]].concat(),
        [&ours[..], &[0xff; 33 + 32]].concat(),
        [&ours[..], b"B", &[0x58], &[0x66; 31 + 32]].concat(),
        [&b"potl\x01\x10"[..], &[0; 90]].concat(),
        b"GET / HTTP/1.1\r\nHost: there\r\n\r\n".repeat(3),
        vec![0; 4096],
    ];
    for opening in openings {
        let (visit, answer) = answer_to(&opening, &terms).await;
        assert!(matches!(visit, Visit::Left(_)) && answer.is_empty(), "{opening:?}: {visit:?}");
    }
    assert_eq!(wrong_codes_left(&terms).await, 2);
}

/// The bytes of an honest joiner, heard on the way.
async fn recorded() -> Vec<u8> {
    let mut between = Between { up: UP, down: usize::MAX, heard: Vec::new() };
    let (asked, visit) = meet_over(&mut between, &terms(1)).await;
    assert_eq!((asked, visit), (Ok(welcome()), took(0)));
    assert_eq!(between.heard.len(), UP);
    between.heard
}

#[tokio::test(start_paused = true)]
async fn a_recorded_joiner_is_of_no_use_and_each_of_its_prefixes_counts_nothing() {
    let (recorded, terms) = (recorded().await, terms(1));
    for end in 0..UNTIL_CONFIRMED {
        let (visit, answer) = answer_to(&recorded[..end], &terms).await;
        assert_eq!(visit, Visit::Left(Trouble::Closed), "{end} bytes");
        let whole = end >= UNTIL_CONFIRMED - CONFIRMATION_BYTES;
        assert_eq!(answer.len(), if whole { ELEMENT_BYTES } else { 0 }, "{end} bytes");
    }
    for left in [2, 1, 0] {
        let (visit, answer) = answer_to(&recorded, &terms).await;
        assert_eq!((visit, answer.len()), (Visit::WrongCode { left }, ELEMENT_BYTES));
    }
}

#[tokio::test(start_paused = true)]
async fn cut_at_any_byte_the_joiner_has_no_key_or_the_inviter_counts_it_as_given() {
    for up in 0..UP {
        let (terms, mut between) = (terms(1), Between { up, down: usize::MAX, heard: Vec::new() });
        let (asked, visit) = meet_over(&mut between, &terms).await;
        if up < UNTIL_CONFIRMED {
            assert!(asked.is_err() && matches!(visit, Visit::Left(_)), "{up}: {visit:?}");
            assert_eq!(wrong_codes_left(&terms).await, 2, "{up} bytes up");
        } else {
            assert_eq!(visit, Visit::Took { name: None, left: 0 }, "{up} bytes up");
        }
    }
    for down in 0..DOWN {
        let (terms, mut between) = (terms(1), Between { up: usize::MAX, down, heard: Vec::new() });
        let (asked, visit) = meet_over(&mut between, &terms).await;
        let (stage, trouble) = asked.expect_err("the last message is not whole");
        assert_eq!(trouble, Trouble::Closed, "{down} bytes down");
        let confirmed = down >= ELEMENT_BYTES;
        assert_eq!(stage == Stage::Confirmed, confirmed, "{down} bytes down");
        // With the element the joiner's confirmation may come through before the cut, or not.
        assert!(
            matches!(visit, Visit::Left(_))
                || confirmed && visit == Visit::Took { name: None, left: 0 },
            "{down} bytes down: {visit:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_inviter_that_does_not_know_the_code_gets_one_confirmation_and_gives_nothing() {
    let (near, mut far) = streams();
    let pretending = async {
        let first = read::<{ Preamble::BYTES + ELEMENT_BYTES }>(&mut far).await?;
        let element = first.last_chunk().expect("an element");
        let guess = code("42-0000-0000");
        let (inviter, own) = Inviter::answer(&guess, seed()?, element).map_err(Trouble::Fault)?;
        write(&mut far, &own).await?;
        let wrong = inviter.verify(&read(&mut far).await?).is_err();
        write(&mut far, &[7; WELCOME_BYTES]).await?;
        Ok::<bool, Trouble>(wrong)
    };
    let (asked, wrong) = tokio::join!(joiner(near, CODE), pretending);
    assert_eq!(asked, Err((Stage::Confirmed, Trouble::Fault(Fault::NotConfirmed))));
    assert_eq!(wrong, Ok(true));
}

#[tokio::test(start_paused = true)]
async fn a_joiner_that_may_not_confirm_does_not() {
    let (terms, (near, far)) = (terms(1), streams());
    let asking = code(CODE);
    let (asked, visit) = tokio::join!(ask(near, &asking, || false), receive(far, &terms));
    assert_eq!(asked.map(drop), Err((Stage::Unanswered, Trouble::Over)));
    assert_eq!(visit, Visit::Left(Trouble::Closed));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_for_the_whole_exchange_and_a_slow_one_counts_nothing() {
    let (recorded, terms) = (recorded().await, terms(1));
    let began = Instant::now();
    let (mut near, far) = streams();
    let drip = async {
        for byte in &recorded {
            // An error means that the inviter has closed.
            let _ = near.write_all(&[*byte]).await;
            tokio::time::sleep(Duration::from_millis(1900)).await;
        }
    };
    tokio::select! {
        visit = receive(far, &terms) => assert_eq!(visit, Visit::Left(Trouble::TooSlow)),
        () = drip => panic!("the slow joiner was heard out"),
    }
    assert_eq!(began.elapsed().as_secs(), 2);
    let (near, _kept) = streams();
    let asked = joiner(near, CODE).await;
    assert_eq!(asked, Err((Stage::Unanswered, Trouble::TooSlow)));
    assert_eq!(wrong_codes_left(&terms).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_receipt_that_does_not_come_is_awaited_for_a_time_and_counts_as_given() {
    let (terms, (near, far)) = (terms(1), streams());
    let began = Instant::now();
    let asking = code(CODE);
    let silent = async {
        let kept = ask(near, &asking, || true).await.expect("it knows the code");
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(kept);
    };
    tokio::select! {
        visit = receive(far, &terms) => assert_eq!(visit, Visit::Took { name: None, left: 0 }),
        () = silent => panic!("it was awaited for ever"),
    }
    assert_eq!(began.elapsed(), RECEIPT_TIMEOUT);
}

#[test]
fn an_exchange_is_small_and_may_run_on_any_thread() {
    let terms = terms(1);
    let state = receive(streams().1, &terms);
    fn is_send(_: &impl Send) {}
    is_send(&state);
    assert!(size_of_val(&state) <= 4096, "{} bytes", size_of_val(&state));
}
