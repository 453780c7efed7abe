//! The counters of `Cluster::metrics`, as reported to a recorder of the crate `metrics`.

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use potluck::{Builder, Config, EngineOffer};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A counter or gauge; for a histogram, the number of values.
#[derive(Default)]
struct Number(AtomicU64);

impl CounterFn for Number {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::SeqCst);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::SeqCst);
    }
}

impl HistogramFn for Number {
    fn record(&self, value: f64) {
        assert!(value > 0.0, "nothing takes no time");
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone, Default)]
struct Book {
    numbers: Arc<Mutex<BTreeMap<String, Arc<Number>>>>,
    described: Arc<Mutex<Vec<String>>>,
}

impl Book {
    fn number(&self, key: &Key) -> Arc<Number> {
        let mut labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        Arc::clone(
            self.numbers
                .lock()
                .expect("nobody panics in it")
                .entry(format!("{} {}", key.name(), labels.join(" ")))
                .or_default(),
        )
    }

    fn of(&self, name: &str) -> u64 {
        self.numbers
            .lock()
            .expect("nobody panics in it")
            .get(name)
            .map_or(0, |number| number.0.load(Ordering::SeqCst))
    }
}

impl Recorder for Book {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().expect("nobody panics in it").push(key.as_str().to_owned());
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe_counter(key, unit, description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.number(key))
    }
}

#[test]
fn the_recorder_of_the_program_has_the_same_numbers() {
    let book = Book::default();
    metrics::set_global_recorder(book.clone()).map_err(drop).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let join = || {
            let builder = Builder::new(Config::local()).open_lan("facade").min_members(2);
            builder.engine(EngineOffer::Native).join()
        };
        let (one, two) = (join().await.unwrap(), join().await.unwrap());
        let (mut a, mut b) = (one.context().await.unwrap(), two.context().await.unwrap());
        for _ in 0..3 {
            let (mut x, mut y) = ([1.0f32; 100], [2.0f32; 100]);
            let (x, y) = tokio::join!(a.all_reduce(&mut x), b.all_reduce(&mut y));
            assert!(x.is_ok() && y.is_ok(), "{x:?}, {y:?}");
        }
        let late = a.barrier().deadline(Duration::from_millis(20)).await;
        assert!(late.is_err(), "the other one does not call");
        for (name, number) in [
            ("potluck_operations_begun_total engine=native kind=all_reduce", 6),
            ("potluck_operations_total engine=native kind=all_reduce outcome=committed", 6),
            (
                "potluck_operation_duration_seconds engine=native kind=all_reduce \
                 outcome=committed",
                6,
            ),
            ("potluck_operation_bytes_total engine=native kind=all_reduce", 6 * 400),
            ("potluck_operations_total engine=native kind=barrier outcome=aborted", 1),
            ("potluck_operation_bytes_total engine=native kind=barrier", 0),
        ] {
            assert_eq!(book.of(name), number, "{name}");
        }
        // Counters of edges arrive with a delay, at the latest when the node has left.
        let (a, b) = (one.status().node, two.status().node);
        one.leave().await;
        two.leave().await;
        for peer in [a, b] {
            let sent = format!("potluck_edge_sent_bytes_total peer={peer}");
            assert_eq!(book.of(&sent), 1200, "{peer}");
            let received = format!("potluck_edge_received_bytes_total peer={peer}");
            assert_eq!(book.of(&received), 1200, "{peer}");
            assert!(book.of(&format!("potluck_links_total peer={peer}")) >= 1, "{peer}");
        }
    });
    let described = book.described.lock().expect("nobody panics in it");
    let names: Vec<String> = book
        .numbers
        .lock()
        .expect("nobody panics in it")
        .keys()
        .filter_map(|key| key.split(' ').next().map(str::to_owned))
        .collect();
    assert!(
        names.iter().all(|name| described.contains(name)),
        "{names:?} of which described {described:?}"
    );
}
