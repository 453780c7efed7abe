//! The trace: one span per operation.

use potluck::{Builder, Config, EngineOffer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// How long a thread may take to close its span.
const PATIENCE: Duration = Duration::from_secs(10);

/// The fields of a span.
#[derive(Clone, Default, Debug)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Collects spans that have ended.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<(&'static str, Fields)>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ended {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).expect("it has just begun").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(fields) =
            context.span(id).expect("it has not ended").extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("it ends now");
        let fields = span.extensions_mut().remove::<Fields>().unwrap_or_default();
        self.0.lock().expect("nobody panics in it").push((span.metadata().name(), fields));
    }
}

#[test]
fn every_operation_is_a_span_with_its_outcome() {
    let ended = Ended::default();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(ended.clone()))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let views = runtime.block_on(async {
        let join = || {
            Builder::new(Config::local())
                .open_lan("trace")
                .min_members(2)
                .engine(EngineOffer::Native)
                .join()
        };
        let (one, two) = (join().await.unwrap(), join().await.unwrap());
        let (mut a, mut b) = (one.context().await.unwrap(), two.context().await.unwrap());
        let (mut x, mut y) = ([1.0f32; 100], [2.0f32; 100]);
        let (x, y) = tokio::join!(a.all_reduce(&mut x), b.all_reduce(&mut y));
        assert!(x.is_ok() && y.is_ok(), "{x:?}, {y:?}");
        let (x, y) = tokio::join!(a.all_gather(&[1u64; 3]), b.all_gather(&[1u64; 4]));
        assert!(x.is_err() && y.is_err(), "different lengths");
        (a.view(), b.view())
    });
    assert_eq!(views.0, views.1);
    // A call may return a moment before the thread that decided it closes its span.
    let until = Instant::now() + PATIENCE;
    let spans = loop {
        let ops = |(name, fields): &(&str, Fields)| (*name == "op").then(|| fields.clone());
        let spans: Vec<Fields> = ended.0.lock().unwrap().iter().filter_map(ops).collect();
        if spans.len() >= 4 || Instant::now() > until {
            break spans;
        }
        std::thread::yield_now();
    };
    let with = |kind: &str| {
        spans.iter().filter(|span| span.0["kind"] == kind).cloned().collect::<Vec<_>>()
    };
    let (sums, gathers) = (with("all_reduce"), with("all_gather"));
    assert_eq!((sums.len(), gathers.len(), spans.len()), (2, 2, 4), "{spans:?}");
    for Fields(span) in &sums {
        let fields = ["outcome", "op", "bytes", "engine", "view"].map(|field| span[field].as_str());
        assert_eq!(fields, ["committed", "0.0", "400", "native", &views.0], "{span:?}");
        assert!(span["duration_us"].parse::<u64>().is_ok(), "{span:?}");
    }
    assert!(
        gathers.iter().all(|Fields(span)| span["outcome"] == "aborted" && span["op"] == "0.1"),
        "{gathers:?}"
    );
}
