//! Where the frames come from: the nodes of this machine; while none runs, an observer.

use crate::output::Output;
use crate::selection::{LOOK_JOB, Selection};
use anyhow::Result;
use potluck::Observer;
use potluck::report::State;
use potluck::report::document::StatusDocument;

/// The source of one run.
pub struct Source {
    selection: Selection,
    observer: Option<Observer>,
}

impl Source {
    /// A source that has not looked yet.
    pub fn of(selection: Selection) -> Source {
        Source { selection, observer: None }
    }

    /// Returns the status of each node that answers, ordered by job.
    pub async fn look(&mut self) -> Result<Vec<StatusDocument>> {
        let local = self.selection.local(&Output::silent()).await?;
        if !local.nodes.is_empty() {
            self.leave().await;
            return Ok(local.nodes);
        }
        let mut config = self.selection.config();
        config.job = Some(LOOK_JOB.to_owned());
        let observer = match self.observer.take() {
            // One that has ended by itself is replaced.
            Some(observer) if observer.status().state != State::Closed => observer,
            _ => Observer::start(config).await?,
        };
        let nodes = self.observer.insert(observer).nodes();
        Ok(self.selection.of_job(nodes))
    }

    /// Ends the observer, if there is one.
    pub async fn leave(&mut self) {
        if let Some(observer) = self.observer.take() {
            observer.leave().await;
        }
    }
}
