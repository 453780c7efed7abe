//! The reports of a node to its program.

use crate::report::Status;
use crate::session::{Envelope, Meter};
use std::sync::Arc;
use tokio::sync::{broadcast, watch};

/// The sending ends of the channels that the handles read.
pub(super) struct Told {
    pub(super) views: watch::Sender<Option<Arc<Envelope>>>,
    pub(super) status: watch::Sender<Status>,
    pub(super) meter: Arc<Meter>,
    pub(super) happened: broadcast::Sender<crate::report::Event>,
}
