//! The members with which this node has a direct link.

use crate::identity::{Boot, MemberId};
use std::collections::BTreeMap;

/// The members with a direct link now, and those that have had one in this run.
#[derive(Default)]
pub(super) struct DirectLinks {
    /// Over a proven path.
    proven: BTreeMap<Boot, MemberId>,
    /// Over an unproven path. A proven one is still sought.
    unproven: BTreeMap<Boot, MemberId>,
    /// In this run.
    met: BTreeMap<Boot, MemberId>,
}

impl DirectLinks {
    /// A link over a proven path is established.
    pub(super) fn up(&mut self, member: MemberId) {
        self.unproven.remove(&member.boot);
        self.proven.insert(member.boot, member);
        self.meet(member);
    }

    /// A link over an unproven path is established, and there is no other.
    pub(super) fn unproven_up(&mut self, member: MemberId) {
        self.proven.remove(&member.boot);
        self.unproven.insert(member.boot, member);
        self.meet(member);
    }

    /// A dial over an unproven path has reached this member.
    pub(super) fn answered_unproven(&mut self, member: MemberId) {
        if !self.is_proven(member.boot) {
            self.unproven.insert(member.boot, member);
        }
    }

    /// There is no link to this member any more.
    pub(super) fn down(&mut self, member: MemberId) {
        self.proven.remove(&member.boot);
        self.unproven.remove(&member.boot);
    }

    /// The members with a link over a proven path.
    pub(super) fn proven(&self) -> &BTreeMap<Boot, MemberId> {
        &self.proven
    }

    /// Whether this boot has a link over a proven path.
    pub(super) fn is_proven(&self, boot: Boot) -> bool {
        self.proven.contains_key(&boot)
    }

    /// Whether this boot has a link over an unproven path only.
    pub(super) fn is_unproven(&self, boot: Boot) -> bool {
        self.unproven.contains_key(&boot)
    }

    /// Whether this boot has a link.
    pub(super) fn has(&self, boot: Boot) -> bool {
        self.is_proven(boot) || self.is_unproven(boot)
    }

    /// The member of this boot, if it has had a link in this run.
    pub(super) fn met(&self, boot: Boot) -> Option<MemberId> {
        self.met.get(&boot).copied()
    }

    fn meet(&mut self, member: MemberId) {
        self.met.insert(member.boot, member);
        if self.met.len() > MET_MAX {
            // Any one: it is for reports.
            self.met.pop_first();
        }
    }
}

/// Members that are remembered for reports.
const MET_MAX: usize = 256;
