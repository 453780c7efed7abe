//! The properties a node brings into a View.

use crate::identity::{MemberId, Name};
use crate::protocol::{Engines, Sizes};

/// A node that wants to be a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Applicant {
    /// The node and its boot.
    pub id: MemberId,
    /// Its display name.
    pub name: Name,
    /// It has no state to keep in sync.
    pub stateless: bool,
    /// The engines it offers.
    pub engines: Engines,
    /// The sizes of the group that it asks for.
    pub sizes: Sizes,
}
