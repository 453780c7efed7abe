//! The addresses that are worth a dial now.

use super::super::candidate::Candidate;
use super::super::origin::Origin;
use super::Roster;
use crate::identity::Boot;
use std::net::SocketAddr;

/// One dial to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dial {
    /// The address, which is also the key for [`Roster::dialled`].
    pub to: SocketAddr,
    /// The boot that advertises it, if there is exactly one.
    pub expected: Option<Boot>,
    /// Whether all boots that advertise it observe, and this node does not.
    pub to_observer: bool,
}

impl Roster {
    /// The addresses to dial now. Each counts as in flight until [`dialled`](Roster::dialled) is
    /// called for it.
    pub fn due(&mut self, now_ms: u64) -> Vec<Dial> {
        for to in self.other_jobs.questions(now_ms) {
            if self.policy.allows_advertised(to) {
                self.add(to, Origin::OtherJob, now_ms);
            }
        }
        let mut ready: Vec<(u64, SocketAddr)> = self
            .waiting()
            .filter(|(_, c)| c.due_ms <= now_ms)
            .map(|(to, c)| (c.due_ms, *to))
            .collect();
        ready.sort_unstable();
        let mut free = self.free();
        let mut dials = Vec::new();
        for (_, to) in ready {
            let Some(candidate) = self.candidates.get_mut(&to) else { continue };
            let slots =
                if candidate.is_trusted() { &mut free.trusted } else { &mut free.strangers };
            if *slots == 0 || !candidate.is_trusted() && !self.rate.take(now_ms, 1) {
                continue;
            }
            *slots -= 1;
            candidate.dial(now_ms);
            let expected =
                if candidate.boots.len() == 1 { candidate.boots.first().copied() } else { None };
            let boots = candidate.boots.clone();
            dials.push(Dial { to, expected, to_observer: self.observe(&boots) });
        }
        dials
    }

    /// When [`due`](Roster::due) returns the next dial, not earlier than `now_ms`; `None` if
    /// nothing becomes due without new input.
    pub fn next_due(&self, now_ms: u64) -> Option<u64> {
        let free = self.free();
        let token_ms = self.rate.ready_at(now_ms);
        let at = |c: &Candidate| match c.is_trusted() {
            true if free.trusted > 0 => Some(c.due_ms),
            false if free.strangers > 0 => Some(c.due_ms.max(token_ms)),
            _ => None,
        };
        self.waiting()
            .filter_map(|(_, candidate)| at(candidate))
            .chain(self.other_jobs.next_due())
            .min()
            .map(|due_ms| due_ms.max(now_ms))
    }

    fn waiting(&self) -> impl Iterator<Item = (&SocketAddr, &Candidate)> {
        self.candidates
            .iter()
            .filter(|(_, c)| !c.dialing && c.is_known() && !c.is_linked(self.links.proven()))
            .filter(|(_, c)| !c.unproven().is_some_and(|member| self.links.has(member.boot)))
            .filter(|(to, c)| !c.boots.is_empty() || !self.told.are_of_linked(**to, &self.links))
    }

    fn free(&self) -> Slots {
        let dialing = |trusted| {
            self.candidates.values().filter(|c| c.dialing && c.is_trusted() == trusted).count()
        };
        Slots {
            trusted: self.limits.dialing_trusted.saturating_sub(dialing(true)),
            strangers: self.limits.dialing.saturating_sub(dialing(false)),
        }
    }
}

/// How many more dials may be started.
struct Slots {
    trusted: usize,
    strangers: usize,
}
