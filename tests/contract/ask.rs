//! Calls as values: the call of each rank at one place of the program, and the result it must get.

use super::numbers::{Number, differs, input, reduced};
use anyhow::{Result, ensure};
use potluck::calls::{CallKind, CallMode, CodecId};
use potluck::{Context, DType, Rank, ReduceOp};
use std::pin::Pin;
use std::task::Poll;

/// The fields of a `Call`.
pub type Named = (CallKind, DType, u64, CodecId, CallMode);

/// The method of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    AllReduce,
    AllReduceOwned,
    Reduce,
    ReduceScatter,
    AllGather,
    Gather,
    Scatter,
    Broadcast,
    AllToAll,
    Barrier,
    /// A step that consists of a sum of `mine` and a broadcast of `parts`.
    Step,
}

impl What {
    pub const ALL: [What; 11] = [
        What::AllReduce,
        What::AllReduceOwned,
        What::Reduce,
        What::ReduceScatter,
        What::AllGather,
        What::Gather,
        What::Scatter,
        What::Broadcast,
        What::AllToAll,
        What::Barrier,
        What::Step,
    ];
}

/// One call. Fields that the method does not use are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub what: What,
    /// The number of elements; for an all_to_all, of each part.
    pub len: usize,
    pub op: ReduceOp,
    pub root: usize,
    pub rounded: bool,
    /// Whether to skip the vote.
    pub best_effort: bool,
}

/// The buffers of one rank, which also receive results.
pub struct Buffers<T> {
    pub mine: Vec<T>,
    /// `len` elements for each rank.
    parts: Vec<T>,
}

/// A call in flight; resolves to its result if that is not in the buffer.
pub type Under<'b, T> = Pin<Box<dyn Future<Output = potluck::Result<Option<Vec<T>>>> + Send + 'b>>;

impl Ask {
    /// A sum of this length.
    pub fn sum(what: What, len: usize) -> Ask {
        Ask { what, len, op: ReduceOp::Sum, root: 0, rounded: false, best_effort: false }
    }

    /// The input of a rank. Calls that differ only in the method get the same input.
    pub fn buffers<T: Number>(&self, seed: u64, rank: usize, size: usize) -> Buffers<T> {
        Buffers { mine: input(seed, rank, self.len), parts: input(!seed, rank, self.len * size) }
    }

    /// Calls the method, so that the call has its number.
    pub fn begin<'b, T: Number>(
        &self,
        context: &mut Context,
        with: &'b mut Buffers<T>,
    ) -> Under<'b, T> {
        let Ask { op, root, best_effort, .. } = *self;
        macro_rules! unvoted {
            ($call:expr) => {{
                let call = $call;
                if best_effort { call.best_effort() } else { call }
            }};
        }
        let Buffers { mine, parts } = with;
        match self.what {
            What::AllReduce => {
                let call = unvoted!(context.all_reduce(mine).op(op));
                let call = if self.rounded { T::rounded(call) } else { call };
                Box::pin(async move { call.await.map(|()| None) })
            }
            What::AllReduceOwned => {
                let call = unvoted!(context.all_reduce_owned(mine.clone()).op(op));
                Box::pin(async move { call.await.map(Some).map_err(|failed| failed.error) })
            }
            What::Reduce => {
                let call = unvoted!(context.reduce(root, mine).op(op));
                Box::pin(async move { call.await.map(|()| None) })
            }
            What::ReduceScatter => {
                let call = unvoted!(context.reduce_scatter(mine).op(op));
                Box::pin(async move { call.await.map(Some) })
            }
            What::AllGather => {
                let call = unvoted!(context.all_gather(mine));
                Box::pin(async move { call.await.map(Some) })
            }
            What::Gather => Box::pin(unvoted!(context.gather(root, mine))),
            What::Scatter => {
                let call = unvoted!(context.scatter(root, Some(parts), mine));
                Box::pin(async move { call.await.map(|()| None) })
            }
            What::Broadcast => {
                let call = unvoted!(context.broadcast(root, mine));
                Box::pin(async move { call.await.map(|()| None) })
            }
            What::AllToAll => {
                let call = unvoted!(context.all_to_all(parts));
                Box::pin(async move { call.await.map(Some) })
            }
            What::Barrier => {
                let call = unvoted!(context.barrier());
                Box::pin(async move { call.await.map(|()| None) })
            }
            What::Step => {
                let mut step = context.step();
                step.all_reduce(mine).op(op);
                step.broadcast(root, parts);
                let call = step.commit();
                Box::pin(async move { call.await.map(|()| None) })
            }
        }
    }

    /// Stores the result of a lost call (`taken`) in the buffers. The root's parts are there
    /// already.
    pub fn put_back<T: Number>(&self, rank: usize, taken: &[T], with: &mut Buffers<T>) {
        let (mine, parts) = taken.split_at(self.len.min(taken.len()));
        with.mine = mine.to_vec();
        if rank != self.root {
            with.parts = parts.to_vec();
        }
    }

    /// The call as errors name it.
    pub fn named<T: Number>(&self, size: usize) -> Named {
        let Ask { op, .. } = *self;
        let root = Rank::from(self.root);
        let mode = if self.best_effort { CallMode::BestEffort } else { CallMode::PerOp };
        let kind = match self.what {
            What::AllReduce | What::AllReduceOwned => CallKind::AllReduce(op),
            What::Reduce => CallKind::Reduce { op, root },
            What::ReduceScatter => CallKind::ReduceScatter(op),
            What::AllGather => CallKind::AllGather,
            What::Gather => CallKind::Gather { root },
            What::Scatter => CallKind::Scatter { root },
            What::Broadcast => CallKind::Broadcast { root },
            What::AllToAll => CallKind::AllToAll,
            What::Step => {
                let count = (self.len * (size + 1) * size_of::<T>()) as u64;
                let kind = CallKind::Step { parts: 2 };
                return (kind, DType::U8, count, CodecId::None, mode);
            }
            What::Barrier => {
                return (CallKind::Barrier, DType::U8, 0, CodecId::None, mode);
            }
        };
        let count = if self.what == What::AllToAll { self.len * size } else { self.len };
        let codec =
            if self.rounded && T::DTYPE == DType::F32 { CodecId::Bf16 } else { CodecId::None };
        (kind, T::DTYPE, count as u64, codec, mode)
    }

    /// Checks the buffer and the result of this rank.
    pub fn is_done<T: Number>(
        &self,
        context: &Context,
        seed: u64,
        have: &Buffers<T>,
        result: Option<&[T]>,
    ) -> Result<()> {
        let (rank, size) = (context.rank().index(), context.size());
        let all = |rank| self.buffers::<T>(seed, rank, size);
        let inputs = || (0..size).map(|rank| all(rank).mine).collect::<Vec<_>>();
        let own = rank * self.len..(rank + 1) * self.len;
        let in_place = match self.what {
            What::AllReduce | What::Step => {
                reduced(&context.fold_order::<T>(self.len), self.op, &inputs())
            }
            What::Reduce if rank == self.root => {
                reduced(&context.reduce_order::<T>(self.root, self.len), self.op, &inputs())
            }
            What::Scatter => all(self.root).parts[own.clone()].to_vec(),
            What::Broadcast => all(self.root).mine,
            _ => all(rank).mine,
        };
        same("the buffer", &have.mine, &in_place)?;
        if self.what == What::Step {
            same("the parts", &have.parts, &all(self.root).parts)?;
        }
        let apart = match self.what {
            What::AllReduceOwned => {
                Some(reduced(&context.fold_order::<T>(self.len), self.op, &inputs()))
            }
            What::ReduceScatter => {
                let whole =
                    reduced(&context.reduce_scatter_order::<T>(self.len), self.op, &inputs());
                Some(whole[context.shard(self.len)].to_vec())
            }
            What::AllGather => Some(inputs().concat()),
            What::Gather => (rank == self.root).then(|| inputs().concat()),
            What::AllToAll => {
                Some((0..size).flat_map(|rank| all(rank).parts[own.clone()].to_vec()).collect())
            }
            _ => None,
        };
        ensure!(
            result.is_some() == apart.is_some(),
            "{:?} has a result: {}",
            self.what,
            result.is_some()
        );
        same("the result", result.unwrap_or_default(), &apart.unwrap_or_default())
    }

    /// Checks that the buffers are unchanged.
    pub fn is_untouched<T: Number>(
        &self,
        context: &Context,
        seed: u64,
        have: &Buffers<T>,
    ) -> Result<()> {
        let was = self.buffers::<T>(seed, context.rank().index(), context.size());
        same("the buffer of a call without a result", &have.mine, &was.mine)?;
        same("the parts of a call without a result", &have.parts, &was.parts)
    }
}

/// Awaits all calls concurrently.
pub async fn together<T: Number>(
    mut calls: Vec<Under<'_, T>>,
) -> Vec<potluck::Result<Option<Vec<T>>>> {
    let mut outcomes: Vec<_> = calls.iter().map(|_| None).collect();
    std::future::poll_fn(|task| {
        for (call, outcome) in
            calls.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none())
        {
            if let Poll::Ready(ended) = call.as_mut().poll(task) {
                *outcome = Some(ended);
            }
        }
        if outcomes.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}

fn same<T: Number>(what: &str, have: &[T], want: &[T]) -> Result<()> {
    let place = differs(have, want);
    ensure!(
        place.is_none(),
        "{what}: {} elements, {} expected, {place:?} differs",
        have.len(),
        want.len()
    );
    Ok(())
}
