//! How a joiner finds its invitation, in memory: among others, among pretenders, and where there is
//! none.

use super::super::exchange::{CONFIRMATION_BYTES, Inviter};
use super::super::message::KeyOutcome;
use super::super::talk::{Terms, Visit, receive};
use super::super::testing::{CODE, WRONG, code, receipt, terms, welcome};
use super::*;
use crate::discovery::Medium;
use crate::link::{Listener, MemoryWorld, Preamble};
use crate::os::InterfaceAddress;
use std::net::IpAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

const PORT: u16 = 47_474;

fn at(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], PORT))
}

fn advert(host: u8, selector: Option<u8>) -> Advert {
    let pairing = selector.and_then(Selector::of);
    let any = crate::discovery::advert(host.into(), None);
    Advert { pairing, port: PORT, addresses: vec![at(host)], ..any }
}

/// A network in memory; host 9 is the joiner's.
#[derive(Default)]
struct Story {
    world: MemoryWorld,
    medium: Medium,
    announced: Vec<Box<dyn Discovery>>,
}

impl Story {
    async fn announce(&mut self, advert: Advert) {
        let mut node = self.medium.node();
        node.announce(&advert).await.expect("the medium carries it");
        self.announced.push(Box::new(node));
    }

    async fn listener(&self, host: u8) -> Box<dyn Listener> {
        self.world.host(at(host).ip()).listen(&[PORT]).await.expect("a port")
    }

    /// A host that answers every connection by `answer`.
    async fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        host: u8,
        answer: impl Fn(Box<dyn Stream>) -> F + Send + 'static,
    ) {
        let mut listener = self.listener(host).await;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
    }

    /// An inviter with these terms; its visits are told.
    async fn inviter(&self, host: u8, terms: Arc<Terms>) -> mpsc::UnboundedReceiver<Visit> {
        let (tell, visits) = mpsc::unbounded_channel();
        let answer = move |stream| {
            let (terms, tell) = (Arc::clone(&terms), tell.clone());
            async move { drop(tell.send(receive(stream, &terms).await)) }
        };
        self.serve(host, answer).await;
        visits
    }

    /// A host that has read the selector and guesses the rest; tells each confirmation that it
    /// gets.
    async fn pretender(&self, host: u8, tell: mpsc::UnboundedSender<u8>) {
        let answer = move |mut stream: Box<dyn Stream>| {
            let tell = tell.clone();
            async move {
                let mut first = [0; Preamble::BYTES + 33];
                stream.read_exact(&mut first).await.expect("a first message");
                let element = first.last_chunk().expect("an element");
                let (_, own) =
                    Inviter::answer(&code("42-0000-0000"), Zeroizing::new([host; 32]), element)
                        .expect("an element");
                stream.write_all(&own).await.expect("written");
                let mut confirmation = [0; CONFIRMATION_BYTES];
                if stream.read_exact(&mut confirmation).await.is_ok() {
                    _ = tell.send(host);
                }
            }
        };
        self.serve(host, answer).await;
    }

    async fn seek(&self, text: &str) -> Result<Found, PairingProblem> {
        self.seek_by(text, self.announced(&[])).await
    }

    /// The announcements, and these machines otherwise.
    fn announced(&self, otherwise: &[&str]) -> Hints {
        let otherwise = otherwise.iter().map(|text| text.parse().expect("a peer")).collect();
        let subnet = InterfaceAddress { ip: IpAddr::from([10, 0, 0, 9]), prefix_bits: 24 };
        let policy = AddressPolicy::Lan(vec![subnet]);
        Hints::Announced { discovery: Box::new(self.medium.node()), policy, otherwise }
    }

    async fn seek_by(&self, text: &str, hints: Hints) -> Result<Found, PairingProblem> {
        let net = Arc::new(self.world.host(at(9).ip()));
        seek(net, hints, code(text)).await
    }
}

/// The outcome of a search, and the inviter's view of it.
async fn taken(found: Result<Found, PairingProblem>) -> Result<SocketAddr, PairingProblem> {
    let Found { welcome: got, from, reply } = found?;
    assert_eq!(got, welcome());
    reply.send(&receipt(KeyOutcome::Stored)).await.expect("it is awaited");
    Ok(from)
}

#[tokio::test(start_paused = true)]
async fn the_invitation_is_found_among_nodes_and_other_invitations() {
    let mut story = Story::default();
    for (host, selector) in [(1, None), (2, Some(41)), (3, Some(42)), (4, Some(43))] {
        story.announce(advert(host, selector)).await;
        if host != 3 {
            story.serve(host, |_| async { panic!("another machine was asked") }).await;
        }
    }
    let mut visits = story.inviter(3, terms(1)).await;
    assert_eq!(taken(story.seek(CODE).await).await, Ok(at(3)));
    assert!(matches!(visits.recv().await, Some(Visit::Took { left: 0, .. })));
}

#[tokio::test(start_paused = true)]
async fn an_invitation_that_opens_later_is_found() {
    let story = Story::default();
    let _visits = story.inviter(3, terms(1)).await;
    let mut node = story.medium.node();
    let announcing = async {
        tokio::time::sleep(Duration::from_secs(7)).await;
        node.announce(&advert(3, Some(42))).await.expect("announced");
    };
    let (found, ()) = tokio::join!(story.seek(CODE), announcing);
    assert_eq!(taken(found).await, Ok(at(3)));
}

#[tokio::test(start_paused = true)]
async fn without_an_invitation_it_says_so_after_ten_seconds() {
    let mut story = Story::default();
    story.announce(advert(1, None)).await;
    story.announce(advert(2, Some(41))).await;
    let began = Instant::now();
    assert_eq!(taken(story.seek(CODE).await).await, Err(PairingProblem::NotFound));
    assert_eq!(began.elapsed().as_secs(), LISTEN.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_code_is_tried_once_and_soon_said() {
    let mut story = Story::default();
    let mut both = advert(3, Some(42));
    both.addresses.push(SocketAddr::new(at(3).ip(), PORT + 1));
    story.announce(both).await;
    let mut visits = story.inviter(3, terms(1)).await;
    let began = Instant::now();
    assert_eq!(taken(story.seek(WRONG).await).await, Err(PairingProblem::Refused));
    assert!(began.elapsed() <= ALL_HEARD + Duration::from_millis(1), "{:?}", began.elapsed());
    assert_eq!(visits.recv().await, Some(Visit::WrongCode { left: 2 }));
    assert!(visits.try_recv().is_err(), "it was asked again");
}

/// An advert of host 3 with the addresses of these hosts.
fn reached_at(hosts: &[u8]) -> Advert {
    Advert { addresses: hosts.iter().map(|host| at(*host)).collect(), ..advert(3, Some(42)) }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_comes_later_is_dialled_too() {
    let story = Story::default();
    let mut visits = story.inviter(3, terms(1)).await;
    let mut node = story.medium.node();
    let announcing = async {
        for hosts in [&[4][..], &[4, 3], &[3, 4]] {
            node.announce(&reached_at(hosts)).await.expect("announced");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (found, ()) = tokio::join!(story.seek(CODE), announcing);
    assert_eq!(taken(found).await, Ok(at(3)));
    assert!(matches!(visits.recv().await, Some(Visit::Took { left: 0, .. })));
}

#[tokio::test(start_paused = true)]
async fn of_several_attempts_at_a_machine_one_shows_the_code() {
    let story = Story::default();
    let terms = terms(1);
    let mut visits = Vec::new();
    for host in 3..8 {
        visits.push(story.inviter(host, Arc::clone(&terms)).await);
    }
    for (text, is_right) in [(WRONG, false), (CODE, true)] {
        let mut node = story.medium.node();
        let announcing = async {
            for last in 3..8 {
                let hosts: Vec<u8> = (3..=last).collect();
                node.announce(&reached_at(&hosts)).await.expect("announced");
            }
        };
        let (found, ()) = tokio::join!(story.seek(text), announcing);
        match taken(found).await {
            Ok(_) => assert!(is_right),
            Err(problem) => assert_eq!((problem, is_right), (PairingProblem::Refused, false)),
        }
        let mut wrong = 0;
        for told in &mut visits {
            while let Ok(visit) = told.try_recv() {
                wrong += usize::from(matches!(visit, Visit::WrongCode { .. }));
            }
        }
        assert_eq!(wrong, usize::from(!is_right), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_invitations_with_one_selector_the_right_one_lets_in() {
    let mut story = Story::default();
    let other = Arc::new(Terms { code: code(WRONG), ..Arc::into_inner(terms(1)).expect("alone") });
    let mut wrong = story.inviter(1, other).await;
    let _right = story.inviter(3, terms(1)).await;
    story.announce(advert(1, Some(42))).await;
    story.announce(advert(3, Some(42))).await;
    assert_eq!(taken(story.seek(CODE).await).await, Ok(at(3)));
    if let Ok(visit) = wrong.try_recv() {
        assert_eq!(visit, Visit::WrongCode { left: 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn pretenders_learn_of_three_guesses_and_no_more() {
    let mut story = Story::default();
    let (tell, mut told) = mpsc::unbounded_channel();
    for host in 1..=8 {
        story.pretender(host, tell.clone()).await;
        story.announce(advert(host, Some(42))).await;
    }
    drop(tell);
    assert_eq!(taken(story.seek(CODE).await).await, Err(PairingProblem::Refused));
    let mut confirmed = 0;
    while told.try_recv().is_ok() {
        confirmed += 1;
    }
    assert_eq!(confirmed, GUESSES_MAX);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_reached_is_named_and_other_networks_are_not_dialled() {
    let mut story = Story::default();
    let mut far = advert(3, Some(42));
    far.addresses = vec![SocketAddr::from(([10, 9, 0, 3], PORT))];
    story.announce(far).await;
    assert_eq!(taken(story.seek(CODE).await).await, Err(PairingProblem::NotFound));
    story.announce(advert(4, Some(42))).await;
    let unreachable = PairingProblem::Unreachable { at: at(4) };
    assert_eq!(taken(story.seek(CODE).await).await, Err(unreachable));
    story.announce(Advert { version: PROTOCOL_VERSION + 1, ..advert(5, Some(42)) }).await;
    assert_eq!(taken(story.seek(CODE).await).await, Err(unreachable));
    let mut story = Story::default();
    story.announce(Advert { version: 7, ..advert(5, Some(42)) }).await;
    let theirs = PairingProblem::OtherVersion { theirs: 7 };
    assert_eq!(taken(story.seek(CODE).await).await, Err(theirs));
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_announced_the_other_hints_are_tried() {
    let story = Story::default();
    let mut visits = story.inviter(3, terms(1)).await;
    // No name has a label this long, so the second one has no address.
    let otherwise = ["10.0.0.2", &"x".repeat(64), "10.0.0.3"];
    let found = story.seek_by(CODE, story.announced(&otherwise)).await;
    assert_eq!(taken(found).await, Ok(at(3)));
    assert!(matches!(visits.recv().await, Some(Visit::Took { left: 0, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_code_is_not_shown_to_the_other_hints_too() {
    let mut story = Story::default();
    let mut visits = story.inviter(3, terms(1)).await;
    story.announce(advert(3, Some(42))).await;
    let found = story.seek_by(WRONG, story.announced(&["10.0.0.3"])).await;
    assert_eq!(taken(found).await, Err(PairingProblem::Refused));
    assert_eq!(visits.recv().await, Some(Visit::WrongCode { left: 2 }));
    assert!(visits.try_recv().is_err(), "it was asked again");
}

#[tokio::test(start_paused = true)]
async fn a_named_machine_is_asked_at_each_port_until_an_invitation_answers() {
    let story = Story::default();
    story.serve(2, |stream| async { drop(stream) }).await; // a node
    let mut visits = story.inviter(3, terms(2)).await;
    let addresses = || vec![at(1), at(2), at(3)];
    let found = story.seek_by(CODE, Hints::Named(vec![addresses()])).await;
    assert_eq!(taken(found).await, Ok(at(3)));
    assert!(matches!(visits.recv().await, Some(Visit::Took { left: 1, .. })));
    // Two addresses of one machine: it is asked once.
    let found = story.seek_by(WRONG, Hints::Named(vec![vec![at(3), at(2), at(3)]])).await;
    assert_eq!(taken(found).await, Err(PairingProblem::Refused));
    assert_eq!(visits.recv().await, Some(Visit::WrongCode { left: 2 }));
    // The connections to its other addresses are closed unused.
    while let Ok(visit) = visits.try_recv() {
        assert!(matches!(visit, Visit::Left(_)), "it was asked again: {visit:?}");
    }
    let nobody = story.seek_by(CODE, Hints::Named(vec![vec![at(1)], vec![at(2)]])).await;
    assert_eq!(taken(nobody).await, Err(PairingProblem::NotFound));
}
