//! Messages between two ranks.

use crate::answer::{OWN, tell, timed, verdict};
use crate::call::Calls;
use crate::milestone::Milestone;
use crate::numbers::{Input, input, same};
use crate::report::progress;
use serde::Deserialize;

/// A `send` or a `recv`. The data is the input of the sender's rank.
#[derive(Debug, Deserialize)]
pub struct Message {
    /// The rank of the other end.
    peer: usize,
    len: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    tag: u32,
    /// Report when this share of the message has arrived, 0 to 1.
    report_at: Option<f64>,
}

impl Calls<'_> {
    pub async fn send(self, m: &Message) {
        let buffer: Vec<f32> = input(Input::Seed(m.seed), self.context.rank().index(), m.len);
        let (outcome, time) = timed(None, self.context.send(m.peer, m.tag, &buffer)).await;
        tell(outcome, verdict(true, "exact"), OWN, time);
    }

    pub async fn recv(self, m: &Message) {
        let given: Vec<f32> = input(Input::Seed(!m.seed), self.context.rank().index(), m.len);
        let mut buffer = given.clone();
        let bytes = size_of_val(&given[..]) as f64;
        let mark = m
            .report_at
            .map(|share| Milestone::of(self.context.lane(u32::MAX), share, bytes, progress));
        let call = self.context.recv(m.peer, m.tag, &mut buffer);
        let (outcome, time) = timed(None, Milestone::passed_by(mark, call)).await;
        let expected =
            if outcome.is_ok() { input(Input::Seed(m.seed), m.peer, m.len) } else { given };
        tell(outcome, verdict(same(&buffer, &expected), "exact"), OWN, time);
    }
}
