//! The loop of a program that continues while members come and go.

use super::cluster::Cluster;
use super::context::Context;
use super::shared_state::SharedState;
use crate::protocol::{Rejection, ViewDigest};
use crate::report::{Error, Result};
use crate::trace;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

impl Cluster {
    /// Runs `step` until it says [`Break`](ControlFlow::Break), while members come and go: takes
    /// the Context of the newest View, brings all members to one `state`, and calls `step` again
    /// and again. Returns the value of the `Break`.
    ///
    /// After an error of `step` that [can be answered so](Error::can_renew), it takes the next
    /// Context, syncs the state if the members of its View do not share one history, and continues.
    ///
    /// ```no_run
    /// use potluck::{Cluster, Result, SharedState};
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// # fn gradient_of(_: &[f32], _: usize, _: usize) -> Vec<f32> { vec![] }
    /// struct Model {
    ///     step: u64,
    ///     weights: Vec<f32>,
    /// }
    ///
    /// impl SharedState for Model {
    ///     fn save(&self, out: &mut Vec<u8>) {
    ///         self.step.save(out);
    ///         self.weights.save(out);
    ///     }
    ///
    ///     fn load(&mut self, saved: &mut &[u8]) -> std::io::Result<()> {
    ///         self.step.load(saved)?;
    ///         self.weights.load(saved)
    ///     }
    /// }
    ///
    /// async fn train(cluster: &Cluster, model: &mut Model) -> Result<()> {
    ///     cluster
    ///         .elastic(model, async |ctx, model| {
    ///             let (rank, size) = (ctx.rank().index(), ctx.size());
    ///             let mut gradient = gradient_of(&model.weights, rank, size);
    ///             ctx.all_reduce(&mut gradient).mean().await?;
    ///             // No call follows, so the model may change.
    ///             model.weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= 0.1 * g);
    ///             model.step += 1;
    ///             Ok(if model.step < 1000 { Continue(()) } else { Break(()) })
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// # The state
    ///
    /// *The step changes the state only after its last call.* A call counts for all members that
    /// continue or for none, so all of them then complete the same steps, and their states are
    /// equal bit for bit. A step that fails before has changed nothing and is done again, perhaps
    /// with other members. `elastic` keeps no copy of the state: a copy for each step would cost
    /// memory and time for a case that all or nothing already excludes. A step of several calls
    /// that must count together uses [`Context::step`].
    ///
    /// A member that was cut off while others completed a step ([`Error::Indeterminate`]), and a
    /// member that comes later, get the state of the others. The completed steps of this node are
    /// counted for that. The count belongs to the node and continues if `elastic` is called again.
    ///
    /// [`SharedState::save`] is called only on the member whose state is sent, and
    /// [`SharedState::load`] only on members that lack it, as by [`Context::sync_with`]. Members
    /// that begin together must begin with equal states.
    ///
    /// # Rules
    ///
    /// The sync is the first call of each View, in the main lane. All members use `elastic`, or
    /// none does; a node runs one such loop at a time. `step` may use other lanes, and a
    /// [`GradientSync`](crate::GradientSync). For an error of its own it returns a `Break` that
    /// holds it. To go on in the next View it returns [`Error::ViewChanged`].
    ///
    /// A member that is cut off in the last step of all waits for others, without bound, as
    /// [`Cluster::context`] does.
    ///
    /// *In a spawned task* `step` must own the values that it uses: an `async move` closure with
    /// clones. The compiler does not find a future [`Send`] in which an async closure borrows.
    ///
    /// ```no_run
    /// # use std::ops::ControlFlow::{Break, Continue};
    /// # fn example(cluster: potluck::Cluster, rate: f32) {
    /// tokio::spawn(async move {
    ///     let mut weights = vec![0.0f32; 8];
    ///     let train = cluster.elastic(&mut weights, async move |ctx, weights| {
    ///         let mut next: Vec<f32> = weights.iter().map(|w| w + rate).collect();
    ///         ctx.all_reduce(&mut next).mean().await?;
    ///         *weights = next;
    ///         Ok(if weights[0] < 9.0 { Continue(()) } else { Break(()) })
    ///     });
    ///     train.await
    /// });
    /// # }
    /// ```
    ///
    /// *Cancellation.* If dropped, the call in flight is dropped; see
    /// [`Context::take_result`].
    ///
    /// # Errors
    /// The first error of `step` or of the sync of which [`Error::can_renew`] says no.
    /// [`Rejection::State`](crate::calls::Rejection::State) if `load` refuses the bytes of another
    /// member; the state is then unspecified. [`Error::Closed`] when the node has left.
    pub async fn elastic<S, B, F>(&self, state: &mut S, mut step: F) -> Result<B>
    where
        S: SharedState,
        F: AsyncFnMut(&mut Context, &mut S) -> Result<ControlFlow<B>>,
    {
        let mut renewals = Renewals::of(self);
        let mut ctx = renewals.next(state).await?;
        loop {
            match renewals.after(step(&mut ctx, state).await)? {
                Next::Step => {}
                Next::Renew => ctx = renewals.next(state).await?,
                Next::End(value) => return Ok(value),
            }
        }
    }
}

/// The Contexts of an elastic loop, one after the other, and the sync at the start of each View.
pub(super) struct Renewals {
    cluster: Cluster,
    /// The View whose members have one state.
    synced: Option<ViewDigest>,
}

/// The continuation after a step.
pub(super) enum Next<B> {
    /// The next step in the same View.
    Step,
    /// A new Context.
    Renew,
    /// The end of the loop.
    End(B),
}

impl Renewals {
    pub(super) fn of(cluster: &Cluster) -> Renewals {
        Renewals { cluster: cluster.clone(), synced: None }
    }

    /// The Context of the newest View, with the state of its members.
    pub(super) async fn next<S: SharedState>(&mut self, state: &mut S) -> Result<Context> {
        loop {
            let mut ctx = self.cluster.context().await?;
            match self.sync(&mut ctx, state).await {
                Ok(()) => return Ok(ctx),
                Err(error) if error.can_renew() => trace::debug!(%error, "the sync is repeated"),
                Err(error) => return Err(error),
            }
        }
    }

    /// Syncs once in each View. Whether a View needs more than that depends on the calls of this
    /// node's step, which may use other lanes; so all members decide alike.
    async fn sync<S: SharedState>(&mut self, ctx: &mut Context, state: &mut S) -> Result<()> {
        let view = ctx.view_digest();
        if self.synced == Some(view) {
            return Ok(());
        }
        let steps = self.cluster.steps.load(Ordering::Relaxed);
        let (mut counted, mut refused) = ((steps, state), None);
        let load = |counted: &mut (u64, &mut S), saved: &[u8]| refused = load(counted, saved).err();
        ctx.sync_with(steps, &mut counted, save, load).await?;
        self.cluster.steps.store(counted.0, Ordering::Relaxed);
        if let Some(error) = refused {
            trace::warn!(%error, "the state of another member cannot be loaded");
            return Err(Error::Rejected(Rejection::State));
        }
        self.synced = Some(view);
        Ok(())
    }

    /// Counts a step, and returns the continuation.
    ///
    /// # Errors
    /// The step's, if it ends the loop.
    pub(super) fn after<B>(&self, step: Result<ControlFlow<B>>) -> Result<Next<B>> {
        match step {
            Ok(flow) => {
                self.cluster.steps.fetch_add(1, Ordering::Relaxed);
                Ok(match flow {
                    ControlFlow::Continue(()) => Next::Step,
                    ControlFlow::Break(value) => Next::End(value),
                })
            }
            Err(error) if error.can_renew() => {
                trace::debug!(%error, "the step is repeated");
                Ok(Next::Renew)
            }
            Err(error) => Err(error),
        }
    }
}

/// The bytes of a state, after the number of steps that have led to it.
fn save<S: SharedState>((steps, state): &(u64, &mut S)) -> Vec<u8> {
    let mut out = Vec::new();
    steps.save(&mut out);
    state.save(&mut out);
    out
}

fn load<S: SharedState>(
    (steps, state): &mut (u64, &mut S),
    mut saved: &[u8],
) -> std::io::Result<()> {
    steps.load(&mut saved)?;
    state.load(&mut saved)?;
    // Bytes that are left over are those of another kind of state.
    if saved.is_empty() { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}
