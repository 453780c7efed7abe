//! Layer: Host.
//!
//! What becomes of calls whose driver comes to a sudden end.

use super::Store;
use crate::collective::{Call, CodecId, DType, Envelope, Input, Kind, Mode, Outcome, ReduceOp, bytes_of};
use crate::driver::{self, Handles};
use crate::view::Lane;
use crate::{Builder, Config};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

const SUM: Call =
    Call { kind: Kind::AllReduce(ReduceOp::Sum), dtype: DType::F32, count: 4, codec: CodecId::None, mode: Mode::PerOp };

/// Panics on the driver's thread as soon as it is told to.
struct Broken(Arc<AtomicBool>);

impl Store for Broken {
    fn save(&mut self, _: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        assert!(!self.0.load(Ordering::Relaxed), "this store is broken, as this test wants it");
        done();
    }

    fn remember(&mut self, _: Vec<SocketAddr>) {}
}

async fn node(name: &str, is_broken: Arc<AtomicBool>) -> Handles {
    let own = Config::from(Builder::new(Config::local()).open_lan("sudden-end").name(name).min_members(2));
    let open = move || async move {
        let (node, mut doors) = crate::start::open(own).await?;
        doors.store = Box::new(Broken(is_broken));
        Ok((node, doors))
    };
    driver::spawn(open).await.expect("it runs")
}

async fn view_of_two(handles: &mut Handles) -> Arc<Envelope> {
    let is_of_two = |envelope: &Option<Arc<Envelope>>| envelope.as_ref().is_some_and(|e| e.view().size() == 2);
    let envelope = timeout(PATIENCE, handles.views.wait_for(is_of_two)).await.expect("in time").expect("it runs").clone();
    envelope.expect("a View")
}

#[tokio::test]
async fn a_driver_that_panics_leaves_no_call_open() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let mut other = node("a", Arc::default()).await;
    let mut handles = node("b", Arc::clone(&is_broken)).await;
    let _ = view_of_two(&mut other).await;
    let envelope = view_of_two(&mut handles).await;
    let op = envelope.call(Lane::MAIN, SUM).expect("a number");
    envelope.begin(op, SUM, &Input::Borrowed(bytes_of(&[1f32; 4])));
    is_broken.store(true, Ordering::Relaxed);
    // The View changes, so there is something to be saved.
    drop(other);
    let decided = timeout(PATIENCE, poll_fn(|task| envelope.poll_decided(op, task))).await.expect("the call stays open");
    assert_eq!(decided.outcome, Outcome::Indeterminate);
    // Whoever waits for a View hears that there will be none.
    let ended = async { while handles.views.changed().await.is_ok() {} };
    timeout(PATIENCE, ended).await.expect("it waits for ever");
    assert!(handles.status.borrow().view.is_none());
}
