//! Layer: Doors.
//!
//! How the members of a View talk: what links there are, and the plan made of them.

mod plan;

pub use plan::{FoldOrder, FoldSegment, FoldTree, Plan, PlanClass, Schedule};
