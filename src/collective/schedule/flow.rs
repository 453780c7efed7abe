//! The flows of a schedule.

use crate::protocol::{Rank, Tree};
use std::ops::Range;

/// A range of the result and its route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The element range in the combined result.
    pub elements: Range<usize>,
    /// Its route.
    pub route: Route,
}

/// The route of a flow from the contributions to the result on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Every rank sends its contribution to every other rank, and every rank folds all of them in
    /// rank order.
    Exchange,
    /// A reduction up to an owner, then a distribution down from it.
    Paths {
        /// The root of both trees.
        owner: Rank,
        /// The tree of the reduction; `None` if only the owner contributes.
        up: Option<Tree>,
        /// The tree of the distribution.
        down: Tree,
        /// The ranks that keep the result; other ranks on the way down only forward it.
        kept: Keepers,
    },
}

/// The ranks that keep a flow's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepers {
    /// All ranks keep it; it is the same on all of them.
    ByAll,
    /// Only this rank keeps it.
    By(Rank),
}

/// The call cannot run under its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

impl Route {
    pub(crate) fn kept(&self) -> Keepers {
        match self {
            Route::Exchange => Keepers::ByAll,
            Route::Paths { kept, .. } => *kept,
        }
    }

    /// The number of ranks, one behind the other, that add before `rank` does.
    pub(crate) fn height(&self, rank: Rank) -> usize {
        match self {
            Route::Paths { up: Some(tree), .. } => tree.height(rank),
            Route::Exchange | Route::Paths { up: None, .. } => 0,
        }
    }

    pub(crate) fn contributes(&self, rank: Rank) -> bool {
        match self {
            Route::Exchange | Route::Paths { up: Some(_), .. } => true,
            Route::Paths { owner, up: None, .. } => *owner == rank,
        }
    }
}
