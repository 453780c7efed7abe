//! What a node tells over a link for the status.

use super::look_back::LookBackAnswer;
use crate::report::document::StatusDocument;
use std::io;

/// What another node has told, or how its link has ended.
#[derive(Debug)]
pub(super) enum Told {
    /// Its status.
    Status(Box<StatusDocument>),
    /// What it has seen when it looked back.
    LookedBack(Box<LookBackAnswer>),
    /// The link has ended.
    End(io::ErrorKind),
    /// The link has ended because there is another one.
    Spare,
}
