//! The reasons to refuse an invalid call, independently of the other members.

use super::rank::Rank;
use super::reduce_op::ReduceOp;
use crate::memory::DType;
use std::fmt;

/// Why a call is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rejection {
    /// A mean of integers: in most cases it is not an integer.
    MeanOfIntegers(DType),
    /// The root is not a rank of the View.
    NoRoot {
        /// The requested root; 255 also stands for any larger number.
        root: Rank,
        /// Members of the View.
        size: usize,
    },
    /// A message to or from this rank itself, or a rank that does not exist.
    NoPeer {
        /// Members of the View.
        size: usize,
    },
    /// A message between members without a direct link: messages are not forwarded.
    NoDirectLink {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
    },
    /// A step of more than 64 calls.
    StepTooLong,
    /// The output of a step's call does not have the length of the result.
    Output {
        /// Elements of the output; 0 if there is none.
        given: usize,
        /// Elements of the result.
        wanted: usize,
    },
    /// An `all_to_all` of a buffer that cannot be cut into one equal part per member.
    Uneven {
        /// Elements of the buffer.
        count: u64,
        /// Members of the View.
        size: usize,
    },
    /// The root's buffer of a `scatter` does not have one part per member.
    ScatterInput {
        /// Elements of the root's buffer; 0 if there is none.
        given: usize,
        /// Elements of a part.
        part: usize,
        /// Members of the View.
        size: usize,
    },
    /// A codec that leaves elements out works for sums and means only.
    TopK(ReduceOp),
    /// A codec with error feedback cannot be used for this call.
    Feedback(FeedbackProblem),
    /// The gradient of a parameter is invalid.
    Gradient {
        /// The parameter's index, in the order of registration.
        parameter: usize,
        /// The problem.
        problem: GradientProblem,
    },
    /// A member has registered other parameters than this one, or has cut them into other buckets.
    Layout {
        /// The first such member.
        rank: Rank,
    },
}

/// The problem of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GradientProblem {
    /// There is no such parameter.
    Unknown,
    /// It was already pushed in this step.
    Twice,
    /// It was not pushed in this step.
    Missing,
    /// Its length differs from its parameter's.
    Length {
        /// Elements of the gradient.
        given: usize,
        /// Elements of the parameter.
        wanted: usize,
    },
}

/// Why a codec with error feedback cannot be used for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedbackProblem {
    /// Another undecided call uses it.
    InUse,
    /// It belongs to a buffer of another length.
    Length {
        /// Elements of this buffer.
        given: usize,
        /// Elements for which the codec keeps a residual.
        owed: usize,
    },
    /// The call is neither a sum nor a mean.
    NoSum(ReduceOp),
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rejection::MeanOfIntegers(dtype) => {
                write!(f, "there is no mean of {dtype}; take the sum and divide it as you need it")
            }
            Rejection::NoDirectLink { from, to } => write!(
                f,
                "no message goes from rank {from} to rank {to}: they have no direct link, and messages are not passed on; send it by way of \
                 a rank that both have one to, or use a broadcast"
            ),
            Rejection::NoRoot { root, size } => {
                write!(
                    f,
                    "the root is rank {root}, and the {size} members have the ranks 0 to {}",
                    size.saturating_sub(1)
                )
            }
            Rejection::NoPeer { size } => {
                write!(f, "a message goes to another of the {size} members, by its rank")
            }
            Rejection::StepTooLong => {
                f.write_str("a step has at most 64 calls; commit it, and begin another")
            }
            Rejection::Output { given, wanted } => {
                write!(f, "the output has {given} elements where {wanted} come")
            }
            Rejection::Uneven { count, size } => {
                write!(
                    f,
                    "{count} elements are not one equal part for each of {size} members; pad the buffer"
                )
            }
            Rejection::ScatterInput { given, part, size } => {
                write!(f, "the root gave {given} elements where {size} members take {part} each")
            }
            Rejection::TopK(op) => {
                write!(
                    f,
                    "what is left out counts as 0, which is for sums and means; take another codec for a {op}"
                )
            }
            Rejection::Feedback(problem) => problem.fmt(f),
            Rejection::Gradient { parameter, problem } => {
                write!(f, "the gradient of parameter {parameter} {problem}")
            }
            Rejection::Layout { rank } => {
                write!(
                    f,
                    "rank {rank} has registered other parameters or buckets; register the same on every member"
                )
            }
        }
    }
}

impl fmt::Display for FeedbackProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedbackProblem::InUse => {
                f.write_str("another call uses this codec, whose feedback is for one at a time; take one for each buffer")
            }
            FeedbackProblem::Length { given, owed } => {
                write!(f, "the buffer has {given} elements where this codec owes to {owed}; take one for each buffer")
            }
            FeedbackProblem::NoSum(op) => write!(f, "error feedback is for sums and means, and this is a {op}"),
        }
    }
}

impl fmt::Display for GradientProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GradientProblem::Unknown => f.write_str("is of none that was registered"),
            GradientProblem::Twice => f.write_str("was pushed twice in a step"),
            GradientProblem::Missing => {
                f.write_str("was not pushed; push zeros where there is none")
            }
            GradientProblem::Length { given, wanted } => {
                write!(f, "has {given} elements where {wanted} were registered")
            }
        }
    }
}
