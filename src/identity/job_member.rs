//! A node of this cluster that runs another job.

use super::job_name::JobName;
use super::name::Name;
use super::node_id::MemberId;

/// A node that has proved the cluster key and its identity in a handshake, and runs another job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMember {
    /// The node and its boot.
    pub id: MemberId,
    /// Its display name.
    pub name: Name,
    /// Its job.
    pub job: JobName,
}
