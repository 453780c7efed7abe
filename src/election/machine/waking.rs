//! Recovery after the machine has slept, or the process was stopped for longer than the silence
//! limit: the others have gone on, and the beliefs of this node are out of date.

use super::super::agreement::Effect;
use super::super::notice::Notice;
use super::view_change::Attempt;
use super::{Election, LiveEnvironment, Operations};
use crate::identity::MemberId;

impl Election {
    /// Whether the time since this node's last tick exceeds the largest silence limit of its peers.
    pub(super) fn was_away(&self, now: u64) -> bool {
        let away = self.last_tick.map_or(0, |last| now.saturating_sub(last));
        // No peer has a smaller limit. Every message comes by here.
        if away <= self.config.limits.dead_cap_ms {
            return false;
        }
        let patience = self
            .peers
            .keys()
            .map(|id| self.limits_of(*id).dead_cap_ms)
            .max()
            .unwrap_or(self.config.limits.dead_cap_ms);
        away > patience
    }

    /// Freezes the old View, drops all links and forgets all peers, so that this node joins anew;
    /// the next View decides its open operations. It proposes nothing for `damping_cap_ms.0`,
    /// because the others may still be in the old View.
    pub(super) fn on_woke(&mut self, now: u64, ops: &mut dyn Operations) {
        self.note(Notice::Woke);
        self.last_tick = Some(now);
        self.late_ms = 0;
        self.agreement.freeze(&mut LiveEnvironment { ops, links: &self.links });
        self.change.broken = self.agreement.installed().is_some();
        self.change.attempt = Attempt::Idle;
        self.agreement.withdraw();
        self.change.draining = None;
        self.change.yield_until = 0;
        self.change.yield_to_disks_until = 0;
        self.change.yielded_to = None;
        self.change.failures = 0;
        self.change.retry_at = now + self.config.damping_cap_ms.0;
        self.returns(now);
        self.duplicates.forget_contests();
        let peers: Vec<MemberId> = self.peers.keys().copied().collect();
        for id in peers {
            self.effects.push(Effect::Drop(id));
            self.forget(id);
        }
    }
}
