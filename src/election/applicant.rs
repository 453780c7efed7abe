//! Layer: Words.
//!
//! What a node brings into a View.

use crate::engine::Engines;
use crate::identity::{MemberId, Name};

/// A node that wants to be a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Applicant {
    /// Which life of which node.
    pub id: MemberId,
    /// What it calls itself.
    pub name: Name,
    /// It keeps nothing in step.
    pub stateless: bool,
    /// The engines it offers.
    pub engines: Engines,
}
