//! The choices of the program: the calls of all members, and each member's way to continue them.

use std::time::Duration;

use potluck_harness::Chance;
use potluck_harness::history::what::DTYPES;
use potluck_harness::history::{Coded, DType, Kind, Op, What};

use super::Pace;

/// The part of a lane in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// All results enter the state of the lane; mostly reductions, often several in flight.
    Main,
    /// The same, mostly steps.
    Steps,
    /// Results are looked at and forgotten: messages, best effort, calls of sub-groups, and futures
    /// that are leaked.
    Free,
}

pub const ROLES: [Role; 3] = [Role::Main, Role::Steps, Role::Free];

/// How this member goes on with a call.
#[derive(Clone, Copy, Debug)]
pub struct Handling {
    pub how: How,
    pub limit: Option<Duration>,
    /// The pause before the call.
    pub think: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Await,
    /// The future is dropped after so many polls, or after this time.
    Drop(usize, Duration),
    /// The future is leaked after so many polls, at least one, or after this time.
    Forget(usize, Duration),
    /// Awaited, after so many polls by a task whose waker panics.
    Panic(usize),
}

impl Handling {
    /// The same, with a first poll where a call may be refused: a future that is dropped without
    /// one does not say whether its call took a number.
    pub fn polled_if(self, may_be_refused: bool) -> Handling {
        match self.how {
            How::Drop(0, after) if may_be_refused => Handling { how: How::Drop(1, after), ..self },
            _ => self,
        }
    }
}

/// The call with this number in a lane of a View of `size` members: the same on all of them.
pub fn what(seed: u64, view: &str, role: Role, k: u64, size: usize, pace: Pace) -> What {
    let mut chance = Chance::named(seed, &format!("{view}/{role:?}/{k}"));
    let mut what = drawn(&mut chance, role, k, size);
    what.len = what.len.div_ceil(pace.shorter);
    what.parts.iter_mut().for_each(|len| *len = len.div_ceil(pace.shorter));
    what
}

fn drawn(chance: &mut Chance, role: Role, k: u64, size: usize) -> What {
    if k % 12 == 11 {
        return What { len: 1, op: Op::Min, ..What::of(Kind::Control) };
    }
    match role {
        Role::Main => match chance.below(20) {
            0..14 => all_reduce(chance),
            14 | 15 => coded(chance),
            16 => copying(Kind::Broadcast, chance, size),
            17 => copying(Kind::AllGather, chance, size),
            18 => rooted(Kind::Reduce, chance, size),
            _ => rooted(Kind::ReduceScatter, chance, size),
        },
        Role::Steps if chance.below(2) == 0 => all_reduce(chance),
        Role::Steps => {
            let parts = (0..2 + chance.below(5)).map(|_| 1 + chance.below(3000)).collect();
            let dtype = [DType::F32, DType::I32][chance.below(2)];
            What { dtype, parts, op: op(dtype, chance), ..What::of(Kind::Step) }
        }
        Role::Free if size > 1 && chance.below(4) == 0 => {
            let ranks = some(chance, size);
            What { ranks: ranks.clone(), ..free(chance, ranks.len()) }
        }
        Role::Free => free(chance, size),
    }
}

/// At least one of the ranks of a View, and not all.
fn some(chance: &mut Chance, size: usize) -> Vec<usize> {
    let always = chance.below(size);
    let never = (always + 1 + chance.below(size - 1)) % size;
    let mut is_in = |rank| rank == always || rank != never && chance.below(2) == 0;
    (0..size).filter(|rank| is_in(*rank)).collect()
}

fn free(chance: &mut Chance, size: usize) -> What {
    match chance.below(22) {
        0..6 if size > 1 => message(chance, size),
        6..9 => What { best_effort: true, ..all_reduce(chance) },
        9 => What { best_effort: true, ..copying(Kind::Broadcast, chance, size) },
        10 => What { best_effort: true, ..copying(Kind::AllGather, chance, size) },
        11 => coded(chance),
        12 => copying(Kind::Gather, chance, size),
        13 => copying(Kind::Scatter, chance, size),
        14 => copying(Kind::AllToAll, chance, size),
        15 => rooted(Kind::Reduce, chance, size),
        16 => rooted(Kind::ReduceScatter, chance, size),
        17 => What::of(Kind::Barrier),
        18 => copying(Kind::AllGatherUneven, chance, size),
        19 => copying(Kind::AllToAllUneven, chance, size),
        _ => all_reduce(chance),
    }
}

fn all_reduce(chance: &mut Chance) -> What {
    let dtype = dtype(chance);
    What { dtype, op: op(dtype, chance), len: len(dtype, chance), ..What::of(Kind::AllReduce) }
}

/// Sums in f32. Those that may be rounded are short: the log has their results.
fn coded(chance: &mut Chance) -> What {
    let dtype = DType::F32;
    let coded = [Coded::Bf16, Coded::F16, Coded::Int8, Coded::Int4, Coded::Auto][chance.below(5)];
    let is_exact = matches!(coded, Coded::Bf16 | Coded::F16);
    let len = if is_exact { len(dtype, chance) } else { 1 + chance.below(600) };
    What { dtype, coded, len, ..What::of(Kind::AllReduce) }
}

fn copying(kind: Kind, chance: &mut Chance, size: usize) -> What {
    let most = [50, 2000, 30_000][chance.below(3)];
    let len = 1 + chance.below(most);
    What { dtype: dtype(chance), len, root: chance.below(size), ..What::of(kind) }
}

fn rooted(kind: Kind, chance: &mut Chance, size: usize) -> What {
    What { kind, root: chance.below(size), ..all_reduce(chance) }
}

/// From one member to another one.
fn message(chance: &mut Chance, size: usize) -> What {
    let root = chance.below(size);
    let to = (root + 1 + chance.below(size.max(2) - 1)) % size;
    What { to, root, ..copying(Kind::Message, chance, size) }
}

fn dtype(chance: &mut Chance) -> DType {
    DTYPES[chance.below(DTYPES.len())]
}

fn op(dtype: DType, chance: &mut Chance) -> Op {
    let ops: &[Op] = match dtype {
        DType::F32 | DType::F64 => &[Op::Sum, Op::Sum, Op::Min, Op::Max, Op::Prod, Op::Mean],
        DType::F16 | DType::Bf16 => &[Op::Sum, Op::Sum, Op::Min, Op::Max, Op::Prod],
        DType::Bool => &[Op::Min, Op::Max, Op::BitAnd, Op::BitOr, Op::BitXor],
        _ => &[Op::Sum, Op::Min, Op::Max, Op::Prod, Op::BitAnd, Op::BitOr, Op::BitXor],
    };
    ops[chance.below(ops.len())]
}

/// Mostly few elements, up to 1 MiB.
fn len(dtype: DType, chance: &mut Chance) -> usize {
    let bytes = match dtype {
        DType::I8 | DType::U8 | DType::Bool => 1,
        DType::F16 | DType::Bf16 | DType::I16 | DType::U16 => 2,
        DType::F32 | DType::I32 | DType::U32 => 4,
        DType::F64 | DType::I64 | DType::U64 => 8,
    };
    let most_bytes = match chance.below(100) {
        0..50 => 64,
        50..80 => 4 << 10,
        80..95 => 64 << 10,
        95..99 => 256 << 10,
        _ => return (1 << 20) / bytes,
    };
    1 + chance.below(most_bytes / bytes)
}

/// How one member goes on with a call. In a lane with a state only calls are dropped whose result
/// all members get alike, because the program has to add it to the state later. `name` names the
/// node, its life, and the View.
pub fn handling(seed: u64, name: &str, role: Role, k: u64, what: &What, pace: Pace) -> Handling {
    let mut chance = Chance::named(seed, &format!("{name}/{role:?}/{k}"));
    let short = |chance: &mut Chance| Duration::from_millis(1 + chance.below(60) as u64);
    let drops = match (role, what.kind) {
        (_, Kind::Control) => 0,
        (Role::Free, _) => 4,
        (_, Kind::AllReduce | Kind::AllGather | Kind::Step) => 2,
        _ => 0,
    };
    // The data of an uneven call moves only while its future is polled.
    let is_kept = matches!(what.kind, Kind::Control | Kind::AllGatherUneven | Kind::AllToAllUneven);
    let forgets = if role == Role::Free && !is_kept { 2 } else { 0 };
    let roll = chance.below(100);
    let how = if roll < drops {
        How::Drop(chance.below(5), short(&mut chance))
    } else if roll < drops + forgets {
        How::Forget(1 + chance.below(4), short(&mut chance))
    } else if roll > 97 {
        How::Panic(1 + chance.below(3))
    } else {
        How::Await
    };
    let limit = match chance.below(100) {
        _ if what.kind == Kind::Control => None,
        0 | 1 => Some(short(&mut chance)),
        2..8 => Some(Duration::from_millis(2000 + chance.below(8000) as u64)),
        _ => None,
    };
    let think_us = match chance.below(50) {
        0 => 100_000 + chance.below(200_000),
        1..5 => chance.below(30_000),
        _ => chance.below(4000),
    };
    Handling { how, limit, think: Duration::from_micros(think_us as u64) * pace.slower }
}
