//! Layer: Host.
//!
//! Calls that begin the moment their View is there, while the driver is held up.

use crate::collective::{Call, CodecId, DType, Envelope, Input, Kind, Mode, Outcome, ReduceOp, bytes_of};
use crate::driver;
use crate::view::{Lane, OpId};
use crate::{Builder, Config};
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(20);

const SUM: Call =
    Call { kind: Kind::AllReduce(ReduceOp::Sum), dtype: DType::F32, count: 4, codec: CodecId::None, mode: Mode::PerOp };

/// Woken by the driver, on its thread and amid what it does; lets that go on when a call has been begun on another thread.
struct AtOnce {
    views: watch::Receiver<Option<Arc<Envelope>>>,
    begun: mpsc::Sender<(Arc<Envelope>, OpId)>,
    waits: Thread,
}

impl Wake for AtOnce {
    fn wake(self: Arc<AtOnce>) {
        let envelope = self.views.borrow().clone();
        if let Some(envelope) = envelope {
            let begin = move || {
                let op = envelope.call(Lane::MAIN, SUM).expect("the first call of the View");
                envelope.begin(op, SUM, &Input::Borrowed(bytes_of(&[1f32; 4])));
                (envelope, op)
            };
            let begun = thread::spawn(begin).join().expect("it has begun");
            self.begun.send(begun).expect("the test waits for it");
        }
        self.waits.unpark();
    }
}

/// Returns when there is a View.
fn call_at_once(mut views: watch::Receiver<Option<Arc<Envelope>>>, begun: mpsc::Sender<(Arc<Envelope>, OpId)>) {
    let at_once = Arc::new(AtOnce { views: views.clone(), begun, waits: thread::current() });
    let waker = Waker::from(at_once);
    let mut changed = pin!(views.wait_for(Option::is_some));
    while changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park_timeout(PATIENCE);
    }
}

#[tokio::test]
async fn a_call_is_not_faster_than_the_news_of_its_view() {
    let (begun, all_begun) = mpsc::channel();
    let (mut nodes, mut calling) = (Vec::new(), Vec::new());
    for name in ["a", "b"] {
        let own = Config::from(Builder::new(Config::local()).open_lan("news").name(name).min_members(2));
        let handles = driver::spawn(move || crate::start::open(own)).await.expect("it runs");
        let (views, begun) = (handles.views.clone(), begun.clone());
        calling.push(thread::spawn(move || call_at_once(views, begun)));
        nodes.push(handles);
    }
    for call in calling {
        call.join().expect("a View of both");
    }
    for (envelope, op) in all_begun.try_iter().collect::<Vec<_>>() {
        let until = Instant::now() + PATIENCE;
        let outcome = loop {
            match envelope.poll_decided(op, &mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decided) => break decided.outcome,
                Poll::Pending => assert!(Instant::now() < until, "{op} of rank {} never ends", envelope.me()),
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert!(outcome == Outcome::Committed || envelope.is_frozen(), "{op} of rank {}: {outcome:?}", envelope.me());
    }
    drop(nodes);
}
