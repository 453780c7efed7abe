//! Sinks for traces and counters that panic now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Installs them in every second run, unless `POTLUCK_LOG` asks to see the traces. There can be
/// only one of each kind in a process.
pub fn install(seed: u64) {
    if std::env::var_os("POTLUCK_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG");
        let shown = tracing_subscriber::fmt().with_env_filter(filter).with_timer(VirtualTime);
        let _ = shown.with_writer(std::io::stderr).with_ansi(false).try_init();
    } else if seed.is_multiple_of(2) {
        let _ = tracing::subscriber::set_global_default(Rude::new(seed));
        #[cfg(feature = "metrics")]
        let _ = counters::install(seed);
    }
}

/// The time of a run, in seconds.
struct VirtualTime;

impl FormatTime for VirtualTime {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        write!(to, "{:9.3}", turmoil::sim_elapsed().unwrap_or_default().as_secs_f64())
    }
}

/// Panics once in so many events.
const ONE_IN: u64 = 10;

/// A sink that counts what it is told.
struct Rude(AtomicU64);

impl Rude {
    fn new(seed: u64) -> Rude {
        Rude(AtomicU64::new(seed))
    }

    fn hear(&self) {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(
            !count.is_multiple_of(ONE_IN),
            "a sink of the program panics, as the test wants it"
        );
    }
}

impl Subscriber for Rude {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("potluck")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.hear();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.hear();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.hear();
    }

    fn enter(&self, _: &Id) {
        self.hear();
    }

    fn exit(&self, _: &Id) {
        self.hear();
    }

    fn try_close(&self, _: Id) -> bool {
        self.hear();
        false
    }
}

#[cfg(feature = "metrics")]
mod counters {
    use super::Rude;
    use metrics::{
        Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
        SetRecorderError, SharedString, Unit,
    };
    use std::sync::Arc;

    pub fn install(seed: u64) -> Result<(), SetRecorderError<Book>> {
        ::metrics::set_global_recorder(Book(Arc::new(Rude::new(seed))))
    }

    pub struct Book(Arc<Rude>);

    impl CounterFn for Rude {
        fn increment(&self, _: u64) {
            self.hear();
        }

        fn absolute(&self, _: u64) {
            self.hear();
        }
    }

    impl HistogramFn for Rude {
        fn record(&self, _: f64) {
            self.hear();
        }
    }

    impl Recorder for Book {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            self.0.hear();
        }

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            self.0.hear();
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            self.0.hear();
            Counter::from_arc(Arc::clone(&self.0))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            self.0.hear();
            Histogram::from_arc(Arc::clone(&self.0))
        }
    }
}
