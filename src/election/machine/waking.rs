//! Layer: Core.
//!
//! After a sleep of the machine, or when the process was stopped for longer than anybody is waited
//! for: the others have gone on, and what this node believes is of another time.

use super::{Around, Attempt, Election, Operations};
use crate::election::agreement::Effect;
use crate::election::notice::Notice;
use crate::identity::MemberId;

impl Election {
    /// Whether this node has not lived through its own silence limit: then it is the one that was
    /// away.
    pub(super) fn was_away(&self, now: u64) -> bool {
        let patience = self
            .peers
            .keys()
            .map(|id| self.limits_of(*id).dead_cap_ms)
            .max()
            .unwrap_or(self.config.limits.dead_cap_ms);
        self.last_tick.is_some_and(|last| now.saturating_sub(last) > patience)
    }

    /// Nothing more is begun in the old View, all links are given up, and this node joins as if it
    /// came anew; the next View decides about its operations. For a moment it waits for the others:
    /// they may be in the old View still.
    pub(super) fn on_woke(
        &mut self,
        now: u64,
        ops: &mut dyn Operations,
        effects: &mut Vec<Effect>,
    ) {
        self.note(Notice::Woke);
        self.last_tick = Some(now);
        self.late_ms = 0;
        self.agreement.leave_off(&mut Around { ops, links: &self.links });
        self.broken = self.agreement.installed().is_some();
        self.attempt = Attempt::Idle;
        self.agreement.withdraw();
        self.draining = None;
        self.yield_until = 0;
        self.yield_to_disks_until = 0;
        self.yielded_to = None;
        self.failures = 0;
        self.retry_at = now + self.config.damping_cap_ms.0;
        self.twins.forget_contests();
        let peers: Vec<MemberId> = self.peers.keys().copied().collect();
        for id in peers {
            effects.push(Effect::Drop(id));
            self.forget(id);
        }
    }
}
