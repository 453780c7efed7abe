//! Messages between two ranks.

use super::call::{Calls, OWN, done, verdict};
use super::milestone::Milestone;
use super::numbers::{Input, input, same};
use super::report::emit;
use serde::Deserialize;
use std::time::{Instant, SystemTime};

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
    pub(super) async fn send(self, m: &Message) {
        let buffer: Vec<f32> = input(Input::Seed(m.seed), self.context.rank().index(), m.len);
        let started = Instant::now();
        let outcome = self.context.send(m.peer, m.tag, &buffer).await;
        emit(&done(
            "done",
            outcome,
            verdict(true, "exact"),
            OWN,
            (SystemTime::now(), started.elapsed()),
        ));
    }

    pub(super) async fn recv(self, m: &Message) {
        let given: Vec<f32> = input(Input::Seed(!m.seed), self.context.rank().index(), m.len);
        let mut buffer = given.clone();
        let bytes = size_of_val(&given[..]) as f64;
        let mark =
            m.report_at.map(|share| Milestone::of(self.context.lane(u32::MAX), share, bytes));
        let started = Instant::now();
        let outcome =
            Milestone::passed_by(mark, self.context.recv(m.peer, m.tag, &mut buffer)).await;
        let took = (SystemTime::now(), started.elapsed());
        let expected =
            if outcome.is_ok() { input(Input::Seed(m.seed), m.peer, m.len) } else { given };
        emit(&done("done", outcome, verdict(same(&buffer, &expected), "exact"), OWN, took));
    }
}
