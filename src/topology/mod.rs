//! Layer: Doors.
//!
//! The links between the members of a View, and the plan for collectives that is made from them.
//!
//! [`interfaces`] lists the network interfaces of this machine. Members prove paths to each other
//! and report which members they reach; a [`LinkMap`] stores both. From it the proposer of a View
//! chooses the members ([`LinkMap::largest_clique_with`]), their ranks, the engine and the plan
//! ([`arrange`]). The proposer ships all of these with the View; no other member recomputes them.

pub mod interfaces;

mod arrangement;
mod auto_codecs;
mod burst;
mod coding;
mod coding_speed;
mod costs;
#[cfg(test)]
mod fluid;
mod fold_order;
mod forecast;
mod gloo_fold;
#[cfg(test)]
mod homes;
mod interface;
mod interface_filter;
mod link_map;
mod loads;
mod media;
mod network;
mod packing;
mod paying;
mod plan;
mod planner;
mod port;
mod rate;
mod rings;
mod round_trip;
mod survey;
mod tree;
mod tries;
mod uneven;
mod watch;

pub use arrangement::{Arrangement, arrange};
pub use auto_codecs::AutoCodecs;
pub use burst::Burst;
pub use coding::Coding;
pub use coding_speed::CodingSpeed;
pub use fold_order::{FoldOrder, FoldSegment, FoldTree};
#[cfg(feature = "gloo")]
pub use gloo_fold::gloo_ring_chunk;
pub use interface::{Interface, InterfaceAddress, InterfaceFacts, InterfaceKind};
pub use interface_filter::InterfaceFilter;
pub use link_map::{LinkMap, Path};
pub use loads::loads_ppm;
pub use paying::with_better_codecs;
#[cfg(test)]
pub use plan::TreeShare;
pub use plan::{Plan, PlanClass, Schedule, ring_segment, tree_segments};
pub use port::Port;
pub use rate::{Manner, RateMessage, RateStep, Turn};
pub use round_trip::RoundTrip;
pub use survey::{Pair, Probe, Survey};
#[cfg(test)]
pub use tree::testing::any_tree;
pub use tree::{Tree, ranks};
pub use uneven::{best_plan, better_plan, forecasts_us};
pub use watch::Watch;
