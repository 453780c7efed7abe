//! The collective commands. Each reports whether the caller's buffer holds what it should.

use super::Order;
use super::coded::coded_sum;
use super::milestone::{Milestone, all_reduced};
use super::numbers::{
    Input, Number, hash, hash_bytes, input, is_close, is_exact, is_part_of, same,
};
use super::report::{emit, ms};
use super::scarce::Scarce;
use potluck::calls::{AllReduce, Coarsest};
use potluck::{Codec, Context, Error, ReduceOp, bf16, f16};
use serde::Deserialize;
use serde_json::{Value, json};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An `all_reduce`, `reduce` or `reduce_scatter`.
#[derive(Debug, Deserialize)]
pub struct Reduction {
    len: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    op: Op,
    /// Only for `reduce`.
    #[serde(default)]
    root: usize,
    #[serde(default)]
    dtype: Type,
    #[serde(default)]
    codec: Coding,
    /// If the plan chooses the codec: compare the bits with a reference for that codec.
    #[serde(default)]
    reference: bool,
    deadline_ms: Option<u64>,
    /// Report when this share of the expected received bytes has arrived, 0 to 1.
    report_at: Option<f64>,
    /// Polls before the call is dropped or leaked. Default 3.
    polls: Option<u32>,
    /// The input is the repeated `MARK`.
    #[serde(default)]
    marked: bool,
    /// The input contains NaNs, infinities and subnormals.
    #[serde(default)]
    awkward: bool,
    /// Use `all_reduce_owned`.
    #[serde(default)]
    owned: bool,
    /// Leave this many bytes of address space to the call.
    room: Option<u64>,
}

/// A collective without reduction. `len` is the length of one rank's part.
#[derive(Debug, Deserialize)]
pub struct Copying {
    len: usize,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    root: usize,
    #[serde(default)]
    dtype: Type,
    /// Leave this many bytes of address space to the call.
    room: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    #[default]
    Sum,
    Mean,
    Min,
    Max,
    Prod,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Type {
    #[default]
    F32,
    F64,
    F16,
    Bf16,
    I8,
    I32,
    I64,
    U8,
    U32,
    U64,
}

/// Evaluates an expression with `$number` bound to the Rust type of the command's dtype.
macro_rules! of_type {
    ($dtype:expr, $number:ident => $call:expr) => {
        of_type!(@ $dtype, $number, $call, F32 f32, F64 f64, F16 f16, Bf16 bf16, I8 i8, I32 i32, I64 i64, U8 u8, U32 u32, U64 u64)
    };
    (@ $dtype:expr, $number:ident, $call:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $(Type::$name => {
                type $number = $type;
                $call
            })*
        }
    };
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Coding {
    #[default]
    None,
    Bf16,
    Int8,
    /// `Codec::auto_up_to(Int8)`.
    Auto,
}

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
            Order::AllReduce(r) if r.owned => {
                of_type!(r.dtype, T => self.all_reduce_owned::<T>(&r).await);
            }
            Order::AllReduce(r) => match r.dtype {
                Type::F32 => self.all_reduce_f32(&r).await,
                dtype => of_type!(dtype, T => self.all_reduce::<T>(&r, |call| call).await),
            },
            Order::Flights(f) => self.flights(&f).await,
            Order::DropAllReduce(r) => self.lose(&r, Fate::Dropped).await,
            Order::ForgetAllReduce(r) => self.lose(&r, Fate::Forgotten).await,
            Order::Broadcast(c) => of_type!(c.dtype, T => self.broadcast::<T>(&c).await),
            Order::AllGather(c) => of_type!(c.dtype, T => self.all_gather::<T>(&c).await),
            Order::Reduce(r) => of_type!(r.dtype, T => self.reduce::<T>(&r).await),
            Order::ReduceScatter(r) => of_type!(r.dtype, T => self.reduce_scatter::<T>(&r).await),
            Order::Gather(c) => of_type!(c.dtype, T => self.gather::<T>(&c).await),
            Order::Scatter(c) => of_type!(c.dtype, T => self.scatter::<T>(&c).await),
            Order::AllToAll(c) => of_type!(c.dtype, T => self.all_to_all::<T>(&c).await),
            Order::Send(m) => self.send(&m).await,
            Order::Recv(m) => self.recv(&m).await,
            Order::Step(s) => self.step(&s).await,
            Order::Barrier => self.barrier().await,
            Order::Sync { version, bytes, seed, room } => {
                self.sync(version, bytes, seed, room).await;
            }
            other => emit(
                &json!({"event": "error", "code": "order", "message": format!("not a call: {other:?}")}),
            ),
        }
    }

    async fn all_reduce_f32(self, r: &Reduction) {
        let mut codec = match r.codec {
            Coding::None => None,
            Coding::Bf16 => Some(Codec::bf16()),
            Coding::Int8 => Some(Codec::int8()),
            Coding::Auto => Some(Codec::auto()),
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
        let before = self.context.fold_order::<T>(r.len);
        // Another lane of the same View, used only to read counters while the call borrows the
        // Context.
        let watched = || self.context.lane(u32::MAX);
        let bytes = all_reduced(self.context, r.len * size_of::<T>());
        let mark = r.report_at.map(|share| Milestone::of(watched(), share, bytes));
        let started = Instant::now();
        let mut call = encoded(self.context.all_reduce(&mut buffer).op(r.op.reduce()));
        if let Some(after) = r.deadline_ms {
            call = call.deadline(Duration::from_millis(after));
        }
        let scarce = r.room.map(Scarce::leaving);
        let outcome = Milestone::passed_by(mark, call).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let good = match (&outcome, r.codec) {
            (Err(_), _) => same(&buffer, &input(r.input(), rank, r.len)),
            (Ok(()), Coding::None) => {
                is_exact(self.context, &before, r.op.reduce(), r.input(), &buffer)
            }
            (Ok(()), _) => is_close(self.context, r.op.reduce(), r.input(), &buffer),
        };
        let kept = if r.codec == Coding::None { "exact" } else { "close" };
        let mut event = done("done", outcome, verdict(good, kept), &hash(&buffer), took);
        if r.codec == Coding::Auto {
            // According to the current plan; the call may have run under the previous one.
            let (plan, bytes) = (self.context.plan(), (r.len * size_of::<T>()) as u64);
            event["auto"] = plan.codec(Coarsest::Int8, bytes).to_string().into();
            event["own"] = plan.codec_of(rank, Coarsest::Int8, bytes).to_string().into();
            event["plan"] = plan.explain().into();
            if r.reference {
                // Only f32 can be encoded.
                let inputs: Vec<Vec<f32>> =
                    (0..self.context.size()).map(|rank| input(r.input(), rank, r.len)).collect();
                event["as_reference"] = coded_sum(&plan, Coarsest::Int8, &inputs)
                    .map(|sum| hash(&sum) == hash(&buffer))
                    .into();
            }
        }
        emit(&event);
    }

    async fn all_reduce_owned<T: Number>(self, r: &Reduction) {
        let rank = self.context.rank().index();
        let given: Vec<T> = input(r.input(), rank, r.len);
        let before = self.context.fold_order::<T>(r.len);
        let started = Instant::now();
        let scarce = r.room.map(Scarce::leaving);
        let outcome = self.context.all_reduce_owned(given).op(r.op.reduce()).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let (outcome, buffer) = match outcome {
            Ok(result) => (Ok(()), result),
            Err(failed) => (Err(failed.error), failed.buffer),
        };
        let good = match &outcome {
            Ok(()) => is_exact(self.context, &before, r.op.reduce(), r.input(), &buffer),
            Err(_) => same(&buffer, &input(r.input(), rank, r.len)),
        };
        emit(&done("done", outcome, verdict(good, "exact"), &hash(&buffer), took));
    }

    /// Polls a few times, then drops or leaks the call.
    async fn lose(self, r: &Reduction, fate: Fate) {
        let rank = self.context.rank().index();
        let mut buffer: Vec<f32> = input(r.input(), rank, r.len);
        let mut call = Box::pin(self.context.all_reduce(&mut buffer).op(r.op.reduce()));
        let mut over = None;
        for _ in 0..r.polls.unwrap_or(3) {
            let polled = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
            if let Poll::Ready(outcome) = polled {
                over = Some(outcome);
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
        emit(
            &json!({"event": event, "was_over": over.is_some(), "verdict": if untouched { "untouched" } else { "damaged" }}),
        );
    }

    async fn broadcast<T: Number>(self, c: &Copying) {
        let from = Input::Seed(c.seed);
        let rank = self.context.rank().index();
        let mut buffer: Vec<T> = input(from, rank, c.len);
        let started = Instant::now();
        let scarce = c.room.map(Scarce::leaving);
        let outcome = self.context.broadcast(c.root, &mut buffer).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let expected = input(from, if outcome.is_ok() { c.root } else { rank }, c.len);
        emit(&done(
            "done",
            outcome,
            verdict(same(&buffer, &expected), "exact"),
            &hash(&buffer),
            took,
        ));
    }

    async fn all_gather<T: Number>(self, c: &Copying) {
        let from = Input::Seed(c.seed);
        let size = self.context.size();
        let buffer: Vec<T> = input(from, self.context.rank().index(), c.len);
        let started = Instant::now();
        let scarce = c.room.map(Scarce::leaving);
        let outcome = self.context.all_gather(&buffer).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        match outcome {
            Ok(gathered) => {
                let expected: Vec<T> =
                    (0..size).flat_map(|rank| input(from, rank, c.len)).collect();
                emit(&done(
                    "done",
                    Ok(()),
                    verdict(same(&gathered, &expected), "exact"),
                    &hash(&gathered),
                    took,
                ));
            }
            Err(error) => {
                emit(&done("done", Err(error), ("untouched", "untouched"), &hash(&buffer), took));
            }
        }
    }

    async fn reduce<T: Number>(self, r: &Reduction) {
        let (rank, size, op) = (self.context.rank().index(), self.context.size(), r.op.reduce());
        let given: Vec<T> = input(r.input(), rank, r.len);
        let mut buffer = given.clone();
        let started = Instant::now();
        let scarce = r.room.map(Scarce::leaving);
        let outcome = self.context.reduce(r.root, &mut buffer).op(op).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let good = if outcome.is_ok() && rank == r.root {
            let order = self.context.reduce_order::<T>(r.root, r.len);
            buffer.len() == r.len && is_part_of(size, &order, op, r.input(), 0..r.len, &buffer)
        } else {
            same(&buffer, &given)
        };
        emit(&done("done", outcome, verdict(good, "exact"), OWN, took));
    }

    async fn reduce_scatter<T: Number>(self, r: &Reduction) {
        let op = r.op.reduce();
        let buffer: Vec<T> = input(r.input(), self.context.rank().index(), r.len);
        let started = Instant::now();
        let scarce = r.room.map(Scarce::leaving);
        let outcome = self.context.reduce_scatter(&buffer).op(op).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let (size, shard) = (self.context.size(), self.context.shard(r.len));
        let order = self.context.reduce_scatter_order::<T>(r.len);
        tell_own(outcome, took, |own| {
            own.len() == shard.len() && is_part_of(size, &order, op, r.input(), shard.clone(), own)
        });
    }

    async fn gather<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let buffer: Vec<T> = input(Input::Seed(c.seed), rank, c.len);
        let started = Instant::now();
        let scarce = c.room.map(Scarce::leaving);
        let outcome = self.context.gather(c.root, &buffer).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        tell_own(outcome, took, |own| match own {
            Some(all) => rank == c.root && same(all, &everybodys(c, size)),
            None => rank != c.root,
        });
    }

    async fn scatter<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let parts: Option<Vec<T>> = (rank == c.root).then(|| everybodys(c, size));
        let given: Vec<T> = input(Input::Seed(!c.seed), rank, c.len);
        let mut out = given.clone();
        let started = Instant::now();
        let scarce = c.room.map(Scarce::leaving);
        let outcome = self.context.scatter(c.root, parts.as_deref(), &mut out).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let expected =
            if outcome.is_ok() { input(Input::Seed(c.seed), rank, c.len) } else { given };
        emit(&done("done", outcome, verdict(same(&out, &expected), "exact"), OWN, took));
    }

    async fn all_to_all<T: Number>(self, c: &Copying) {
        let (rank, size) = (self.context.rank().index(), self.context.size());
        let row = |from: usize| -> Vec<T> { input(Input::Seed(c.seed), from, c.len * size) };
        let buffer = row(rank);
        let started = Instant::now();
        let scarce = c.room.map(Scarce::leaving);
        let outcome = self.context.all_to_all(&buffer).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let part = rank * c.len..(rank + 1) * c.len;
        tell_own(outcome, took, |own| {
            let expected: Vec<T> =
                (0..size).flat_map(|from| row(from)[part.clone()].to_vec()).collect();
            same(own, &expected)
        });
    }

    async fn barrier(self) {
        let started = Instant::now();
        let outcome = self.context.barrier().await;
        emit(&done(
            "done",
            outcome,
            ("exact", "untouched"),
            "",
            (SystemTime::now(), started.elapsed()),
        ));
    }

    async fn sync(self, version: u64, bytes: usize, seed: u64, room: Option<u64>) {
        let given: Vec<u8> = (0..bytes as u64)
            .map(|i| (i.wrapping_mul(seed.wrapping_add(version) | 1) >> 3) as u8)
            .collect();
        let mut state = given.clone();
        let started = Instant::now();
        let scarce = room.map(Scarce::leaving);
        let outcome = self.context.sync(version, &mut state).await;
        drop(scarce);
        let took = (SystemTime::now(), started.elapsed());
        let verdict = verdict(outcome.is_ok() || state == given, "exact");
        let mut event = done("synced", outcome, verdict, &hash_bytes(&state), took);
        event["kept_own"] = (state == given).into();
        emit(&event);
    }
}

impl Reduction {
    fn input(&self) -> Input {
        match (self.marked, self.awkward) {
            (true, _) => Input::Marked,
            (false, true) => Input::Awkward(self.seed),
            (false, false) => Input::Seed(self.seed),
        }
    }
}

impl Op {
    fn reduce(self) -> ReduceOp {
        match self {
            Op::Sum => ReduceOp::Sum,
            Op::Mean => ReduceOp::Mean,
            Op::Min => ReduceOp::Min,
            Op::Max => ReduceOp::Max,
            Op::Prod => ReduceOp::Prod,
        }
    }
}

/// The parts of all ranks, in rank order.
fn everybodys<T: Number>(c: &Copying, size: usize) -> Vec<T> {
    (0..size).flat_map(|rank| input(Input::Seed(c.seed), rank, c.len)).collect()
}

/// Reports a call whose result differs between ranks.
fn tell_own<R>(outcome: Result<R, Error>, took: Answered, is_right: impl FnOnce(&R) -> bool) {
    let good = outcome.as_ref().map_or(true, is_right);
    emit(&done("done", outcome.map(drop), verdict(good, "exact"), OWN, took));
}

/// The hash reported for a result that differs between ranks.
pub(super) const OWN: &str = "";

/// The time of a call's completion, and its duration.
pub(super) type Answered = (SystemTime, Duration);

/// The reported state of the buffer after success and after failure.
pub(super) type Verdict = (&'static str, &'static str);

pub(super) fn verdict(good: bool, kept: &'static str) -> Verdict {
    if good { (kept, "untouched") } else { ("wrong", "damaged") }
}

pub(super) fn done(
    event: &str,
    outcome: Result<(), Error>,
    verdict: Verdict,
    hash: &str,
    (answered, took): Answered,
) -> Value {
    // The time of completion, before the buffer was checked.
    let at = ms(answered.duration_since(UNIX_EPOCH).unwrap_or_default());
    match outcome {
        Ok(()) => {
            json!({"event": event, "ok": true, "verdict": verdict.0, "hash": hash, "ms": ms(took), "at_ms": at})
        }
        Err(error) => json!({
            "event": event,
            "ok": false,
            "code": error.code(),
            "message": error.to_string(),
            "retryable": error.is_retryable(),
            "verdict": verdict.1,
            "ms": ms(took),
            "at_ms": at,
        }),
    }
}
