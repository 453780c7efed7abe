//! Views that run elsewhere, as a node knows them from the reports of its peers, and whether a View
//! would begin a second history beside one of them. When a report counts is a matter of time and of
//! links, which [`Election`](super::machine::Election) knows.

use crate::identity::MemberId;
use crate::protocol::ViewId;
use std::collections::BTreeSet;

/// The report of a peer that answers and has a View, other than this node's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) from: MemberId,
    pub(crate) view: ViewId,
    /// A single report is believed: it is fresh, and this node does not keep its sender out.
    pub(crate) is_believed: bool,
    /// Its sender keeps this node out of new Views.
    pub(crate) keeps_out: bool,
    /// Its View has no place for this node.
    pub(crate) is_full: bool,
    /// Its sender was in this node's View, and is in a later one without this node.
    pub(crate) has_gone_on: bool,
}

/// The running Views that a node has to join before it makes one with others:
///
/// | the node | Views |
/// | --- | --- |
/// | has a View that has begun | those to which members of its View have gone on |
/// | has no such View | the newest of those that do not keep it out and have a place; |
/// |          | else of those that do not keep it out; else of all |
pub(crate) fn to_join(has_view: bool, reports: &[Report]) -> BTreeSet<ViewId> {
    let running = || reports.iter().filter(|r| r.is_believed || reporters(reports, r.view) > 1);
    if has_view {
        return running().filter(|r| r.has_gone_on).map(|r| r.view).collect();
    }
    let newest = |may: fn(&Report) -> bool| running().filter(|r| may(r)).map(|r| r.view).max();
    newest(|r| !r.keeps_out && !r.is_full)
        .or_else(|| newest(|r| !r.keeps_out))
        .or_else(|| newest(|_| true))
        .into_iter()
        .collect()
}

/// Number of peers that report this View.
pub(super) fn reporters(reports: &[Report], view: ViewId) -> usize {
    reports.iter().filter(|r| r.view == view).count()
}

/// Whether one of these members is in one of these Views, as far as a node knows.
pub(crate) fn joins_one(
    members: &BTreeSet<MemberId>,
    views: &BTreeSet<ViewId>,
    view_of: impl Fn(MemberId) -> Option<ViewId>,
) -> bool {
    members.iter().any(|id| view_of(*id).is_some_and(|view| views.contains(&view)))
}
