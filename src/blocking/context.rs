//! Layer: Face.
//!
//! The collectives on one View, for programs without async.

use super::Wait;
use crate::error::Result;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// This node's rank in one View. Dereferences to [`potluck::Context`](crate::Context), so it has
/// all of its methods; end calls with [`wait()`](Wait::wait) in place of `.await`:
///
/// ```no_run
/// # fn step(ctx: &mut potluck::blocking::Context, gradient: &mut Vec<f32>) -> potluck::Result<()> {
/// use potluck::blocking::Wait;
/// ctx.all_reduce(gradient).mean().wait()?;
/// ctx.barrier().deadline(std::time::Duration::from_secs(5)).wait()?;
/// # Ok(())
/// # }
/// ```
pub struct Context {
    context: crate::Context,
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
}

impl Deref for Context {
    type Target = crate::Context;

    fn deref(&self) -> &crate::Context {
        &self.context
    }
}

impl DerefMut for Context {
    fn deref_mut(&mut self) -> &mut crate::Context {
        &mut self.context
    }
}

/// The same lane, for code without async.
impl From<crate::Context> for Context {
    fn from(context: crate::Context) -> Context {
        Context { context }
    }
}

/// The same lane, for async code.
impl From<Context> for crate::Context {
    fn from(context: Context) -> crate::Context {
        context.context
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.fmt(f)
    }
}
