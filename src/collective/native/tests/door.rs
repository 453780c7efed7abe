//! The engine as the suite of all engines uses it.

use super::super::NativeEngine;
use crate::collective::backend::Engine;
use crate::collective::board::ViewBoard;
use crate::collective::suite::{Chance, Door, Opened};
use crate::memory::Pool;
use crate::protocol::{Algorithm, Rank, ReduceOp, Tree, TreeShare, View};
use std::sync::Arc;

/// Of the scarce calls there are several chunks, all of which may be sent before credit.
pub const DOOR: Door = Door {
    open,
    algorithms,
    chunks: &[],
    reductions: &[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod],
    scarce: (5001, 2624),
};

fn open(view: &Arc<View>, pools: &[Pool]) -> Opened {
    let engines: Vec<_> = pools.iter().cloned().map(NativeEngine::new).collect();
    let ranks = view.ranks().zip(&engines);
    Opened {
        backends: ranks.map(|(me, engine)| engine.open(view, me, board(me))).collect(),
        threads: engines.iter().map(|engine| Arc::clone(engine.threads())).collect(),
    }
}

fn algorithms(size: usize, chance: &mut Chance) -> Vec<Algorithm> {
    let order = chance.shuffled((0..size as u8).map(Rank).collect());
    let trees = trees(size, chance);
    vec![Algorithm::Ring { order }, Algorithm::Trees { trees }, Algorithm::OneShot]
}

/// Three random trees with unequal shares, one of them tiny.
pub fn trees(size: usize, chance: &mut Chance) -> Vec<TreeShare> {
    let first = 300_000 + chance.below(600_000) as u32;
    let tree = |ppm, chance: &mut Chance| {
        let order: Vec<Rank> = chance.shuffled((0..size as u8).map(Rank).collect());
        let mut parents = vec![None; size];
        for (place, rank) in order.iter().enumerate().skip(1) {
            parents[rank.index()] = Some(order[chance.below(place as u64) as usize]);
        }
        TreeShare { tree: Tree { parents }, ppm }
    };
    [first, 999_999 - first, 1].map(|ppm| tree(ppm, chance)).into()
}

/// A board for an engine that does not use it.
pub fn board(me: Rank) -> Arc<ViewBoard> {
    Arc::new(ViewBoard::new(me, tokio::sync::mpsc::unbounded_channel().0))
}
