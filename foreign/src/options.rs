//! The options of a call of a foreign program, beyond its arguments.

use super::failure::Failure;
use potluck::Codec;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A codec, with its residual. A buffer has one of its own.
pub type SharedCodec = Arc<Mutex<Codec>>;

/// Options of a call; the default is none of them. A call that does not have an option is
/// [`Failure::Argument`](crate::Failure::Argument).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Aborts the call for all members if it is undecided when this has passed.
    pub deadline: Option<Duration>,
    /// Skips the vote, see [`AllReduce::best_effort`](potluck::calls::AllReduce::best_effort). All
    /// but steps, syncs, uneven calls and weighted means have it.
    pub best_effort: bool,
    /// Aborts a reduction for all members if a contribution or a result has a NaN or an infinity.
    pub reject_non_finite: bool,
    /// Compresses the data on the wire. `all_reduce` of `f32` has it. One bit, top-k and error
    /// feedback are for sums and means only.
    pub codec: Option<SharedCodec>,
    /// The weight of this rank's contribution to a mean over all members. `all_reduce` of floats
    /// has it, with the sum as its operator.
    pub weight: Option<f64>,
}

/// The options of which every kind of call has some.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) deadline: Option<Duration>,
    pub(crate) best_effort: bool,
    pub(crate) reject_non_finite: bool,
}

impl Options {
    /// Of a reduction.
    pub(crate) fn terms(&self) -> Terms {
        let Options { deadline, best_effort, reject_non_finite, .. } = *self;
        Terms { deadline, best_effort, reject_non_finite }
    }

    /// Of a reduction without codecs and weights.
    ///
    /// # Errors
    /// [`Failure::Argument`] for those.
    pub(crate) fn of_reduction(&self, call: &str) -> Result<Terms, Failure> {
        let lacking = match self {
            Options { codec: Some(_), .. } => "codec",
            Options { weight: Some(_), .. } => "weight",
            _ => return Ok(self.terms()),
        };
        Err(Failure::Argument(format!("{call} has no {lacking}")))
    }

    /// Of a call that computes nothing.
    ///
    /// # Errors
    /// [`Failure::Argument`] for options of reductions.
    pub(crate) fn of_copy(&self, call: &str) -> Result<Terms, Failure> {
        if self.reject_non_finite {
            let problem = format!("{call} moves elements, and does not look at them");
            return Err(Failure::Argument(problem));
        }
        self.of_reduction(call)
    }

    /// Of a call that computes nothing and needs its vote.
    ///
    /// # Errors
    /// [`Failure::Argument`] for everything but a deadline.
    pub(crate) fn of_voted(&self, call: &str) -> Result<Terms, Failure> {
        if self.best_effort {
            return Err(Failure::Argument(format!("{call} needs its vote")));
        }
        self.of_copy(call)
    }

    /// The codec of a call of a step. Its weight may be set, too.
    ///
    /// # Errors
    /// [`Failure::Argument`] for options of the whole step.
    pub(crate) fn of_part(&self) -> Result<Option<SharedCodec>, Failure> {
        if self.deadline.is_some() || self.best_effort || self.reject_non_finite {
            let problem = "ask that of the commit of the step, not of a call in it".to_owned();
            return Err(Failure::Argument(problem));
        }
        Ok(self.codec.clone())
    }

    /// Of the commit of a step.
    ///
    /// # Errors
    /// [`Failure::Argument`] for options of one call.
    pub(crate) fn of_step(&self) -> Result<Terms, Failure> {
        if self.best_effort {
            return Err(Failure::Argument("a step needs its vote".to_owned()));
        }
        self.of_reduction("the commit of a step")
    }
}
