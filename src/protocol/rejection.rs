//! The reasons to refuse an invalid call, independently of the other members.

use super::rank::Rank;
use super::reduce_op::ReduceOp;
use crate::memory::DType;
use derive_more::Display;

/// Why a call is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum Rejection {
    /// A mean of integers: in most cases it is not an integer.
    #[display("there is no mean of {_0}; take the sum and divide it as you need it")]
    MeanOfIntegers(DType),
    /// A sum, a mean or a product of `bool`.
    #[display(
        "there is no {_0} of bool; take bit_or, bit_and or bit_xor, or count in an integer type"
    )]
    ArithmeticOfBools(ReduceOp),
    /// A bitwise operator on floats.
    #[display("there is no {op} of {dtype}; the bitwise operators are for integers and bool")]
    BitsOfFloats {
        /// The operator.
        op: ReduceOp,
        /// The type of the elements.
        dtype: DType,
    },
    /// A weight that is negative, infinite or a NaN.
    #[display("the weight of a mean is finite and not below 0")]
    Weight,
    /// The state that another member has sent cannot be loaded, see
    /// [`Cluster::elastic`](crate::Cluster::elastic).
    #[display("the state of another member cannot be loaded; run the same program on every member")]
    State,
    /// The root is not a rank of the View.
    #[display("the root is rank {root}, and the {size} members have the ranks 0 to {}",
            size.saturating_sub(1))]
    NoRoot {
        /// The requested root; 255 also stands for any larger number.
        root: Rank,
        /// Members of the View.
        size: usize,
    },
    /// A message to or from this rank itself, or a rank that does not exist.
    #[display("a message goes to another of the {size} members, by its rank")]
    NoPeer {
        /// Members of the View.
        size: usize,
    },
    /// A message between members without a direct link: messages are not forwarded.
    #[display(
        "no message goes from rank {from} to rank {to}: they have no direct link, and messages \
             are not passed on; send it by way of a rank that both have one to, or use a broadcast"
    )]
    NoDirectLink {
        /// The sender.
        from: Rank,
        /// The receiver.
        to: Rank,
    },
    /// The ranks of a [group](crate::Context::group) are not those of one.
    #[display("{_0}")]
    Group(GroupProblem),
    /// A sync of a [group](crate::Context::group): a state belongs to the whole View.
    #[display("a group has no state of its own; sync in a lane of the whole view")]
    SyncOfGroup,
    /// A step of more than 64 calls.
    #[display("a step has at most 64 calls; commit it, and begin another")]
    StepTooLong,
    /// The output of a step's call does not have the length of the result.
    #[display("the output has {given} elements, and the result has {wanted}")]
    Output {
        /// Elements of the output; 0 if there is none.
        given: usize,
        /// Elements of the result.
        wanted: usize,
    },
    /// An `all_to_all` of a buffer that cannot be cut into one equal part per member.
    #[display("{count} elements are not one equal part for each of {size} members; pad the buffer")]
    Uneven {
        /// Elements of the buffer.
        count: u64,
        /// Members of the View.
        size: usize,
    },
    /// The lengths of an `all_to_all_uneven` are not one per member, or do not add up to the length
    /// of the buffer.
    #[display(
        "{parts} lengths, {sum} elements in all, do not cut a buffer of {given} elements into one \
             part for each of {size} members"
    )]
    PartLengths {
        /// The number of lengths.
        parts: usize,
        /// Their sum.
        sum: usize,
        /// Elements of the buffer.
        given: usize,
        /// Members of the View.
        size: usize,
    },
    /// The root's buffer of a `scatter` does not have one part per member.
    #[display("the root gave {given} elements where {size} members take {part} each")]
    ScatterInput {
        /// Elements of the root's buffer; 0 if there is none.
        given: usize,
        /// Elements of a part.
        part: usize,
        /// Members of the View.
        size: usize,
    },
    /// A codec that leaves elements out works for sums and means only.
    #[display(
        "this codec leaves elements out, so it is for sums and means; take another codec for a \
         {_0}"
    )]
    TopK(ReduceOp),
    /// A codec of one bit per element works for sums and means only.
    #[display(
        "one bit keeps no magnitudes, so it is for sums and means; take another codec for a {_0}"
    )]
    OneBit(ReduceOp),
    /// Only an `all_reduce` has a codec, and this is another reduction.
    #[display("only an all_reduce has a codec; leave it out of the other reductions")]
    NotEncoded,
    /// A codec with error feedback cannot be used for this call.
    #[display("{_0}")]
    Feedback(FeedbackProblem),
    /// The gradient of a parameter is invalid.
    #[display("the gradient of parameter {parameter} {problem}")]
    Gradient {
        /// The parameter's index, in the order of registration.
        parameter: usize,
        /// The problem.
        problem: GradientProblem,
    },
    /// A member has registered other parameters than this one, or has cut them into other buckets.
    #[display(
        "rank {rank} has registered other parameters or buckets; register the same on every \
             member"
    )]
    Layout {
        /// The first such member.
        rank: Rank,
    },
}

/// Why these ranks are no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum GroupProblem {
    /// There are no ranks.
    #[display("a group has at least one rank")]
    Empty,
    /// One of them is no rank of the Context.
    #[display(
        "rank {rank} is in no group: the {size} members have the ranks 0 to {}",
            size.saturating_sub(1)
    )]
    NoRank {
        /// The rank; 255 also stands for any larger number.
        rank: Rank,
        /// Members of the Context.
        size: usize,
    },
    /// A rank is named twice.
    #[display("rank {_0} is twice in the group")]
    Twice(Rank),
    /// The rank that makes the group is not in it.
    #[display("rank {_0} makes a group without itself; a group is made by its own ranks alone")]
    WithoutOwn(Rank),
    /// The direct links do not connect these two within the group: other members do not pass data
    /// of a group on.
    #[display(
        "no direct links of the group lead from rank {from} to rank {to}, and other members do \
             not pass its data on; add a rank between them to the group"
    )]
    NoDirectLink {
        /// One rank.
        from: Rank,
        /// The other one.
        to: Rank,
    },
}

/// The problem of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum GradientProblem {
    /// There is no such parameter.
    #[display("is of none that was registered")]
    Unknown,
    /// It was already pushed in this step.
    #[display("was pushed twice in a step")]
    Twice,
    /// It was not pushed in this step.
    #[display("was not pushed; push zeros where there is none")]
    Missing,
    /// Its length differs from its parameter's.
    #[display("has {given} elements where {wanted} were registered")]
    Length {
        /// Elements of the gradient.
        given: usize,
        /// Elements of the parameter.
        wanted: usize,
    },
}

/// Why a codec with error feedback cannot be used for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum FeedbackProblem {
    /// Another undecided call uses it.
    #[display(
        "another call uses this codec, whose feedback is for one at a time; take one for each \
             buffer"
    )]
    InUse,
    /// It belongs to a buffer of another length.
    #[display(
        "the buffer has {given} elements, and the residual of this codec has {residual}; take \
         one codec for each buffer"
    )]
    Length {
        /// Elements of this buffer.
        given: usize,
        /// Elements for which the codec keeps a residual.
        residual: usize,
    },
    /// The call is neither a sum nor a mean.
    #[display("error feedback is for sums and means, and this is a {_0}")]
    NoSum(ReduceOp),
}
