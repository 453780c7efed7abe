//! A node ends a link because there is another one, which is not known here yet.

use super::super::event::Event;
use super::super::status_link::{Said, StatusSender, read_all};
use super::super::testing::of_group;
use super::*;
use crate::api::{NodeRole, open};
use crate::link::{Suite, channel_pair_of, streams};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Shorter than a link waits for the other one.
const SHORT: Duration = Duration::from_secs(5);

/// The links of an observer, with another one.
struct Observer {
    links: StatusLinks,
    node: MemberId,
    events: mpsc::Receiver<Event>,
    _status: watch::Sender<Status>,
}

/// The node's end of a link.
struct End {
    to: StatusSender,
    said: mpsc::Receiver<Said>,
    _reading: JoinHandle<io::Error>,
}

impl Observer {
    async fn new(group: &str) -> Observer {
        let (node, doors) =
            open(of_group(group, "eye".to_owned()), NodeRole::Observer).await.expect("it opens");
        let (queue, events) = mpsc::channel(8);
        let looks_back = LooksBack {
            net: doors.tools.net,
            local: Arc::clone(&node.local),
            events: queue.clone(),
            faults: doors.tools.faults,
        };
        let (_status, status) = watch::channel(node.first_status(1));
        let links = StatusLinks::new(true, looks_back, status, queue);
        Observer { links, node: channel_pair_of(Suite::Aes256Gcm).0.peer.id, events, _status }
    }

    /// Takes another link with the node, which asks and answers nothing.
    fn take(&mut self, is_preferred: bool) -> End {
        let ((near, far), (mut own, other)) = (streams(), channel_pair_of(Suite::Aes256Gcm));
        own.peer.observer = true;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        assert_eq!(self.links.take(near, own, address, is_preferred), None);
        let (to, from) = into_control(far, other);
        let (queue, said) = mpsc::channel(8);
        End { to: StatusSender::new(to), said, _reading: tokio::spawn(read_all(from, queue)) }
    }

    /// The next report of a link, and its consequence.
    async fn hears(&mut self) -> (Told, Outcome) {
        let event = self.events.recv().await.expect("this end holds a sender");
        let Event::StatusLink { node, number, told } = event else { panic!("another event") };
        let outcome = self.links.on_told(node, number, &told);
        (told, outcome)
    }
}

impl End {
    /// The next question for a look back; `None` if the link has ended.
    async fn asked_to_look_back(&mut self) -> Option<LookBack> {
        loop {
            match self.said.recv().await? {
                Said::LookBack(question) => return Some(question),
                Said::Ask => {}
                _ => panic!("an observer asks"),
            }
        }
    }
}

/// The question was asked before the first link has ended, or after it.
#[tokio::test(start_paused = true)]
async fn a_question_waits_for_the_other_link() {
    for is_asked_before in [true, false] {
        let mut eye = Observer::new(&format!("other-link-{is_asked_before}")).await;
        let question = LookBack::of(vec!["10.0.0.1:1".to_owned()]);
        let mut first = eye.take(true);
        if is_asked_before {
            assert_eq!(eye.links.look_back(&question), [eye.node]);
            assert_eq!(first.asked_to_look_back().await.as_ref(), Some(&question));
        }
        first.to.send(&Said::Spare).await.expect("sent");
        drop(first);
        assert!(timeout(SHORT, eye.hears()).await.is_err(), "the other link is waited for");
        if !is_asked_before {
            assert_eq!(eye.links.look_back(&question), [eye.node]);
        }
        // The first link would have stayed if it had not ended.
        let mut second = eye.take(false);
        assert_eq!(second.asked_to_look_back().await, Some(question));
    }
}

#[tokio::test(start_paused = true)]
async fn the_other_link_does_not_come() {
    let mut eye = Observer::new("no-other-link").await;
    let mut first = eye.take(true);
    first.to.send(&Said::Spare).await.expect("sent");
    let began = Instant::now();
    assert!(matches!(eye.hears().await, (Told::Spare, Outcome::Ended)));
    assert!(began.elapsed() > SHORT && eye.links.links.is_empty());
}

/// A node that leaves does not wait for another link of an observer.
#[tokio::test(start_paused = true)]
async fn no_other_link_is_waited_for_at_the_end() {
    let mut eye = Observer::new("end-without-other-link").await;
    let mut first = eye.take(true);
    first.to.send(&Said::Spare).await.expect("sent");
    assert!(timeout(SHORT, eye.hears()).await.is_err(), "the other link is waited for");
    let began = Instant::now();
    eye.links.finish().await;
    assert!(began.elapsed() < SHORT);
}

/// Both ends have taken the other link, and end the first one.
#[tokio::test(start_paused = true)]
async fn both_ends_end_the_same_link_at_once() {
    for round in 0..8 {
        let mut eye = Observer::new(&format!("both-ends-{round}")).await;
        let mut first = eye.take(false);
        first.to.send(&Said::Spare).await.expect("sent");
        drop(eye.take(true));
        let began = Instant::now();
        eye.links.finish().await;
        assert!(began.elapsed() < Duration::from_millis(500), "round {round}");
    }
}
