//! One operation in flight, as it is counted and traced.

use super::{Meter, kind_name, outcome_name};
use crate::protocol::{AbortCause, AbortReason, Call, EngineKind, OpId, Outcome, Rank, View};
use crate::trace::{Entered, Traced};
use std::sync::Arc;
use std::time::Instant;
use tracing::field::Empty;

/// One operation in flight. If dropped without [`end`](Measured::end), it counts as aborted.
pub struct Measured {
    meter: Arc<Meter>,
    kind: &'static str,
    engine: EngineKind,
    bytes: u64,
    since: Instant,
    span: Traced,
    outcome: Outcome,
}

impl Measured {
    /// Begins the measurement. The engine is the one expected now; the plan may still change.
    pub fn begin(
        meter: &Arc<Meter>,
        view: &View,
        engine: EngineKind,
        op: OpId,
        call: &Call,
    ) -> Measured {
        let kind = kind_name(call);
        let bytes = call.count.saturating_mul(call.dtype.bytes() as u64);
        // The macro evaluates the arguments only if the span is enabled.
        let span = Traced::new(|| {
            tracing::debug_span!(
                "op",
                kind,
                view = %view.id(),
                op = %op,
                bytes,
                engine = %engine,
                outcome = Empty,
                duration_us = Empty
            )
        });
        meter.begun(kind, engine);
        let outcome = Outcome::Aborted(AbortCause { reason: AbortReason::Dropped, by: Rank(0) });
        Measured {
            meter: Arc::clone(meter),
            kind,
            engine,
            bytes,
            since: Instant::now(),
            span,
            outcome,
        }
    }

    /// Enters the operation's trace span.
    pub fn entered(&self) -> Entered {
        self.span.entered()
    }

    /// Ends the measurement: the operation is decided.
    pub fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let duration = self.since.elapsed();
        self.meter.ended(self.kind, self.engine, self.bytes, self.outcome, duration);
        self.span.with(|span| {
            let _in_it = span.enter();
            span.record("outcome", outcome_name(self.outcome));
            span.record("duration_us", u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
            tracing::debug!("decided");
        });
    }
}
