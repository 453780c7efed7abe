//! The messages of a node over a link for the status.

use super::look_back::LookBackAnswer;
use crate::report::document::StatusDocument;
use std::io;

/// A message of another node, or the end of its link.
#[derive(Debug)]
pub(super) enum Told {
    /// Its status.
    Status(Box<StatusDocument>),
    /// Its answer to a look back.
    LookedBack(Box<LookBackAnswer>),
    /// The link has ended.
    End(io::ErrorKind),
    /// The other end has ended the link because there is another one, which has not come to this
    /// node in time.
    Spare,
}
