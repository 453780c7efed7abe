//! The reports of a node to its program.

use super::look_back::LookBackRound;
use super::notices::Waits;
use crate::report::Status;
use crate::report::document::StatusDocument;
use crate::session::{Meter, ViewSession};
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// The sending ends of the channels that the handles read.
pub(super) struct Published {
    pub(super) views: watch::Sender<Option<Arc<ViewSession>>>,
    pub(super) status: watch::Sender<Status>,
    /// The newest documents of the nodes that an observer observes.
    pub(super) observed: watch::Sender<Vec<StatusDocument>>,
    /// The answers of these nodes to the last question for a look back, if an observer has asked.
    pub(super) looked_back: watch::Sender<LookBackRound>,
    pub(super) meter: Arc<Meter>,
    pub(super) waits: Waits,
    pub(super) happened: broadcast::Sender<crate::report::Event>,
}
