//! Many calls, several of them in flight, as in a training loop with buckets.

use crate::call::Calls;
use crate::numbers::{Input, input, is_part_of};
use crate::orders::FoldOrders;
use crate::report::{emit, ms, refuse};
use potluck::{Error, ReduceOp};
use serde::Deserialize;
use serde_json::json;
use std::collections::VecDeque;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// `all_reduce` calls of f32 with identical inputs.
#[derive(Debug, Deserialize)]
pub struct Flights {
    /// The number of calls.
    calls: usize,
    /// The number of calls in flight at a time.
    in_flight: usize,
    len: usize,
    #[serde(default)]
    seed: u64,
}

/// A call in flight; resolves to the result and the time of completion.
type Flight = JoinHandle<(Result<Vec<f32>, Error>, SystemTime)>;

/// The correct results: those that are exact under any plan that the calls may have had.
struct Exact<'a> {
    flights: &'a Flights,
    size: usize,
    orders: FoldOrders,
    /// The last result. An equal one needs no check.
    known: Option<Vec<f32>>,
}

impl Calls<'_> {
    /// Reports for each call its completion time, its outcome, and the plan's revision at that
    /// time.
    pub async fn flights(self, f: &Flights) {
        let given: Vec<f32> = input(Input::Seed(f.seed), self.context.rank().index(), f.len);
        let (size, orders) = (self.context.size(), self.orders::<f32>(f.len));
        let mut exact = Exact { flights: f, size, orders, known: None };
        let (mut under_way, mut begun, mut answers) = (VecDeque::<Flight>::new(), 0, Vec::new());
        while answers.len() < f.calls {
            while under_way.len() < f.in_flight && begun < f.calls {
                exact.orders.note_next(self.context);
                let call = self.context.all_reduce_owned(given.clone());
                begun += 1;
                under_way.push_back(tokio::spawn(async move {
                    let outcome = call.await.map_err(|failed| failed.error);
                    (outcome, SystemTime::now())
                }));
            }
            let Some(Ok((outcome, at))) = (match under_way.pop_front() {
                Some(flight) => Some(flight.await),
                None => None,
            }) else {
                return refuse("order", "a call did not end");
            };
            let verdict = match outcome {
                Ok(result) => exact.verdict(result),
                Err(error) => error.code(),
            };
            answers.push(json!({
                "at_ms": ms(at.duration_since(UNIX_EPOCH).unwrap_or_default()),
                "verdict": verdict,
                "revision": self.context.plan().revision(),
            }));
        }
        emit(&json!({"event": "flown", "answers": answers}));
    }
}

impl Exact<'_> {
    fn verdict(&mut self, result: Vec<f32>) -> &'static str {
        let is_right = self.known.as_ref() == Some(&result) || self.is_exact(&result);
        self.known = Some(result);
        if is_right { "exact" } else { "wrong" }
    }

    fn is_exact(&self, result: &[f32]) -> bool {
        let Flights { len, seed, .. } = *self.flights;
        self.orders.seen().iter().any(|order| {
            is_part_of(self.size, order, ReduceOp::Sum, Input::Seed(seed), 0..len, result)
        })
    }
}
