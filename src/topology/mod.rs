//! Layer: Doors.
//!
//! How the members of a View talk: what links there are, and the plan made of them.
//!
//! The shell [`interfaces`] lists what this machine has. Members prove paths to each other and report whom they
//! reach; a [`LinkMap`] holds that. From it the proposer of a View takes the members ([`LinkMap::largest_clique_with`]),
//! their ranks, the engine and the plan ([`arrange`]), and ships all of it: nobody else computes them again.

pub mod interfaces;

mod arrangement;
mod burst;
mod costs;
#[cfg(test)]
mod fluid;
mod forecast;
mod gloo_fold;
#[cfg(test)]
mod homes;
mod interface;
mod interface_filter;
mod link_map;
mod network;
mod packing;
mod plan;
mod planner;
mod port;
mod rate;
mod rings;
mod survey;
mod tree;
mod uneven;
mod watch;

pub use arrangement::{Arrangement, arrange};
pub use burst::Burst;
#[cfg(feature = "gloo")]
pub use gloo_fold::gloo_ring_chunk;
pub use interface::{Interface, InterfaceAddress, InterfaceFacts, InterfaceKind};
pub use interface_filter::InterfaceFilter;
pub use link_map::{LinkMap, Path};
#[cfg(test)]
pub use plan::TreeShare;
pub use plan::{FoldOrder, FoldSegment, FoldTree, Plan, PlanClass, Schedule, ring_segment, tree_segments};
pub use port::Port;
pub use rate::{RateMessage, RateStep};
pub use survey::{Pair, Survey};
#[cfg(test)]
pub use tree::testing::any_tree;
pub use tree::{Tree, ranks};
pub use uneven::{better_plan, forecasts_us};
pub use watch::Watch;
