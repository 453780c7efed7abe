//! Calls that begin as soon as their View is shown, while the control loop is held up.

use super::testing::{PATIENCE, SUM, of_group, started};
use crate::collective::Input;
use crate::memory::bytes_of;
use crate::protocol::{Lane, OpId, Outcome, ViewDigest};
use crate::session::ViewSession;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;

type Views = watch::Receiver<Option<Arc<ViewSession>>>;
type Begun = (Arc<ViewSession>, OpId);

/// Begins a call in every View, once, and reports it to the test.
struct Caller {
    views: Views,
    called: Mutex<BTreeSet<ViewDigest>>,
    begun: mpsc::Sender<Begun>,
    waits: Thread,
}

impl Caller {
    fn call(&self) {
        let Some(session) = self.views.borrow().clone() else { return };
        if !self.called.lock().expect("nobody panics").insert(session.digest()) {
            return;
        }
        // Refused if the View has already ended.
        if let Ok(op) = session.call(Lane::MAIN, SUM) {
            session.begin(op, SUM, &Input::Borrowed(bytes_of(&[1f32; 4])));
            // The test may have ended.
            let _ = self.begun.send((session, op));
        }
    }
}

/// Woken by the control loop on its thread in the middle of its work. Returns to the control loop
/// when the call has been started on another thread.
impl Wake for Caller {
    fn wake(self: Arc<Caller>) {
        let caller = Arc::clone(&self);
        if thread::spawn(move || caller.call()).join().is_ok() {
            self.waits.unpark();
        }
    }
}

/// Runs until there are no more Views.
fn call_in_every_view(mut views: Views, begun: mpsc::Sender<Begun>) {
    let caller =
        Caller { views: views.clone(), called: Mutex::default(), begun, waits: thread::current() };
    let caller = Arc::new(caller);
    let waker = Waker::from(Arc::clone(&caller));
    loop {
        let mut changed = pin!(views.changed());
        match changed.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => thread::park_timeout(PATIENCE),
            // The change was there without waiting.
            Poll::Ready(Ok(())) => caller.call(),
            Poll::Ready(Err(_)) => return,
        }
    }
}

#[tokio::test]
async fn a_call_is_not_faster_than_the_news_of_its_view() {
    let (begun, all_begun) = mpsc::channel();
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let handles = started(of_group("news", name.to_owned()), |_, _| ()).await;
        let (views, begun) = (handles.views.clone(), begun.clone());
        thread::spawn(move || call_in_every_view(views, begun));
        nodes.push(handles);
    }
    // On a machine that stalls, a View may be replaced; in one that stays, both calls end.
    let (until, mut open, mut done) =
        (Instant::now() + PATIENCE, Vec::new(), BTreeMap::<_, u32>::new());
    while !done.values().any(|members| *members == 2) {
        assert!(Instant::now() < until, "of {} calls none ends on both: {done:?}", open.len());
        open.extend(all_begun.try_iter());
        open.retain(|(session, op): &Begun| {
            match session.poll_decided(*op, &mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decided) => {
                    *done.entry(session.digest()).or_default() +=
                        u32::from(decided.outcome == Outcome::Committed);
                    false
                }
                Poll::Pending => true,
            }
        });
        thread::sleep(Duration::from_millis(1));
    }
    drop(nodes);
}
