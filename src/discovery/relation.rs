//! The relation of an announced node to this one, as the tags of its advert show it.

use super::sighting::Tags;
use crate::identity::{Boot, JobName, Namespace};

/// How an announced node relates to this one. An advert may be forged: only a handshake proves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same cluster and the same job: it belongs to this node's group.
    SameJob,
    /// The same cluster, and another job.
    OtherJob,
    /// The same cluster, and an observer of it.
    Observer,
    /// Another cluster.
    OtherCluster,
}

impl Relation {
    /// The relation of the boot that shows these tags to a node of this cluster and job.
    pub fn of(namespace: &Namespace, job: &JobName, boot: Boot, tags: Tags) -> Relation {
        if !namespace.knows(boot, tags.cluster) {
            Relation::OtherCluster
        } else if namespace.knows_job(boot, job, tags.job) {
            Relation::SameJob
        } else if namespace.knows_observer(boot, tags.job) {
            Relation::Observer
        } else {
            Relation::OtherJob
        }
    }
}
