//! Sinks of the program that panic: they end nothing but themselves.

use potluck::{Builder, Config};
use std::panic;
use std::time::Duration;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sink for traces that panics whatever it is told.
struct Rude;

/// Its last words.
const LAST: &str = "a sink of the program panics, as this test wants it";

impl Subscriber for Rude {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("potluck")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        panic!("{LAST}");
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        panic!("{LAST}");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        panic!("{LAST}");
    }

    fn event(&self, _: &Event<'_>) {
        panic!("{LAST}");
    }

    fn enter(&self, _: &Id) {
        panic!("{LAST}");
    }

    fn exit(&self, _: &Id) {
        panic!("{LAST}");
    }
}

#[tokio::test]
async fn nodes_whose_traces_panic_sum_and_change_their_view() {
    // Hundreds of panics are not worth printing.
    panic::set_hook(Box::new(|_| ()));
    tracing::subscriber::set_global_default(Rude).expect("there is no other one");
    let join = || Builder::new(Config::local()).open_lan("panicking-sinks").min_members(2).join();
    let all = async {
        let (one, two) = (join().await.expect("one"), join().await.expect("two"));
        for _ in 0..20 {
            let (mut a, mut b) =
                (one.context().await.expect("one"), two.context().await.expect("two"));
            let (mut x, mut y) = ([1u32; 3], [2u32; 3]);
            let (first, second) = tokio::join!(a.all_reduce(&mut x), b.all_reduce(&mut y));
            if first.is_ok() && second.is_ok() {
                assert_eq!((x, y), ([3; 3], [3; 3]));
                one.leave().await;
                return two.status().node;
            }
        }
        panic!("they are in two Views");
    };
    let ended = tokio::time::timeout(PATIENCE, all).await;
    let _ = panic::take_hook();
    ended.expect("a node has ended by a panic of a sink");
}
