//! The links between the members of a View, and the plan for collectives that is made from them.
//!
//! `os::interfaces` lists the network interfaces of this machine. Members prove paths to each other
//! and report which members they reach; a [`LinkMap`] stores both. From it the proposer of a View
//! chooses the members ([`LinkMap::largest_clique_with`]), their ranks, the engine and the plan
//! ([`arrange`]). The proposer ships all of these with the View; no other member recomputes them.

mod arrangement;
mod burst;
mod clique;
mod codec_choice;
mod comparison;
mod costs;
mod division;
#[cfg(test)]
mod fluid;
mod forecast;
mod group_plan;
mod heterogeneous;
#[cfg(test)]
mod homes;
mod known_paths;
mod link_map;
mod loads;
mod media;
mod network;
mod packing;
mod pair;
mod planner;
mod port;
mod rings;
mod round_trip;
mod segment;
mod segment_search;
mod single_tree;
mod survey;
mod tries;
mod watch;

pub use arrangement::{Arrangement, arrange};
pub use burst::Burst;
pub use codec_choice::with_better_codecs;
pub use comparison::Comparison;
pub use group_plan::{lacks_a_path, plan_of_group};
pub use heterogeneous::{RUNNER_UPS_BYTES, best_plan, better_plan, forecasts_us, runner_ups};
pub use known_paths::KnownPaths;
pub use link_map::LinkMap;
#[cfg(test)]
pub use link_map::Path;
pub use loads::loads_ppm;
pub use pair::Pair;
pub use port::Port;
pub use round_trip::RoundTrip;
pub use segment::Segment;
pub use survey::Probe;
pub use survey::Survey;
pub use watch::Watch;
