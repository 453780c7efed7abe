//! The outcome of calls whose control loop ends suddenly or loses its disk.

use super::control_loop::Handles;
use super::testing::{PATIENCE, begin, decided, of_group, started, view_of};
use crate::identity::{Scratch, StateFile};
use crate::os::{Disk, Files, Store};
use crate::protocol::Outcome;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// A store that panics on the control loop's thread once the flag is set.
struct Broken(Arc<AtomicBool>);

impl Store for Broken {
    fn save(&mut self, _: Vec<u8>, done: Box<dyn FnOnce() + Send>) {
        assert!(!self.0.load(Ordering::Relaxed), "this store is broken, as this test wants it");
        done();
    }

    fn remember(&mut self, _: Vec<SocketAddr>) {}
}

async fn node(group: &str, name: &str, store: Box<dyn Store>) -> Handles {
    started(of_group(group, name.to_owned()), move |_, doors| doors.tools.store = store).await
}

fn whole() -> Box<dyn Store> {
    Box::new(Broken(Arc::default()))
}

#[tokio::test]
async fn a_driver_that_panics_leaves_no_call_open() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let mut other = node("sudden-end", "a", whole()).await;
    let mut handles = node("sudden-end", "b", Box::new(Broken(Arc::clone(&is_broken)))).await;
    let _ = view_of(2, &mut other).await;
    let session = view_of(2, &mut handles).await;
    let op = begin(&session);
    is_broken.store(true, Ordering::Relaxed);
    // The View changes, so there is state to save.
    drop(other);
    let ended = decided(&session, op).await;
    assert_eq!(ended.outcome, Outcome::Indeterminate);
    // A caller that waits for a View learns that there will be none.
    let ended = async { while handles.views.changed().await.is_ok() {} };
    timeout(PATIENCE, ended).await.expect("it waits for ever");
    assert!(handles.status.borrow().view.is_none());
}

#[tokio::test]
async fn who_waits_for_its_disk_gives_its_calls_up_and_comes_back_when_that_is_well() {
    let scratch = Scratch::new();
    let (folder, away) = (scratch.path().join("state"), scratch.path().join("away"));
    std::fs::create_dir(&folder).expect("made");
    let files = Files::with(StateFile::at(folder.join("state-x.bin")), scratch.path());
    let disk = Disk::start(files, ()).expect("a thread");
    let mut a = node("full-disk", "a", whole()).await;
    let mut b = node("full-disk", "b", Box::new(disk)).await;
    let mut c = node("full-disk", "c", whole()).await;
    let mut d = node("full-disk", "d", whole()).await;
    for handles in [&mut a, &mut c, &mut d] {
        view_of(4, handles).await;
    }
    let session = view_of(4, &mut b).await;
    let op = begin(&session);
    session.give_up_after(op, Duration::from_secs(1));
    // From now on it can store nothing, and the View changes.
    std::fs::rename(&folder, &away).expect("renamed");
    std::fs::write(&folder, b"").expect("written");
    drop(d);
    let ended = decided(&session, op).await;
    assert!(!matches!(ended.outcome, Outcome::Committed), "{:?}", ended.outcome);
    let told = b
        .status
        .wait_for(|status| status.reasons().iter().any(|reason| reason.contains("its disk")));
    drop(timeout(PATIENCE, told).await.expect("nobody says why").expect("it runs"));
    std::fs::remove_file(&folder).expect("removed");
    std::fs::rename(&away, &folder).expect("renamed");
    for handles in [&mut a, &mut b, &mut c] {
        view_of(3, handles).await;
    }
}
