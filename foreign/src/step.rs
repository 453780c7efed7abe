//! Several calls with one vote.

use super::call::Call;
use super::collectives::{SharedContext, fits, locked, unknown, wrong};
use super::failure::Failure;
use super::memory::{InPlace, Memory};
use super::options::{Options, SharedCodec, Terms};
use super::reply::Reply;
use super::typed::{of_float, of_type};
use potluck::calls::StepReduction;
use potluck::{DType, Element, Float, ReduceOp, Step};
use std::borrow::Cow;

/// Calls that are committed together: all of their results are written, or none. Made by
/// [`SharedContext::step`].
///
/// The memory of its calls is read, and their numbers are taken, by [`SharedStep::commit`].
pub struct SharedStep {
    context: SharedContext,
    parts: Vec<Planned>,
}

/// Takes the memory of a call, which may be copied, when the step is committed.
type Planned = Box<dyn FnOnce() -> Result<Box<dyn Part>, Failure> + Send>;

/// A call of a step, with its buffers.
trait Part: Send {
    /// Adds it to the step.
    fn add<'buf>(&'buf mut self, step: &mut Step<'buf>);

    /// The step has succeeded.
    fn keep(&self);
}

type Added = Result<(), Failure>;

impl SharedStep {
    pub(crate) fn of(context: SharedContext) -> SharedStep {
        SharedStep { context, parts: Vec::new() }
    }

    /// See [`SharedContext::all_reduce`]. Of the options, a codec and a weight.
    ///
    /// # Errors
    /// [`Failure::Argument`] for an option or an operator that the type does not have. The step is
    /// as before.
    pub fn all_reduce(&mut self, buffer: Memory, op: ReduceOp, options: &Options) -> Added {
        let (dtype, codec, weight) = (buffer.dtype(), options.of_part()?, options.weight);
        if codec.is_some() && dtype != DType::F32 {
            return wrong(&format!("a codec is for f32, and the elements are {dtype}"));
        }
        if weight.is_some() && op != ReduceOp::Sum {
            return wrong("a weighted mean has no other operator");
        }
        match (weight, codec) {
            (None, None) => of_type!(dtype, T => self.reduced::<T>(buffer, Of::All(op)),
                _ => unknown(dtype)),
            (Some(weight), None) => of_float!(dtype, T => self.weighed::<T>(buffer, weight),
                _ => wrong(&format!("there is no mean of {dtype}"))),
            (weight, Some(codec)) => self.part(move || {
                let buffer = buffer.in_place::<f32>()?;
                Ok(Coded { buffer, codec, op, weight })
            }),
        }
    }

    /// See [`SharedContext::reduce`].
    ///
    /// # Errors
    /// Those of [`SharedStep::all_reduce`].
    pub fn reduce(&mut self, buffer: Memory, root: usize, op: ReduceOp) -> Added {
        let dtype = buffer.dtype();
        of_type!(dtype, T => self.reduced::<T>(buffer, Of::Root(root, op)), _ => unknown(dtype))
    }

    /// See [`SharedContext::broadcast`].
    ///
    /// # Errors
    /// Those of [`SharedStep::all_reduce`].
    pub fn broadcast(&mut self, buffer: Memory, root: usize) -> Added {
        let dtype = buffer.dtype();
        of_type!(dtype, T => self.reduced::<T>(buffer, Of::Broadcast(root)), _ => unknown(dtype))
    }

    /// See [`SharedContext::reduce_scatter`].
    ///
    /// # Errors
    /// Those of [`SharedStep::all_reduce`], and [`Failure::Argument`] for an output of another
    /// length.
    pub fn reduce_scatter(&mut self, buffer: Memory, out: Memory, op: ReduceOp) -> Added {
        let shard = self.context.context()?.shard(buffer.count()).len();
        self.moved(buffer, out, shard, Moves::ReduceScatter(op))
    }

    /// See [`SharedContext::all_gather`].
    ///
    /// # Errors
    /// Those of [`SharedStep::reduce_scatter`].
    pub fn all_gather(&mut self, buffer: Memory, out: Memory) -> Added {
        let all = buffer.count().saturating_mul(self.context.context()?.size());
        self.moved(buffer, out, all, Moves::AllGather)
    }

    /// See [`SharedContext::all_to_all`].
    ///
    /// # Errors
    /// Those of [`SharedStep::reduce_scatter`].
    pub fn all_to_all(&mut self, buffer: Memory, out: Memory) -> Added {
        let all = buffer.count();
        self.moved(buffer, out, all, Moves::AllToAll)
    }

    /// Makes all of these calls. Of the options, a deadline and `reject_non_finite`. Without memory
    /// for a copy that one of them needs, the step fails for all ranks.
    ///
    /// # Errors
    /// [`Failure::Argument`] for other options. Nothing was called.
    pub fn commit(self, options: &Options) -> Result<Call<Reply>, Failure> {
        let SharedStep { context, parts } = self;
        let Terms { deadline, reject_non_finite, .. } = options.of_step()?;
        let begins = context.clone();
        begins.begun(async move {
            let parts = parts.into_iter().map(|planned| planned());
            let parts = parts.collect::<Result<Vec<Box<dyn Part>>, Failure>>();
            let mut parts = context.held(parts)?;
            let mut step = context.context()?.step();
            if reject_non_finite {
                step.reject_non_finite();
            }
            parts.iter_mut().for_each(|part| part.add(&mut step));
            let commit = step.commit();
            match deadline {
                Some(after) => commit.deadline(after).await?,
                None => commit.await?,
            }
            parts.iter().for_each(|part| part.keep());
            Ok(Reply::Done)
        })
    }

    fn reduced<T: Element>(&mut self, buffer: Memory, of: Of) -> Added {
        self.part(move || Ok(InOne { buffer: buffer.in_place::<T>()?, of }))
    }

    fn weighed<T: Float>(&mut self, buffer: Memory, weight: f64) -> Added {
        self.part(move || Ok(Weighed { buffer: buffer.in_place::<T>()?, weight }))
    }

    fn moved(&mut self, buffer: Memory, out: Memory, wanted: usize, how: Moves) -> Added {
        fits(&buffer, &out, wanted)?;
        let dtype = buffer.dtype();
        of_type!(dtype, T => self.part(move || {
            Ok(InTwo { input: buffer.input::<T>()?, out: Out::of(out)?, how })
        }), _ => unknown(dtype))
    }

    fn part<P: Part + 'static>(
        &mut self,
        planned: impl FnOnce() -> Result<P, Failure> + Send + 'static,
    ) -> Added {
        self.parts.push(Box::new(|| Ok(Box::new(planned()?) as Box<dyn Part>)));
        Ok(())
    }
}

/// The calls of one buffer.
enum Of {
    All(ReduceOp),
    Root(usize, ReduceOp),
    Broadcast(usize),
}

struct InOne<T: Element> {
    buffer: InPlace<T>,
    of: Of,
}

impl<T: Element> Part for InOne<T> {
    fn add<'buf>(&'buf mut self, step: &mut Step<'buf>) {
        let buffer = self.buffer.elements();
        match self.of {
            Of::All(op) => step.all_reduce(buffer).op(op),
            Of::Root(root, op) => step.reduce(root, buffer).op(op),
            Of::Broadcast(root) => step.broadcast(root, buffer),
        }
    }

    fn keep(&self) {
        self.buffer.keep();
    }
}

struct Weighed<T: Float> {
    buffer: InPlace<T>,
    weight: f64,
}

impl<T: Float> Part for Weighed<T> {
    fn add<'buf>(&'buf mut self, step: &mut Step<'buf>) {
        step.all_reduce(self.buffer.elements()).weighted(self.weight);
    }

    fn keep(&self) {
        self.buffer.keep();
    }
}

struct Coded {
    buffer: InPlace<f32>,
    codec: SharedCodec,
    op: ReduceOp,
    weight: Option<f64>,
}

impl Part for Coded {
    fn add<'buf>(&'buf mut self, step: &mut Step<'buf>) {
        let sum: StepReduction<'_, 'buf, f32> = step.all_reduce(self.buffer.elements());
        let sum = sum.compress(&mut locked(&self.codec));
        match self.weight {
            Some(weight) => sum.weighted(weight),
            None => sum.op(self.op),
        }
    }

    fn keep(&self) {
        self.buffer.keep();
    }
}

/// The calls of two buffers.
enum Moves {
    ReduceScatter(ReduceOp),
    AllGather,
    AllToAll,
}

struct InTwo<T: Element> {
    input: Cow<'static, [T]>,
    out: Out<T>,
    how: Moves,
}

/// The results of a call, until the step has succeeded: the program may give the same memory twice.
struct Out<T> {
    elements: Vec<T>,
    memory: Memory,
}

impl<T: Element> Out<T> {
    fn of(memory: Memory) -> Result<Out<T>, Failure> {
        Ok(Out { elements: memory.zeroed()?, memory })
    }
}

impl<T: Element> Part for InTwo<T> {
    fn add<'buf>(&'buf mut self, step: &mut Step<'buf>) {
        let out = &mut self.out.elements;
        match self.how {
            Moves::ReduceScatter(op) => step.reduce_scatter(&self.input, out).op(op),
            Moves::AllGather => step.all_gather(&self.input, out),
            Moves::AllToAll => step.all_to_all(&self.input, out),
        }
    }

    fn keep(&self) {
        self.out.memory.write(&self.out.elements);
    }
}
