//! An invitation from its announcement to its end, in memory.

use super::super::message::KeyOutcome;
use super::super::talk::{Stage, Trouble, ask};
use super::super::testing::{CODE, LASTS_MS, WRONG, code, receipt, terms, welcome};
use super::*;
use crate::discovery::{Medium, Sighting};
use crate::identity::Selector;
use crate::link::{MemoryWorld, Net};
use crate::os::{FixedInterfaces, Interface, InterfaceAddress, InterfaceKind};
use std::task::Poll;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const PORT: u16 = 47_474;

fn host(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn at() -> SocketAddr {
    SocketAddr::new(host(1), PORT)
}

fn advert() -> Advert {
    let (instance, pairing) = ("invitation".to_owned(), Selector::of(42));
    let any = crate::discovery::advert(9, None);
    Advert { instance, pairing, port: PORT, addresses: vec![at()], ..any }
}

/// An invitation of host 1 on a network in memory.
struct Story {
    world: MemoryWorld,
    medium: Medium,
    heard: mpsc::UnboundedReceiver<(IpAddr, Visit)>,
    _unwanted: oneshot::Sender<()>,
    ended: JoinHandle<Option<InvitationEnd>>,
}

impl Story {
    async fn open(machines: usize, interface_source: Box<dyn InterfaceSource>) -> Story {
        let (world, medium) = (MemoryWorld::new(), Medium::new());
        let listener = world.host(host(1)).listen(&[PORT]).await.expect("a port");
        let doors = Doors { listener, discovery: Box::new(medium.node()), interface_source };
        let (tell, heard) = mpsc::unbounded_channel();
        let (unwanted, wanted) = oneshot::channel();
        let wanted = async { drop(wanted.await) };
        let told = move |from, visit| drop(tell.send((from, visit)));
        let ended = tokio::spawn(invite(doors, advert(), terms(machines), told, wanted));
        let story = Story { world, medium, heard, _unwanted: unwanted, ended };
        story.announced(true).await;
        story
    }

    /// Waits until the invitation is announced, or is not any longer.
    async fn announced(&self, wanted: bool) {
        let seen = async {
            loop {
                let mut ear = self.medium.node();
                let first = timeout(Duration::from_millis(1), ear.next()).await;
                let is_there = first.is_ok_and(|s| matches!(s, Sighting::Appeared(_)));
                if is_there == wanted {
                    return;
                }
            }
        };
        timeout(Duration::from_secs(5), seen).await.expect("within five seconds");
    }

    /// Joins from host `n`.
    async fn join(&self, n: u8, text: &str) -> Result<bool, (Stage, Trouble)> {
        let Ok(stream) = self.world.host(host(n)).dial(at()).await else { return Ok(false) };
        let (got, reply) = ask(stream, &code(text), || true).await?;
        assert_eq!(got, welcome());
        reply.send(&receipt(KeyOutcome::Stored)).await.expect("it is awaited");
        Ok(true)
    }

    async fn next(&mut self) -> (IpAddr, Visit) {
        self.heard.recv().await.expect("something happened")
    }

    async fn end(self) -> Option<InvitationEnd> {
        self.announced(false).await;
        self.ended.await.expect("no panic")
    }
}

fn took(n: u8, left: usize) -> (IpAddr, Visit) {
    (host(n), Visit::Took { name: Some(receipt(KeyOutcome::Stored).name), left })
}

#[tokio::test(start_paused = true)]
async fn it_lets_in_as_many_as_were_invited_and_then_is_gone() {
    let mut story = Story::open(2, Box::new(FixedInterfaces)).await;
    assert_eq!(story.join(2, CODE).await, Ok(true));
    assert_eq!(story.next().await, took(2, 1));
    assert_eq!(story.join(3, CODE).await, Ok(true));
    assert_eq!(story.next().await, took(3, 0));
    story.announced(false).await;
    assert_eq!(story.join(4, CODE).await, Ok(false), "the port is closed");
    assert_eq!(story.end().await, Some(InvitationEnd::Used));
}

#[tokio::test(start_paused = true)]
async fn three_wrong_codes_end_it_and_all_three_are_told() {
    let mut story = Story::open(9, Box::new(FixedInterfaces)).await;
    for left in [2, 1, 0] {
        assert!(story.join(2, WRONG).await.is_err());
        assert_eq!(story.next().await, (host(2), Visit::WrongCode { left }));
    }
    story.announced(false).await;
    assert_eq!(story.join(2, CODE).await, Ok(false), "the port is closed");
    assert_eq!(story.end().await, Some(InvitationEnd::WrongCodes));
}

#[tokio::test(start_paused = true)]
async fn of_guesses_made_side_by_side_three_are_looked_at() {
    let mut story = Story::open(9, Box::new(FixedInterfaces)).await;
    // Polled in turn, so that all are under way before the first one is judged.
    let mut guesses: Vec<_> = (2..22).map(|n| Box::pin(story.join(n, WRONG))).collect();
    let mut failed = 0;
    std::future::poll_fn(|cx| {
        guesses.retain_mut(|guess| match guess.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(joined) => {
                failed += usize::from(joined != Ok(true));
                false
            }
        });
        if guesses.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    drop(guesses);
    assert_eq!(failed, 20);
    let mut wrong = 0;
    while let Some((_, visit)) = story.heard.recv().await {
        assert!(matches!(visit, Visit::WrongCode { .. }), "{visit:?}");
        wrong += 1;
    }
    assert_eq!((wrong, story.end().await), (3, Some(InvitationEnd::WrongCodes)));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_time() {
    let story = Story::open(1, Box::new(FixedInterfaces)).await;
    let lasts = Duration::from_millis(LASTS_MS);
    tokio::time::sleep(lasts - Duration::from_secs(1)).await;
    story.announced(true).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(story.join(2, CODE).await, Ok(false), "the port is closed");
    assert_eq!(story.end().await, Some(InvitationEnd::Expired));
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_it_is_not_wanted_any_longer() {
    let Story { world, medium, ended, .. } = Story::open(1, Box::new(FixedInterfaces)).await;
    assert_eq!(ended.await.expect("no panic"), None);
    assert!(world.host(host(2)).dial(at()).await.is_err(), "the port is closed");
    let heard = timeout(Duration::from_millis(1), medium.node().next()).await;
    assert!(heard.is_err(), "still announced");
}

#[tokio::test(start_paused = true)]
async fn silent_connections_keep_nobody_out() {
    let mut story = Story::open(1, Box::new(FixedInterfaces)).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.extend(story.world.host(host(9)).dial(at()).await);
    }
    assert_eq!(story.join(2, CODE).await, Ok(true));
    assert_eq!(story.next().await, took(2, 0));
    for mut stream in silent {
        let mut answer = Vec::new();
        // The end may come as an error.
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty());
    }
    assert_eq!(story.end().await, Some(InvitationEnd::Used));
}

/// A machine with one interface, which has this address.
struct Wired(IpAddr);

impl InterfaceSource for Wired {
    fn look(&mut self) -> Option<InterfaceSet> {
        let addresses = vec![InterfaceAddress { ip: self.0, prefix_bits: 24 }];
        let eth0 = Interface {
            name: "eth0".to_owned(),
            index: 2,
            kind: InterfaceKind::Ethernet,
            addresses,
            speed_mbps: None,
            mtu: None,
        };
        Some(InterfaceSet { all: vec![eth0.clone()], chosen: vec![eth0], ..InterfaceSet::none() })
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_to_an_interface_that_is_not_used_is_refused() {
    let story = Story::open(1, Box::new(Wired(host(7)))).await;
    assert_eq!(story.join(2, CODE).await, Err((Stage::Unanswered, Trouble::Closed)));
    drop(story);
    let mut story = Story::open(1, Box::new(Wired(host(1)))).await;
    assert_eq!(story.join(2, CODE).await, Ok(true));
    assert_eq!(story.next().await, took(2, 0));
}
