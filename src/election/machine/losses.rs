//! Layer: Core.
//!
//! Who is to blame for a View that had to be replaced, and what follows from it.

use super::Election;
use crate::identity::{MemberId, NodeId};
use crate::view::View;

impl Election {
    /// Who is kept out because it was lost again and again, and for how many milliseconds still.
    pub fn quarantined(&self, now: u64) -> impl Iterator<Item = (NodeId, u64)> {
        self.quarantine.held(now)
    }

    /// Of a View that breaks in pieces the smaller part is to blame, whatever each part thinks. Who says good-bye is not.
    pub(super) fn count_losses(&mut self, now: u64, view: &View) {
        let next = view.members.iter().map(|m| m.id).collect();
        let before = std::mem::replace(&mut self.members, next);
        let (kept, gone): (Vec<MemberId>, Vec<MemberId>) = before.into_iter().partition(|id| view.contains(*id));
        if 2 * kept.len() < kept.len() + gone.len() {
            return;
        }
        for id in gone {
            // Whoever has been forgotten since was lost by this node, when it was away itself.
            if self.peers.get(&id).is_some_and(|p| !p.left) {
                self.quarantine.lost(id.node, now, self.config.quarantine_ms);
            }
        }
    }

    /// Whether this node is in quarantine. Nobody is taken out of a View for it.
    pub(super) fn is_kept_out(&self, now: u64, id: MemberId) -> bool {
        self.quarantine.holds(id.node, now) && !self.agreement.installed().is_some_and(|v| v.contains(id))
    }

    /// Whether some of these are in quarantine, and the others would be enough.
    pub(super) fn has_enough_without_some(&self, now: u64, members: &[MemberId]) -> bool {
        let kept_out = members.iter().filter(|m| self.is_kept_out(now, **m)).count();
        kept_out > 0 && members.len() - kept_out >= self.config.partition.members_wanted()
    }
}
