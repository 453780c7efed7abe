//! The claims that every engine keeps, tested with all ranks in one process. An engine opens its
//! [`Door`] in its own tests, and `engine_suite!` makes a test of each claim there.

mod endings;
mod group;
mod order;
mod results;
mod scarce;

pub use endings::{
    a_job_may_end_before_it_is_fed, every_job_is_told_once_that_the_backend_has_closed,
    what_does_not_fit_is_refused,
};
pub use group::{
    Chance, Group, Opened, Outcome, PATIENCE, bytes, call, engine_call, f32_call, f32s, op, plan,
    plan_with_small, until,
};
pub use order::starts_feeds_credits_and_ends_in_any_order;
pub use results::{
    a_barrier_moves_nothing, a_sync_hands_on_the_roots_state_whatever_the_others_counted,
    assert_gives, chunks_as_large_as_digest_blocks_are_hashed_alike, coded, copies_keep_every_bit,
    large_reductions_give_the_same_bits_twice, reductions_over_real_links,
    small_reductions_of_every_size_and_kind, what_is_lent_is_only_read,
    what_was_kept_of_a_contribution_has_its_length,
};
pub use scarce::{
    Scarce, Setup, whichever_block_there_is_no_memory_for_the_call_fails_and_the_next_one_does_not,
};

use crate::link::{Ends, memory, narrow};
use crate::memory::Pool;
use crate::protocol::{Algorithm, Plan, ReduceOp, View, view_of};
use std::sync::Arc;

/// How the suite reaches an engine.
pub struct Door {
    /// Opens the backends of a View, with a pool for each rank.
    pub open: fn(&Arc<View>, &[Pool]) -> Opened,
    /// Its schedules among so many ranks.
    pub algorithms: fn(usize, &mut Chance) -> Vec<Algorithm>,
    /// The bytes of a chunk, or of a segment of Gloo's ring, besides those that a test names.
    pub chunks: &'static [u32],
    /// Its reductions.
    pub reductions: &'static [ReduceOp],
    /// The elements and the chunk of the calls of which a member has too little memory.
    pub scarce: (usize, u32),
}

impl Door {
    /// The ranks of a View, without links.
    pub fn apart(&self, size: usize) -> Group {
        self.with_pools(&vec![Pool::new(); size])
    }

    /// The ranks of a View, without links, with a pool for each.
    pub fn with_pools(&self, pools: &[Pool]) -> Group {
        Group::of((self.open)(&Arc::new(view_of(pools.len() as u8)), pools))
    }

    /// The ranks of a View, with links that hold few frames.
    pub fn group(&self, size: usize) -> Group {
        self.linked(size, narrow)
    }

    /// The ranks of a View, with these links.
    pub fn linked(&self, size: usize, ends: fn() -> Ends) -> Group {
        self.apart(size).linked(ends)
    }

    /// Plans of all schedules, in chunks of this size and of the others.
    pub fn plans(&self, size: usize, chunk_bytes: u32, chance: &mut Chance) -> Vec<Arc<Plan>> {
        let others = self.chunks.iter().filter(|chunk| **chunk != chunk_bytes);
        let mut plans = Vec::new();
        for algorithm in (self.algorithms)(size, chance) {
            plans.push(plan(chunk_bytes, algorithm.clone()));
            if matches!(algorithm, Algorithm::GlooRing) {
                plans.extend(others.clone().map(|chunk| plan(*chunk, algorithm.clone())));
            }
        }
        plans
    }
}

/// The tests of the suite for the engine behind a door.
macro_rules! engine_suite {
    ($door:expr, $($claim:ident)*) => {
        $(
            #[test]
            fn $claim() {
                $crate::collective::suite::$claim(&$door);
            }
        )*
    };
    ($door:expr) => {
        $crate::collective::suite::engine_suite! { $door,
            a_barrier_moves_nothing
            a_job_may_end_before_it_is_fed
            a_sync_hands_on_the_roots_state_whatever_the_others_counted
            chunks_as_large_as_digest_blocks_are_hashed_alike
            copies_keep_every_bit
            every_job_is_told_once_that_the_backend_has_closed
            large_reductions_give_the_same_bits_twice
            reductions_over_real_links
            small_reductions_of_every_size_and_kind
            starts_feeds_credits_and_ends_in_any_order
            what_does_not_fit_is_refused
            what_is_lent_is_only_read
            what_was_kept_of_a_contribution_has_its_length
            whichever_block_there_is_no_memory_for_the_call_fails_and_the_next_one_does_not
        }
    };
}
pub(crate) use engine_suite;
