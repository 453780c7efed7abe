//! Many calls, several of them in flight, as in a training loop with buckets.

use super::call::Calls;
use super::numbers::{Input, input, is_part_of};
use super::report::{emit, ms};
use potluck::plan::FoldOrder;
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

impl Calls<'_> {
    /// Reports for each call its completion time, its outcome, and the plan's revision at that
    /// time.
    pub(super) async fn flights(self, f: &Flights) {
        let rank = self.context.rank().index();
        let given: Vec<f32> = input(Input::Seed(f.seed), rank, f.len);
        // The plan may change meanwhile: a result is correct if it is exact under any plan so far.
        let mut orders: Vec<FoldOrder> = Vec::new();
        let (mut under_way, mut begun, mut answers) = (VecDeque::<Flight>::new(), 0, Vec::new());
        let mut known: Option<Vec<f32>> = None;
        while answers.len() < f.calls {
            while under_way.len() < f.in_flight && begun < f.calls {
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
                return emit(
                    &json!({"event": "error", "code": "order", "message": "a call did not end"}),
                );
            };
            let order = self.context.fold_order::<f32>(f.len);
            if !orders.contains(&order) {
                orders.push(order);
            }
            let verdict = match &outcome {
                Ok(result) => {
                    let size = self.context.size();
                    let is_right = known.as_ref() == Some(result)
                        || orders.iter().any(|o| {
                            is_part_of(
                                size,
                                o,
                                ReduceOp::Sum,
                                Input::Seed(f.seed),
                                0..f.len,
                                result,
                            )
                        });
                    known = Some(result.clone());
                    if is_right { "exact" } else { "wrong" }
                }
                Err(error) => error.code(),
            };
            let at_ms = ms(at.duration_since(UNIX_EPOCH).unwrap_or_default());
            answers.push(json!({"at_ms": at_ms, "verdict": verdict, "revision": self.context.plan().revision()}));
        }
        emit(&json!({"event": "flown", "answers": answers}));
    }
}
