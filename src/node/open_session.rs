//! The session of the installed View, shared with the readers of the control links.

use crate::os::RwLock;
use crate::protocol::ViewDigest;
use crate::session::ViewSession;
use std::sync::{Arc, PoisonError};

/// The session of the installed View, to which readers deliver messages themselves. `None` before
/// the first View, during a drain, and while the View is frozen.
#[derive(Clone, Default)]
pub(super) struct OpenSession(Arc<RwLock<Option<Arc<ViewSession>>>>);

impl OpenSession {
    /// Replaces the session: readers deliver to this one from now on.
    pub(super) fn set(&self, session: Option<Arc<ViewSession>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = session;
    }

    /// The session, if it is that of this View.
    pub(super) fn of(&self, view: ViewDigest) -> Option<Arc<ViewSession>> {
        let session = self.0.read().unwrap_or_else(PoisonError::into_inner);
        session.clone().filter(|session| session.digest() == view)
    }
}
