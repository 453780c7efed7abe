//! The messages between the demo and its members, each a line of JSON.

use serde::{Deserialize, Serialize};

/// A command to a member. A member joins when it starts, and leaves at the end of its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Take the Context of a View of at least `min` members.
    Context { min: usize },
    /// One `all_reduce` of `len` numbers that follow from the seed and the rank.
    Sum {
        len: usize,
        seed: u64,
        /// Report when this share of the expected received bytes has arrived, 0 to 1.
        report_at: Option<f64>,
    },
    /// Take part in a sync with a state of this version.
    Sync { version: u64 },
}

/// A report of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    Joined,
    Context(Membership),
    /// The share of [`Order::Sum`] has arrived.
    Progress,
    /// A sum or a sync has ended.
    Answered(Answer),
    /// The member ends because of this problem.
    Failed(String),
}

/// The View of a Context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Membership {
    pub view: String,
    /// Names and keys in rank order.
    pub members: Vec<(String, String)>,
    pub engine: String,
    pub engine_reason: String,
}

/// The end of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub failure: Option<Failure>,
    /// Whether the buffer holds the exact result; after a failure, whether it is as before.
    pub is_right: bool,
    /// A hash of all bits of the buffer.
    pub hash: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub is_retryable: bool,
}
