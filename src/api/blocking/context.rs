//! The collectives on one View, for programs without async.

use super::wait::Wait;
use crate::protocol::Rank;
use crate::report::Result;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// This node's rank in one View. Dereferences to
/// [`potluck::Context`](super::super::context::Context), so it has all of its methods; end calls
/// with [`wait()`](Wait::wait) in place of `.await`:
///
/// ```no_run
/// # fn step(
/// #     ctx: &mut potluck::blocking::Context,
/// #     gradient: &mut Vec<f32>,
/// # ) -> potluck::Result<()> {
/// use potluck::blocking::Wait;
/// ctx.all_reduce(gradient).mean().wait()?;
/// ctx.barrier().deadline(std::time::Duration::from_secs(5)).wait()?;
/// # Ok(())
/// # }
/// ```
pub struct Context {
    context: super::super::context::Context,
}

impl Context {
    /// The Context of the newest View: this View if it is still current, else its successor. Waits
    /// without bound.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) when the node has left.
    pub fn renewed(&self) -> Result<Context> {
        Ok(self.context.renewed().wait()?.into())
    }

    /// Another lane of this View, for another thread. Equal tags name the same lane on every rank;
    /// use each tag once.
    pub fn lane(&self, tag: u32) -> Context {
        self.context.lane(tag).into()
    }

    /// The calls of some ranks of this Context among themselves, like
    /// [`potluck::Context::group`](super::super::context::Context::group).
    ///
    /// # Errors
    /// [`Error::Rejected`](crate::Error::Rejected), as there.
    pub fn group<R: Copy + Into<Rank>>(&self, ranks: &[R], tag: u32) -> Result<Context> {
        Ok(self.context.group(ranks, tag)?.into())
    }
}

impl Deref for Context {
    type Target = super::super::context::Context;

    fn deref(&self) -> &super::super::context::Context {
        &self.context
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut super::super::context::Context {
        &mut self.context
    }
}

/// The same lane, for code without async.
impl From<super::super::context::Context> for Context {
    fn from(context: super::super::context::Context) -> Context {
        Context { context }
    }
}

/// The same lane, for async code.
impl From<Context> for super::super::context::Context {
    fn from(context: Context) -> super::super::context::Context {
        context.context
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.fmt(f)
    }
}
