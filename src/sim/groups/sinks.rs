//! Sinks for traces and counters that panic at intervals.

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
        let _ = tracing::subscriber::set_global_default(PanickingSink::new(seed));
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

/// A sink that counts its events and panics at every tenth.
struct PanickingSink(AtomicU64);

impl PanickingSink {
    fn new(seed: u64) -> PanickingSink {
        PanickingSink(AtomicU64::new(seed))
    }

    fn count(&self) {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(
            !count.is_multiple_of(ONE_IN),
            "a sink of the program panics, as the test wants it"
        );
    }
}

impl Subscriber for PanickingSink {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        of.target().starts_with("potluck")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.count();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        self.count();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.count();
    }

    fn enter(&self, _: &Id) {
        self.count();
    }

    fn exit(&self, _: &Id) {
        self.count();
    }

    fn try_close(&self, _: Id) -> bool {
        self.count();
        false
    }
}

#[cfg(feature = "metrics")]
mod counters {
    use super::PanickingSink;
    use metrics::{
        Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
        SetRecorderError, SharedString, Unit,
    };
    use std::sync::Arc;

    pub fn install(seed: u64) -> Result<(), SetRecorderError<PanickingRecorder>> {
        ::metrics::set_global_recorder(PanickingRecorder(Arc::new(PanickingSink::new(seed))))
    }

    pub struct PanickingRecorder(Arc<PanickingSink>);

    impl CounterFn for PanickingSink {
        fn increment(&self, _: u64) {
            self.count();
        }

        fn absolute(&self, _: u64) {
            self.count();
        }
    }

    impl HistogramFn for PanickingSink {
        fn record(&self, _: f64) {
            self.count();
        }
    }

    impl Recorder for PanickingRecorder {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            self.0.count();
        }

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
            self.0.count();
        }

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            self.0.count();
            Counter::from_arc(Arc::clone(&self.0))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            self.0.count();
            Histogram::from_arc(Arc::clone(&self.0))
        }
    }
}
