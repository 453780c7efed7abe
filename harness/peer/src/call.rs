//! The collective commands. Each reports whether the caller's buffer holds the expected elements.

use crate::answer::{Answered, OWN, done, tell, tell_own, timed, verdict};
use crate::arguments::{Copying, Reduction};
use crate::coded::coded_sum;
use crate::milestone::{Milestone, all_reduced};
use crate::numbers::{
    Input, Number, hash, hash_bytes, input, is_close, is_exact, is_part_of, same,
};
use crate::order::Order;
use crate::orders::FoldOrders;
use crate::report::{emit, progress, refuse};
use potluck::calls::{AllReduce, Coarsest};
use potluck::plan::FoldOrder;
use potluck::{Codec, Context, Error};
use potluck_harness::by_dtype;
use potluck_harness::history::{Coded, DType};
use serde_json::{Value, json};
use std::task::Poll;
use std::time::Duration;

/// The treatment of a call after it has begun.
#[derive(Clone, Copy)]
enum Fate {
    Dropped,
    Forgotten,
}

/// The calls on one Context.
pub struct Calls<'a> {
    pub context: &'a mut Context,
}

impl Calls<'_> {
    pub async fn make(self, order: Order) {
        match order {
            Order::AllReduce(r) if !r.group.is_empty() => self.in_group(r).await,
            Order::AllReduce(r) if r.owned => {
                by_dtype!(r.dtype, T => self.all_reduce_owned::<T>(&r).await);
            }
            Order::AllReduce(r) => match r.dtype {
                DType::F32 => self.all_reduce_f32(&r).await,
                dtype => by_dtype!(dtype, T => self.all_reduce::<T>(&r, |call| call).await),
            },
            Order::Flights(f) => self.flights(&f).await,
            Order::DropAllReduce(r) => self.lose(&r, Fate::Dropped).await,
            Order::ForgetAllReduce(r) => self.lose(&r, Fate::Forgotten).await,
            Order::Broadcast(c) => by_dtype!(c.dtype, T => self.broadcast::<T>(&c).await),
            Order::AllGather(c) => by_dtype!(c.dtype, T => self.all_gather::<T>(&c).await),
            Order::Reduce(r) => by_dtype!(r.dtype, T => self.reduce::<T>(&r).await),
            Order::ReduceScatter(r) => by_dtype!(r.dtype, T => self.reduce_scatter::<T>(&r).await),
            Order::Gather(c) => by_dtype!(c.dtype, T => self.gather::<T>(&c).await),
            Order::Scatter(c) => by_dtype!(c.dtype, T => self.scatter::<T>(&c).await),
            Order::AllToAll(c) => by_dtype!(c.dtype, T => self.all_to_all::<T>(&c).await),
            Order::Send(m) => self.send(&m).await,
            Order::Recv(m) => self.recv(&m).await,
            Order::Step(s) => self.step(&s).await,
            Order::Barrier => self.barrier().await,
            Order::Sync { version, bytes, seed, room } => {
                self.sync(version, bytes, seed, room).await;
            }
            other => refuse("order", &format!("not a call: {other:?}")),
        }
    }

    async fn in_group(self, mut r: Reduction) {
        match self.context.group(&std::mem::take(&mut r.group), 0) {
            Ok(mut context) => {
                Box::pin(Calls { context: &mut context }.make(Order::AllReduce(r))).await;
            }
            Err(error) => refuse("group", &error.to_string()),
        }
    }

    /// The fold orders of the next `all_reduce` of `len` elements, from now on.
    pub fn orders<T: Number>(&self, len: usize) -> FoldOrders {
        FoldOrders::watch(self.context, move |context| context.fold_order::<T>(len))
    }

    async fn all_reduce_f32(self, r: &Reduction) {
        let mut codec = match r.codec {
            Coded::Plain => None,
            Coded::Bf16 => Some(Codec::bf16()),
            Coded::F16 => Some(Codec::f16()),
            Coded::Int8 => Some(Codec::int8()),
            Coded::Int4 => Some(Codec::int4()),
            Coded::Auto => Some(Codec::auto()),
        };
        self.all_reduce::<f32>(r, |call| {
            if let Some(codec) = &mut codec { call.compress(codec) } else { call }
        })
        .await;
    }

    async fn all_reduce<T: Number>(
        self,
        r: &Reduction,
        encoded: impl FnOnce(AllReduce<'_, T>) -> AllReduce<'_, T>,
    ) {
        let rank = self.context.rank().index();
        let mut buffer: Vec<T> = input(r.input(), rank, r.len);
        let orders = self.orders::<T>(r.len);
        // Another lane of the same View, used only to read counters while the call borrows the
        // Context.
        let watched = || self.context.lane(u32::MAX);
        let bytes = all_reduced(self.context, r.len * size_of::<T>());
        let mark = r.report_at.map(|share| Milestone::of(watched(), share, bytes, progress));
        let mut call = encoded(self.context.all_reduce(&mut buffer).op(r.op()));
        if let Some(after) = r.deadline_ms {
            call = call.deadline(Duration::from_millis(after));
        }
        let (outcome, time) = timed(r.room, Milestone::passed_by(mark, call)).await;
        self.tell_all_reduce(r, &orders.seen(), outcome, &buffer, time);
    }

    fn tell_all_reduce<T: Number>(
        &self,
        r: &Reduction,
        orders: &[FoldOrder],
        outcome: Result<(), Error>,
        buffer: &[T],
        time: Answered,
    ) {
        let context = &*self.context;
        let good = match (&outcome, r.codec) {
            (Err(_), _) => same(buffer, &input(r.input(), context.rank().index(), r.len)),
            (Ok(()), Coded::Plain) => is_exact(context.size(), orders, r.op(), r.input(), buffer),
            (Ok(()), _) => is_close(context, r.op(), r.input(), buffer),
        };
        let kept = if r.codec == Coded::Plain { "exact" } else { "close" };
        let hash = hash(buffer);
        let mut event = done("done", outcome, verdict(good, kept), &hash, time);
        if r.codec == Coded::Auto {
            self.tell_codec(r, (r.len * size_of::<T>()) as u64, &hash, &mut event);
        }
        emit(&event);
    }

    /// Adds the codec that the plan chooses, for the current plan; the call may have run under the
    /// previous one.
    fn tell_codec(&self, r: &Reduction, bytes: u64, result: &str, event: &mut Value) {
        let (plan, rank) = (self.context.plan(), self.context.rank().index());
        event["auto"] = plan.codec(Coarsest::Int8, bytes).to_string().into();
        event["own"] = plan.codec_of(rank, Coarsest::Int8, bytes).to_string().into();
        event["plan"] = plan.explain().into();
        if r.reference {
            // Only f32 can be encoded.
            let inputs: Vec<Vec<f32>> =
                (0..self.context.size()).map(|rank| input(r.input(), rank, r.len)).collect();
            event["as_reference"] =
                coded_sum(&plan, Coarsest::Int8, &inputs).map(|sum| hash(&sum) == result).into();
        }
    }

    async fn all_reduce_owned<T: Number>(self, r: &Reduction) {
        let rank = self.context.rank().index();
        let given: Vec<T> = input(r.input(), rank, r.len);
        let orders = self.orders::<T>(r.len);
        let call = async { self.context.all_reduce_owned(given).op(r.op()).await };
        let (outcome, time) = timed(r.room, call).await;
        let (outcome, buffer) = match outcome {
            Ok(result) => (Ok(()), result),
            Err(failed) => (Err(failed.error), failed.buffer),
        };
        let orders = orders.seen();
        let good = match &outcome {
            Ok(()) => is_exact(self.context.size(), &orders, r.op(), r.input(), &buffer),
            Err(_) => same(&buffer, &input(r.input(), rank, r.len)),
        };
        tell(outcome, verdict(good, "exact"), &hash(&buffer), time);
    }

    /// Polls a few times, then drops or leaks the call.
    async fn lose(self, r: &Reduction, fate: Fate) {
        let rank = self.context.rank().index();
        let mut buffer: Vec<f32> = input(r.input(), rank, r.len);
        let mut call = Box::pin(self.context.all_reduce(&mut buffer).op(r.op()));
        let mut was_over = false;
        for _ in 0..r.polls.unwrap_or(3) {
            let polled = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
            if polled.is_ready() {
                was_over = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        let event = match fate {
            Fate::Dropped => {
                drop(call);
                "dropped"
            }
            Fate::Forgotten => {
                std::mem::forget(call);
                "forgotten"
            }
        };
        let untouched = same(&buffer, &input(r.input(), rank, r.len));
        let verdict = if untouched { "untouched" } else { "damaged" };
        emit(&json!({"event": event, "was_over": was_over, "verdict": verdict}));
    }

    async fn broadcast<T: Number>(self, c: &Copying) {
        let from = Input::Seed(c.seed);
        let rank = self.context.rank().index();
        let mut buffer: Vec<T> = input(from, rank, c.len);
        let call = async { self.context.broadcast(c.root, &mut buffer).await };
        let (outcome, time) = timed(c.room, call).await;
        let expected = input(from, if outcome.is_ok() { c.root } else { rank }, c.len);
        tell(outcome, verdict(same(&buffer, &expected), "exact"), &hash(&buffer), time);
    }

    async fn all_gather<T: Number>(self, c: &Copying) {
        let size = self.context.size();
        let buffer: Vec<T> = input(Input::Seed(c.seed), self.context.rank().index(), c.len);
        let call = async { self.context.all_gather(&buffer).await };
        let (outcome, time) = timed(c.room, call).await;
        let good = outcome.as_ref().map_or(true, |all| same(all, &everybodys(c, size)));
        let hash = outcome.as_ref().map_or_else(|_| String::new(), |all| hash(all));
        tell(outcome.map(drop), verdict(good, "exact"), &hash, time);
    }

    async fn reduce<T: Number>(self, r: &Reduction) {
        let (rank, size, op) = (self.context.rank().index(), self.context.size(), r.op());
        let given: Vec<T> = input(r.input(), rank, r.len);
        let mut buffer = given.clone();
        let (root, len) = (r.root, r.len);
        let orders =
            FoldOrders::watch(self.context, move |context| context.reduce_order::<T>(root, len));
        let call = async { self.context.reduce(root, &mut buffer).op(op).await };
        let (outcome, time) = timed(r.room, call).await;
        let orders = orders.seen();
        let good = if outcome.is_ok() && rank == root {
            buffer.len() == len && is_exact(size, &orders, op, r.input(), &buffer)
        } else {
            same(&buffer, &given)
        };
        tell(outcome, verdict(good, "exact"), OWN, time);
    }

    async fn reduce_scatter<T: Number>(self, r: &Reduction) {
        let op = r.op();
        let buffer: Vec<T> = input(r.input(), self.context.rank().index(), r.len);
        let len = r.len;
        let orders =
            FoldOrders::watch(self.context, move |context| context.reduce_scatter_order::<T>(len));
        let call = async { self.context.reduce_scatter(&buffer).op(op).await };
        let (outcome, time) = timed(r.room, call).await;
        let (size, shard, orders) = (self.context.size(), self.context.shard(len), orders.seen());
        tell_own(outcome, time, |own| {
            let is_sum = |order| is_part_of(size, order, op, r.input(), shard.clone(), own);
            own.len() == shard.len() && orders.iter().any(is_sum)
        });
    }

    async fn gather<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let buffer: Vec<T> = input(Input::Seed(c.seed), rank, c.len);
        let call = async { self.context.gather(c.root, &buffer).await };
        let (outcome, time) = timed(c.room, call).await;
        tell_own(outcome, time, |own| match own {
            Some(all) => rank == c.root && same(all, &everybodys(c, size)),
            None => rank != c.root,
        });
    }

    async fn scatter<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let parts: Option<Vec<T>> = (rank == c.root).then(|| everybodys(c, size));
        let given: Vec<T> = input(Input::Seed(!c.seed), rank, c.len);
        let mut out = given.clone();
        let call = async { self.context.scatter(c.root, parts.as_deref(), &mut out).await };
        let (outcome, time) = timed(c.room, call).await;
        let expected =
            if outcome.is_ok() { input(Input::Seed(c.seed), rank, c.len) } else { given };
        tell(outcome, verdict(same(&out, &expected), "exact"), OWN, time);
    }

    async fn all_to_all<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let row = |from: usize| -> Vec<T> { input(Input::Seed(c.seed), from, c.len * size) };
        let buffer = row(rank);
        let call = async { self.context.all_to_all(&buffer).await };
        let (outcome, time) = timed(c.room, call).await;
        let part = rank * c.len..(rank + 1) * c.len;
        tell_own(outcome, time, |own| {
            let expected: Vec<T> =
                (0..size).flat_map(|from| row(from)[part.clone()].to_vec()).collect();
            same(own, &expected)
        });
    }

    async fn barrier(self) {
        let (outcome, time) = timed(None, self.context.barrier()).await;
        tell(outcome, verdict(true, "exact"), OWN, time);
    }

    async fn sync(self, version: u64, bytes: usize, seed: u64, room: Option<u64>) {
        let given: Vec<u8> = (0..bytes as u64)
            .map(|i| (i.wrapping_mul(seed.wrapping_add(version) | 1) >> 3) as u8)
            .collect();
        let mut state = given.clone();
        let call = async { self.context.sync(version, &mut state).await };
        let (outcome, time) = timed(room, call).await;
        let verdict = verdict(outcome.is_ok() || state == given, "exact");
        let mut event = done("synced", outcome, verdict, &hash_bytes(&state), time);
        event["kept_own"] = (state == given).into();
        emit(&event);
    }
}

/// The parts of all ranks, in rank order.
fn everybodys<T: Number>(c: &Copying, size: usize) -> Vec<T> {
    (0..size).flat_map(|rank| input(Input::Seed(c.seed), rank, c.len)).collect()
}
