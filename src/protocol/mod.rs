//! The vocabulary of the protocol: every value in a View, in a call, in a vote and in a message
//! of a control link, with its encoding.
//!
//! Nothing here acts. The other rooms give these values a meaning: `election` agrees on a [`View`],
//! `topology` computes a [`Plan`], `collective` counts each [`Vote`].

mod algorithm;
mod auto_codecs;
mod ballot;
mod call;
mod codec_id;
mod coding;
mod coding_speed;
mod committed_op;
mod enclosed;
mod engine;
mod failed_op;
mod fault;
mod fold_order;
mod gloo_fold;
mod group_ranks;
mod history;
mod lane_set;
mod lengths;
mod message;
mod mutant;
mod op_id;
mod op_set;
mod partition;
mod plan;
mod post;
mod rank;
mod rank_set;
mod rate;
mod reduce_op;
mod rejection;
mod relay_frame;
mod revision;
mod sizes;
mod tree;
mod view;
mod view_id;
mod vote;

pub use algorithm::{Algorithm, TreeShare};
pub use auto_codecs::AutoCodecs;
pub use ballot::Ballot;
pub(crate) use call::UNEVEN_PARTS;
pub use call::{Call, CallKind, CallMode, Descriptor};
pub use codec_id::{Coarsest, CodecId};
pub use coding::Coding;
pub use coding_speed::CodingSpeed;
pub use committed_op::CommittedOp;
pub use enclosed::{ENCLOSED_BYTES_MAX, Enclosed};
pub use engine::{EngineChoice, EngineKind, EngineReason, Engines};
pub use failed_op::{FailedOp, Failure};
pub use fault::EngineFault;
pub use fold_order::{FoldOrder, FoldSegment, FoldTree};
#[cfg(feature = "gloo")]
pub use gloo_fold::gloo_ring_chunk;
pub use group_ranks::GroupRanks;
pub use history::History;
pub use lane_set::LaneSet;
pub use lengths::Lengths;
pub use message::{
    Accepted, Accused, Duplicate, Heartbeat, Message, PeerAddress, Promise, REACH_MAX, Reached,
};
pub(crate) use mutant::{Mutant, Mutation};
pub use op_id::{Lane, OpId, PARTS_MAX};
pub use op_set::OpSet;
pub use partition::{Partition, RosterProblem};
pub use plan::Plan;
pub use plan::PlanClass;
pub use plan::ring_segment;
pub use plan::tree_segments;
pub use post::Post;
pub use rank::MEMBERS_MAX;
pub use rank::Rank;
pub use rank_set::RankSet;
pub use rate::{Manner, RateMessage, RateStep, Turn};
pub use reduce_op::ReduceOp;
pub use rejection::{FeedbackProblem, GradientProblem, GroupProblem, Rejection};
pub use relay_frame::{
    CIRCUIT_NODES_MAX, Circuit, FRAME_COST, RelayBody, RelayFrame, WINDOW, cost,
};
pub use revision::{LANES_TOLD_MAX, PlanMessage, PlanStep, REVISION_UNKNOWN, Switch};
pub use sizes::{SizeSetting, Sizes, SizesProblem};
#[cfg(test)]
pub use tree::any_tree;
pub use tree::{Tree, rank_pairs, ranks};
pub use view::Member;
pub use view::OF_SOME_IN_FLIGHT_MAX;
pub use view::OPS_DECIDED_MAX;
pub use view::OPS_IN_FLIGHT_MAX;
pub use view::OPS_LISTED_MAX;
pub use view::View;
#[cfg(any(fuzzing, test))]
pub(crate) use view::{member_id, view_of};
pub use view_id::ViewDigest;
pub use view_id::ViewId;
pub use vote::{
    AbortCause, AbortReason, Closing, LaneStates, Listed, Mismatch, OpBody, OpMessage, Outcome,
    Status, Vote,
};
