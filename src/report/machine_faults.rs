//! Faults of a machine that keep its nodes from working.

use crate::os::TakenRoute;

/// The faults of this machine, see [`machine_faults`](crate::machine_faults).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineFaults {
    /// Why potluck's files cannot be written, in one sentence.
    pub disk: Option<String>,
    /// Own subnets that another interface has taken.
    pub routes: Vec<TakenRoute>,
}
