//! The calls on a Context.

use super::call::Call;
use super::erased::Erased;
use super::executor::Executor;
use super::failure::Failure;
use super::memory::{InPlace, Memory};
use super::options::{Options, SharedCodec, Terms};
use super::process_local::ProcessLocal;
use super::reply::Reply;
use super::step::SharedStep;
use super::typed::{of_float, of_type};
use potluck::calls::{RankParts, Rejection, WeightedMean};
use potluck::{Context, DType, Element, Error, Float, ReduceOp};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Outcome = Result<Reply, Failure>;
type Begun = Result<Call<Reply>, Failure>;

/// A [`Context`] whose calls have an end without an executor, see the crate's documentation.
///
/// A method returns when the call has its number and its contribution has been read. The order of
/// the calls of one lane is that of the methods; threads that call at the same time need lanes of
/// their own.
///
/// Lengths are in elements, of the type of the memory. Results for a second buffer are written
/// there: it may be the memory of the first.
///
/// # Errors
/// [`Failure::Argument`] for buffers whose lengths or types do not fit to each other, and options
/// that the call does not have: then nothing was called. All else is the end of the [`Call`].
#[derive(Clone, Debug)]
pub struct SharedContext {
    context: ProcessLocal<Arc<Mutex<Context>>>,
    executor: Executor,
}

/// Sets those options that a call has, if they are asked for.
macro_rules! with {
    ($options:ident, $call:expr; $($option:ident),*) => {{
        let mut call = $call;
        $(with!(@ $option $options call);)*
        call
    }};
    (@ deadline $options:ident $call:ident) => {
        if let Some(after) = $options.deadline { $call = $call.deadline(after); }
    };
    (@ best_effort $options:ident $call:ident) => {
        if $options.best_effort { $call = $call.best_effort(); }
    };
    (@ reject_non_finite $options:ident $call:ident) => {
        if $options.reject_non_finite { $call = $call.reject_non_finite(); }
    };
}

impl SharedContext {
    /// The calls of a Context, which this executor polls.
    pub fn new(context: Context, executor: &Executor) -> SharedContext {
        let context = ProcessLocal::new(Arc::new(Mutex::new(context)));
        SharedContext { context, executor: executor.clone() }
    }

    /// The Context, for everything but calls.
    ///
    /// # Errors
    /// [`Failure::Forked`] in a fork of the process that joined.
    pub fn context(&self) -> Result<MutexGuard<'_, Context>, Failure> {
        self.context.get().map(|context| locked(context))
    }

    /// See [`Context::lane`].
    ///
    /// # Errors
    /// [`Failure::Forked`] in a fork of the process that joined.
    pub fn lane(&self, tag: u32) -> Result<SharedContext, Failure> {
        let lane = self.context()?.lane(tag);
        Ok(SharedContext::new(lane, &self.executor))
    }

    /// See [`Context::group`].
    ///
    /// # Errors
    /// Those of [`Context::group`], and [`Failure::Forked`] in a fork of the process that joined.
    pub fn group(&self, ranks: &[usize], tag: u32) -> Result<SharedContext, Failure> {
        let group = self.context()?.group(ranks, tag)?;
        Ok(SharedContext::new(group, &self.executor))
    }

    /// Combines the buffers of all ranks, in place.
    pub fn all_reduce(&self, buffer: Memory, op: ReduceOp, options: &Options) -> Begun {
        let dtype = buffer.dtype();
        match (options.weight, options.codec.clone()) {
            (None, None) => of_type!(dtype, T => self.reduce_all::<T>(buffer, op, options.terms()),
                _ => unknown(dtype)),
            (None, Some(codec)) if dtype == DType::F32 => {
                self.reduce_all_coded(buffer, op, options.terms(), codec)
            }
            (Some(_), _) if op != ReduceOp::Sum => wrong("a weighted mean has no other operator"),
            (Some(_), _) if options.best_effort => wrong("a weighted mean needs its vote"),
            (Some(weight), None) => of_float!(dtype,
                T => self.mean_of::<T>(buffer, weight, options.terms(), |call| call),
                _ => wrong(&format!("there is no mean of {dtype}"))),
            (Some(weight), Some(codec)) if dtype == DType::F32 => {
                self.mean_of::<f32>(buffer, weight, options.terms(), move |call| {
                    call.compress(&mut locked(&codec))
                })
            }
            (_, Some(_)) => wrong(&format!("a codec is for f32, and the elements are {dtype}")),
        }
    }

    fn reduce_all<T: Element>(&self, buffer: Memory, op: ReduceOp, o: Terms) -> Begun {
        let context = self.clone();
        self.begun(async move {
            let mut buffer = context.held(buffer.in_place::<T>())?;
            let call = context.context()?.all_reduce(buffer.elements()).op(op);
            with!(o, call; deadline, best_effort, reject_non_finite).await?;
            kept(&buffer)
        })
    }

    fn reduce_all_coded(
        &self,
        buffer: Memory,
        op: ReduceOp,
        o: Terms,
        codec: SharedCodec,
    ) -> Begun {
        let context = self.clone();
        self.begun(async move {
            let mut buffer = context.held(buffer.in_place::<f32>())?;
            let call = context.context()?.all_reduce(buffer.elements()).op(op);
            let call = call.compress(&mut locked(&codec));
            with!(o, call; deadline, best_effort, reject_non_finite).await?;
            kept(&buffer)
        })
    }

    fn mean_of<T: Float>(
        &self,
        buffer: Memory,
        weight: f64,
        o: Terms,
        coded: impl for<'a> FnOnce(WeightedMean<'a, T>) -> WeightedMean<'a, T> + Send + 'static,
    ) -> Begun {
        let context = self.clone();
        self.begun(async move {
            let mut buffer = context.held(buffer.in_place::<T>())?;
            let call = context.context()?.all_reduce(buffer.elements()).weighted(weight);
            with!(o, coded(call); deadline, reject_non_finite).await?;
            kept(&buffer)
        })
    }

    /// Combines the buffers of all ranks in that of rank `root`.
    pub fn reduce(&self, buffer: Memory, root: usize, op: ReduceOp, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_reduction("reduce")?;
        of_type!(dtype, T => self.begun(async move {
            let mut buffer = context.held(buffer.in_place::<T>())?;
            let call = context.context()?.reduce(root, buffer.elements()).op(op);
            with!(o, call; deadline, best_effort, reject_non_finite).await?;
            kept(&buffer)
        }), _ => unknown(dtype))
    }

    /// Combines the buffers of all ranks; `out` gets this rank's [`Context::shard`] of it.
    pub fn reduce_scatter(&self, buffer: Memory, out: Memory, op: ReduceOp, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let shard = context.context()?.shard(buffer.count()).len();
        let o = o.of_reduction("reduce_scatter")?;
        fits(&buffer, &out, shard)?;
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.reduce_scatter(&input).op(op);
            let shard = with!(o, call; deadline, best_effort, reject_non_finite).await?;
            written(&out, &shard)
        }), _ => unknown(dtype))
    }

    /// Copies the buffer of rank `root` into those of all ranks.
    pub fn broadcast(&self, buffer: Memory, root: usize, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_copy("broadcast")?;
        of_type!(dtype, T => self.begun(async move {
            let mut buffer = context.held(buffer.in_place::<T>())?;
            let call = context.context()?.broadcast(root, buffer.elements());
            with!(o, call; deadline, best_effort).await?;
            kept(&buffer)
        }), _ => unknown(dtype))
    }

    /// Collects the buffers of all ranks in `out`, in rank order.
    pub fn all_gather(&self, buffer: Memory, out: Memory, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let all = buffer.count().saturating_mul(context.context()?.size());
        let o = o.of_copy("all_gather")?;
        fits(&buffer, &out, all)?;
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.all_gather(&input);
            let all = with!(o, call; deadline, best_effort).await?;
            written(&out, &all)
        }), _ => unknown(dtype))
    }

    /// Collects the buffers of all ranks in `out` of rank `root`, in rank order. The other ranks
    /// give none.
    pub fn gather(&self, buffer: Memory, out: Option<Memory>, root: usize, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let is_root = self.rank()? == root;
        let out = out.filter(|_| is_root);
        let o = o.of_copy("gather")?;
        let all = buffer.count().saturating_mul(self.context()?.size());
        match &out {
            Some(out) => fits(&buffer, out, all)?,
            None if is_root && all > 0 => return wrong("the root of a gather has an output"),
            None => {}
        }
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.gather(root, &input);
            let all = with!(o, call; deadline, best_effort).await?;
            match (out, all) {
                (Some(out), Some(all)) => written(&out, &all),
                _ => Ok(Reply::Done),
            }
        }), _ => unknown(dtype))
    }

    /// Rank `root` gives one part for each rank, in rank order; `out` gets that of this rank.
    pub fn scatter(&self, parts: Option<Memory>, out: Memory, root: usize, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), out.dtype());
        let is_root = self.rank()? == root;
        let parts = parts.filter(|_| is_root);
        let all = out.count().saturating_mul(context.context()?.size());
        let o = o.of_copy("scatter")?;
        match &parts {
            Some(parts) => fits(&out, parts, all)?,
            None if is_root && all > 0 => return wrong("the root of a scatter has parts"),
            None => {}
        }
        of_type!(dtype, T => self.begun(async move {
            let parts = context.held(parts.map(Memory::input::<T>).transpose())?;
            let parts = parts.as_deref().or(is_root.then_some(&[][..]));
            let mut out = context.held(out.in_place::<T>())?;
            let call = context.context()?.scatter(root, parts, out.elements());
            with!(o, call; deadline, best_effort).await?;
            kept(&out)
        }), _ => unknown(dtype))
    }

    /// Sends an equal part of `buffer` to each rank; `out` gets the parts for this rank, in rank
    /// order.
    pub fn all_to_all(&self, buffer: Memory, out: Memory, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_copy("all_to_all")?;
        fits(&buffer, &out, buffer.count())?;
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.all_to_all(&input);
            let all = with!(o, call; deadline, best_effort).await?;
            written(&out, &all)
        }), _ => unknown(dtype))
    }

    /// Collects buffers of any lengths: [`Reply::Parts`].
    pub fn all_gather_uneven(&self, buffer: Memory, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_voted("all_gather_uneven")?;
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.all_gather_uneven(&input);
            Ok(parts(with!(o, call; deadline).await?))
        }), _ => unknown(dtype))
    }

    /// Sends the first `lengths[0]` elements to rank 0, and so on, and collects the elements that
    /// the others send to this rank: [`Reply::Parts`].
    pub fn all_to_all_uneven(&self, buffer: Memory, lengths: Vec<usize>, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_voted("all_to_all_uneven")?;
        of_type!(dtype, T => self.begun(async move {
            let input = context.held(buffer.input::<T>())?;
            let call = context.context()?.all_to_all_uneven(&input, &lengths);
            Ok(parts(with!(o, call; deadline).await?))
        }), _ => unknown(dtype))
    }

    /// Sends a message to rank `to`.
    pub fn send(&self, buffer: Memory, to: usize, tag: u32, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_copy("send")?;
        of_type!(dtype, T => self.begun(async move {
            let nothing = |own: &mut Context| own.send::<T>(to, tag, &[]);
            let input = context.held_for(buffer.input::<T>(), nothing)?;
            let call = context.context()?.send(to, tag, &input);
            with!(o, call; deadline, best_effort).await?;
            Ok(Reply::Done)
        }), _ => unknown(dtype))
    }

    /// Receives a message of rank `from`, or with `None` of any rank: [`Reply::From`] names it.
    pub fn recv(&self, buffer: Memory, from: Option<usize>, tag: u32, o: &Options) -> Begun {
        let (context, dtype) = (self.clone(), buffer.dtype());
        let o = o.of_copy("recv")?;
        of_type!(dtype, T => self.begun(async move {
            let nothing = |own: &mut Context| from.map(|from| own.recv::<T>(from, tag, &mut []));
            let mut buffer = context.held_for(buffer.in_place::<T>(), nothing)?;
            let from = match from {
                Some(from) => {
                    let call = context.context()?.recv(from, tag, buffer.elements());
                    with!(o, call; deadline, best_effort).await?;
                    from
                }
                None => {
                    let call = context.context()?.recv_any(tag, buffer.elements());
                    with!(o, call; deadline, best_effort).await?.index()
                }
            };
            buffer.keep();
            Ok(Reply::From(from))
        }), _ => unknown(dtype))
    }

    /// Waits for all ranks.
    pub fn barrier(&self, o: &Options) -> Begun {
        let context = self.clone();
        let o = o.of_copy("barrier")?;
        self.begun(async move {
            let call = context.context()?.barrier();
            with!(o, call; deadline, best_effort).await?;
            Ok(Reply::Done)
        })
    }

    /// Brings all members to one state: [`Reply::State`], see [`Context::sync`].
    pub fn sync(&self, version: u64, mut state: Vec<u8>, o: &Options) -> Begun {
        let (context, o) = (self.clone(), o.of_voted("sync")?);
        self.begun(async move {
            let call = context.context()?.sync(version, &mut state);
            with!(o, call; deadline).await?;
            Ok(Reply::State(state))
        })
    }

    /// Several calls with one vote, see [`Context::step`]. It takes its place in the lane when it
    /// is committed.
    pub fn step(&self) -> SharedStep {
        SharedStep::of(self.clone())
    }

    /// The memory of a collective. If it cannot be copied, the collective still takes its number
    /// and is aborted for all ranks. Otherwise the next call would pair with this one of the
    /// others.
    pub(crate) fn held<M>(&self, memory: Result<M, Failure>) -> Result<M, Failure> {
        self.held_for(memory, Context::barrier)
    }

    /// The same for a call that takes its number as `call` does.
    fn held_for<M, C>(
        &self,
        memory: Result<M, Failure>,
        call: impl FnOnce(&mut Context) -> C,
    ) -> Result<M, Failure> {
        if memory.is_err() {
            let abandoned = call(&mut *self.context()?);
            drop(abandoned);
        }
        memory
    }

    fn rank(&self) -> Result<usize, Failure> {
        Ok(self.context()?.rank().index())
    }

    /// Begins a call of this Context.
    pub(crate) fn begun(&self, call: impl Future<Output = Outcome> + Send + 'static) -> Begun {
        self.context.get()?;
        Ok(Call::begin(&self.executor, call))
    }
}

/// A call that has written its buffer.
fn kept<T: Element>(buffer: &InPlace<T>) -> Outcome {
    buffer.keep();
    Ok(Reply::Done)
}

fn written<T: Element>(out: &Memory, elements: &[T]) -> Outcome {
    if elements.len() != out.count() {
        let (given, wanted) = (out.count(), elements.len());
        return Err(Error::Rejected(Rejection::Output { given, wanted }).into());
    }
    out.write(elements);
    Ok(Reply::Done)
}

fn parts<T: Element>(parts: RankParts<T>) -> Reply {
    let lengths = parts.lengths().to_vec();
    Reply::Parts { elements: Erased::of(parts), dtype: T::DTYPE, lengths }
}

/// # Errors
/// [`Failure::Argument`] if `other` is no memory for `wanted` elements of the same type.
pub(crate) fn fits(buffer: &Memory, other: &Memory, wanted: usize) -> Result<(), Failure> {
    let (dtype, its) = (buffer.dtype(), other.dtype());
    if its != dtype {
        return wrong(&format!("one buffer has elements of {dtype}, the other of {its}"));
    }
    let given = other.count();
    if given != wanted {
        return wrong(&format!("a buffer has {given} elements where {wanted} belong"));
    }
    Ok(())
}

pub(crate) fn wrong<T>(problem: &str) -> Result<T, Failure> {
    Err(Failure::Argument(problem.to_owned()))
}

pub(crate) fn unknown<T>(dtype: DType) -> Result<T, Failure> {
    wrong(&format!("elements of {dtype} are not known here"))
}

/// The codec or Context of a call that panicked is still one.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
