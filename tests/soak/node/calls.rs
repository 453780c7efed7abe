//! One call: its buffers, its line in the log, its future, and its end.

use std::panic;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll, Wake, Waker};
use std::time::Duration;

use potluck::calls::Rejection;
use potluck::{Cause, Codec, Context, Error, ReduceOp};
use potluck_harness::by_dtype;
use potluck_harness::history::inputs::Key;
use potluck_harness::history::{Coded, Kind, Op, What};
use serde_json::{Value, json};

use super::draw::{Handling, How};
use super::log::Log;
use super::number::{Number, elements, hash_of};

/// The place of a call.
pub struct Scene<'a> {
    pub log: &'a Log,
    pub seed: u64,
    pub lane: u32,
    pub view: &'a str,
    pub k: u64,
    /// The members' names in rank order.
    pub members: &'a [String],
    pub rank: usize,
    /// This member's contribution to a control call.
    pub flag: u8,
}

/// A call that has ended in the program.
pub struct Made {
    pub id: u64,
    pub code: &'static str,
    pub cause: String,
    /// The hash of the buffer.
    pub after: u64,
    /// The hash of a result apart from it.
    pub result: Option<u64>,
    /// The elements of a result that may be rounded.
    values: Vec<f64>,
}

/// The end of a future.
pub enum Driven<T> {
    Over(T),
    Dropped,
    Forgotten,
}

impl<T> Driven<Result<T, Error>> {
    fn map<R>(self, result: impl FnOnce(T) -> R) -> Driven<Result<R, Error>> {
        match self {
            Driven::Over(end) => Driven::Over(end.map(result)),
            Driven::Dropped => Driven::Dropped,
            Driven::Forgotten => Driven::Forgotten,
        }
    }

    /// The words of the log for the end and for its cause.
    pub fn code(&self) -> (&'static str, String) {
        match self {
            Driven::Over(Ok(_)) => ("ok", String::new()),
            Driven::Over(Err(error)) => (error.code(), cause(error)),
            Driven::Dropped => ("dropped", String::new()),
            Driven::Forgotten => ("forgotten", String::new()),
        }
    }
}

/// A future that several calls in flight share.
pub type InFlight = Pin<Box<dyn Future<Output = Made> + Send>>;

/// Sets the options of a call and goes on with its future as this member wants to.
macro_rules! go_on {
    ($call:expr, $what:expr, $handling:expr) => {{
        let mut call = $call;
        if let Some(limit) = $handling.limit {
            call = call.deadline(limit);
        }
        if $what.best_effort {
            call = call.best_effort();
        }
        drive(call, $handling.how).await
    }};
}

/// Makes the call and returns when it has ended in the program.
pub async fn make(ctx: &mut Context, scene: &Scene<'_>, what: &What, handling: &Handling) -> Made {
    let made = match what.kind {
        Kind::Barrier => {
            let id = scene.begins(what, handling, 0);
            Made::of(id, &go_on!(ctx.barrier(), what, handling).map(|()| None), 0)
        }
        Kind::Control => control(ctx, scene, what, handling).await,
        Kind::AllReduce if what.coded != Coded::Plain => coded(ctx, scene, what, handling).await,
        _ => by_dtype!(what.dtype, T => boxed::<T>(ctx, scene, what, handling)).await,
    };
    made.tell(scene.log);
    made
}

/// Begins an `all_reduce`; its number is taken, and nothing is sent before the future is polled.
pub fn begin(ctx: &mut Context, scene: &Scene<'_>, what: &What, handling: &Handling) -> InFlight {
    by_dtype!(what.dtype, T => owned::<T>(ctx, scene, what, handling))
}

/// Goes on with a future.
pub async fn drive<F: Future + Unpin>(mut future: F, how: How) -> Driven<F::Output> {
    let (polls, after, drops) = match how {
        How::Await => return Driven::Over(future.await),
        How::Panic(polls) => return Driven::Over(rudely(future, polls).await),
        How::Drop(polls, after) => (polls, after, true),
        How::Forget(polls, after) => (polls, after, false),
    };
    let mut timer = std::pin::pin!(tokio::time::sleep(after));
    let mut polled = 0;
    let ended = std::future::poll_fn(|task| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        if let Poll::Ready(end) = Pin::new(&mut future).poll(task) {
            return Poll::Ready(Some(end));
        }
        timer.as_mut().poll(task).map(|()| None)
    })
    .await;
    match ended {
        Some(end) => Driven::Over(end),
        None if drops => Driven::Dropped,
        None => {
            std::mem::forget(future);
            Driven::Forgotten
        }
    }
}

/// Polls a future as a task whose waker panics, before its own task awaits it.
async fn rudely<F: Future + Unpin>(mut future: F, polls: usize) -> F::Output {
    let waker = Waker::from(Arc::new(Rude));
    for _ in 0..polls {
        let polled = Pin::new(&mut future).poll(&mut task::Context::from_waker(&waker));
        if let Poll::Ready(end) = polled {
            return end;
        }
        // Part of the load: a time in which it may be woken.
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    future.await
}

/// A waker that panics.
struct Rude;

/// Its last words.
const RUDE: &str = "a waker of the program panics, as the test wants it";

impl Wake for Rude {
    fn wake(self: Arc<Rude>) {
        panic!("{RUDE}");
    }
}

/// Panics that are made on purpose are not printed.
pub fn silence() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let payload = panicked.payload();
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or(payload.downcast_ref::<&str>().copied());
        if said.is_none_or(|said| !said.ends_with("as the test wants it")) {
            print(panicked);
        }
    }));
}

impl Scene<'_> {
    /// Writes that the call is about to be made; returns its number in the log.
    fn begins(&self, what: &What, handling: &Handling, before: u64) -> u64 {
        let id = self.log.next_call();
        self.log.tell(json!({
            "e": "call", "id": id, "lane": self.lane, "view": self.view, "k": self.k, "what": what,
            "way": name(handling.how),
            "limit_ms": handling.limit.map(|limit| limit.as_millis() as u64),
            "before": before, "flag": self.flag,
        }));
        id
    }

    /// The contribution of a rank to a call of a step, or else to part 0.
    fn given<T: Number>(&self, what: &What, rank: usize, part: usize, len: usize) -> Vec<T> {
        let key = Key::of(self.seed, self.view, self.lane, self.k, part);
        elements(key.inputs(&self.members[rank], what.dtype, what.op), len)
    }
}

/// The word for the log.
pub fn name(how: How) -> &'static str {
    match how {
        How::Await => "await",
        How::Drop(..) => "drop",
        How::Forget(..) => "forget",
        How::Panic(..) => "panic",
    }
}

impl Made {
    /// The end of a call; its result is the hash of one apart from the buffer, which has the hash
    /// `after` now.
    fn of(id: u64, end: &Driven<Result<Option<u64>, Error>>, after: u64) -> Made {
        let (code, cause) = end.code();
        let result = if let Driven::Over(Ok(result)) = end { *result } else { None };
        Made { id, code, cause, after, result, values: Vec::new() }
    }

    /// Writes the end to the log.
    pub fn tell(&self, log: &Log) {
        let mut event = json!({
            "e": "return", "id": self.id, "code": self.code, "cause": self.cause,
            "after": self.after,
        });
        if let Some(result) = self.result {
            event["result"] = result.into();
        }
        if !self.values.is_empty() {
            event["values"] = Value::from(self.values.clone());
        }
        log.tell(event);
    }
}

/// More about an error, as the log has it: a word for the cause of an abort and for what a fault
/// explains, else a sentence.
fn cause(error: &Error) -> String {
    let cause = match error {
        Error::Aborted { cause: Cause::MemberLost { .. } } => "member-lost",
        Error::Aborted { cause: Cause::Deadline { .. } } => "deadline",
        Error::Aborted { cause: Cause::NonFinite { .. } } => "non-finite",
        Error::Aborted { cause: Cause::Dropped { .. } } => "dropped",
        Error::Aborted { cause: Cause::Engine { .. } } => "engine",
        Error::Rejected(Rejection::NoDirectLink { .. }) => "no-direct-link",
        Error::Aborted { .. } | Error::Rejected(_) | Error::Mismatch(_) | Error::Engine(_) => {
            return error.to_string();
        }
        _ => "",
    };
    cause.to_owned()
}

fn reduce_op(op: Op) -> ReduceOp {
    match op {
        Op::Sum => ReduceOp::Sum,
        Op::Mean => ReduceOp::Mean,
        Op::Min => ReduceOp::Min,
        Op::Max => ReduceOp::Max,
        Op::Prod => ReduceOp::Prod,
        Op::BitAnd => ReduceOp::BitAnd,
        Op::BitOr => ReduceOp::BitOr,
        Op::BitXor => ReduceOp::BitXor,
    }
}

/// One type for the futures of all element types.
fn boxed<'a, T: Number>(
    ctx: &'a mut Context,
    scene: &'a Scene<'_>,
    what: &'a What,
    handling: &'a Handling,
) -> Pin<Box<dyn Future<Output = Made> + Send + 'a>> {
    if what.kind == Kind::Step {
        Box::pin(step::<T>(ctx, scene, what, handling))
    } else {
        Box::pin(typed::<T>(ctx, scene, what, handling))
    }
}

async fn typed<T: Number>(
    ctx: &mut Context,
    scene: &Scene<'_>,
    what: &What,
    handling: &Handling,
) -> Made {
    let (size, len, op) = (scene.members.len(), what.len, reduce_op(what.op));
    let own_len = what.own_len(scene.rank, size);
    let mut own: Vec<T> = scene.given(what, scene.rank, 0, own_len);
    let parts: Option<Vec<T>> = (what.kind == Kind::Scatter && scene.rank == what.root)
        .then(|| scene.given(what, scene.rank, 1, len * size));
    let id = scene.begins(what, handling, hash_of([&own[..]]));
    let end = match what.kind {
        Kind::Reduce => {
            go_on!(ctx.reduce(what.root, &mut own).op(op), what, handling).map(|()| None)
        }
        Kind::ReduceScatter => go_on!(ctx.reduce_scatter(&own).op(op), what, handling).map(Some),
        Kind::Broadcast => {
            go_on!(ctx.broadcast(what.root, &mut own), what, handling).map(|()| None)
        }
        Kind::AllGather => go_on!(ctx.all_gather(&own), what, handling).map(Some),
        Kind::Gather => go_on!(ctx.gather(what.root, &own), what, handling),
        Kind::Scatter => go_on!(ctx.scatter(what.root, parts.as_deref(), &mut own), what, handling)
            .map(|()| None),
        Kind::AllToAll => go_on!(ctx.all_to_all(&own), what, handling).map(Some),
        Kind::AllGatherUneven => {
            let mut call = ctx.all_gather_uneven(&own);
            if let Some(limit) = handling.limit {
                call = call.deadline(limit);
            }
            drive(call, handling.how).await.map(|parts| Some(parts.into_elements()))
        }
        Kind::AllToAllUneven => {
            let lengths: Vec<usize> = (0..size).map(|to| what.part(scene.rank, to)).collect();
            let mut call = ctx.all_to_all_uneven(&own, &lengths);
            if let Some(limit) = handling.limit {
                call = call.deadline(limit);
            }
            drive(call, handling.how).await.map(|parts| Some(parts.into_elements()))
        }
        Kind::Message if scene.rank == what.root => {
            go_on!(ctx.send(what.to, 3, &own), what, handling).map(|()| None)
        }
        Kind::Message => go_on!(ctx.recv(what.root, 3, &mut own), what, handling).map(|()| None),
        _ => go_on!(ctx.all_reduce(&mut own).op(op), what, handling).map(|()| None),
    };
    let apart = end.map(|result| result.map(|result| hash_of([&result[..]])));
    Made::of(id, &apart, hash_of([&own[..]]))
}

/// A sum on the wire of which elements are encoded.
async fn coded(ctx: &mut Context, scene: &Scene<'_>, what: &What, handling: &Handling) -> Made {
    let mut own: Vec<f32> = scene.given(what, scene.rank, 0, what.len);
    let mut codec = match what.coded {
        Coded::Bf16 => Codec::bf16(),
        Coded::F16 => Codec::f16(),
        Coded::Int8 => Codec::int8(),
        Coded::Int4 => Codec::int4(),
        Coded::Plain | Coded::Auto => Codec::auto(),
    };
    let id = scene.begins(what, handling, hash_of([&own[..]]));
    let end = go_on!(ctx.all_reduce(&mut own).compress(&mut codec), what, handling);
    let mut made = Made::of(id, &end.map(|()| None), hash_of([&own[..]]));
    if what.is_rounded() && made.code == "ok" {
        made.values = own.iter().map(|element| element.value()).collect();
    }
    made
}

async fn control(ctx: &mut Context, scene: &Scene<'_>, what: &What, handling: &Handling) -> Made {
    let mut flag = [scene.flag];
    let id = scene.begins(what, handling, hash_of([&flag[..]]));
    let end = drive(ctx.all_reduce(&mut flag).min(), handling.how).await;
    Made::of(id, &end.map(|()| None), hash_of([&flag[..]]))
}

async fn step<T: Number>(
    ctx: &mut Context,
    scene: &Scene<'_>,
    what: &What,
    handling: &Handling,
) -> Made {
    let parts = what.parts.iter().enumerate();
    let mut own: Vec<Vec<T>> =
        parts.map(|(part, len)| scene.given(what, scene.rank, part, *len)).collect();
    let id = scene.begins(what, handling, hash_of(own.iter().map(Vec::as_slice)));
    let mut step = ctx.step();
    for buffer in &mut own {
        step.all_reduce(buffer).op(reduce_op(what.op));
    }
    let mut commit = step.commit();
    if let Some(limit) = handling.limit {
        commit = commit.deadline(limit);
    }
    let end = drive(commit, handling.how).await;
    Made::of(id, &end.map(|()| None), hash_of(own.iter().map(Vec::as_slice)))
}

/// An `all_reduce` that owns its buffer. Its caller writes the end to the log.
fn owned<T: Number>(
    ctx: &mut Context,
    scene: &Scene<'_>,
    what: &What,
    handling: &Handling,
) -> InFlight {
    let own: Vec<T> = scene.given(what, scene.rank, 0, what.len);
    let id = scene.begins(what, handling, hash_of([&own[..]]));
    let mut call = ctx.all_reduce_owned(own).op(reduce_op(what.op));
    if let Some(limit) = handling.limit {
        call = call.deadline(limit);
    }
    Box::pin(async move {
        let (end, buffer) = match call.await {
            Ok(buffer) => (Ok(None), buffer),
            Err(owned) => (Err(owned.error), owned.buffer),
        };
        Made::of(id, &Driven::Over(end), hash_of([&buffer[..]]))
    })
}
