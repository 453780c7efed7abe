//! Layer: Core.
//!
//! One address that a peer may answer at: where we have it from, when it is dialled next, who was
//! there.

use super::roster::{DialOutcome, Origin};
use crate::identity::{Boot, MemberId};
use std::collections::{BTreeMap, BTreeSet};

/// Wait after the first failure; doubled for each further one.
const BACK_OFF_MS: u64 = 250;

/// Longest wait between two dials of a live address.
const BACK_OFF_MS_MAX: u64 = 30_000;

/// Wait after an answer that a dial soon after would only repeat: ourselves, another namespace or
/// version.
const PARKED_MS: u64 = 60_000;

/// Failures in a row, about three minutes of them, after which hearsay is forgotten.
const HEARSAY_FAILURES_MAX: u32 = 12;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    /// Boots whose adverts list it now.
    pub(super) boots: BTreeSet<Boot>,
    /// Other places it is known from.
    pub(super) origins: BTreeSet<Origin>,
    /// Who proved to be there, the last time somebody did.
    pub(super) verified: Option<MemberId>,
    /// Dials that failed since the last success or fresh sighting.
    pub(super) failures: u32,
    /// What the last dial found, when it found somebody who is no peer.
    pub(super) verdict: Option<DialOutcome>,
    /// Whether a dial is under way.
    pub(super) dialing: bool,
    /// Not before.
    pub(super) due_ms: u64,
    /// Last time anything spoke for it: the measure of what is evicted first.
    pub(super) seen_ms: u64,
    dialed_ms: Option<u64>,
    /// Whatever speaks for it, not before.
    aside_until_ms: u64,
}

impl Candidate {
    /// Named by hand or proven once: dialled without the limits for strangers.
    pub(super) fn is_trusted(&self) -> bool {
        self.verified.is_some() || self.origins.contains(&Origin::Fixed)
    }

    /// Whether anything still speaks for it.
    pub(super) fn is_known(&self) -> bool {
        !(self.boots.is_empty() && self.origins.is_empty())
    }

    /// Whether whoever is expected here has a link already.
    pub(super) fn is_linked(&self, linked: &BTreeMap<Boot, MemberId>) -> bool {
        if self.boots.is_empty() {
            return self.verified.is_some_and(|member| linked.contains_key(&member.boot));
        }
        self.boots.iter().all(|boot| linked.contains_key(boot))
    }

    /// Spoken for at `now_ms`: back-off starts anew, but an address is never dialled twice within
    /// its first step.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        self.seen_ms = self.seen_ms.max(now_ms);
        self.failures = 0;
        self.verdict = None;
        self.due_ms = self
            .dialed_ms
            .map_or(now_ms, |dialed_ms| now_ms.max(dialed_ms + BACK_OFF_MS))
            .max(self.aside_until_ms);
    }

    pub(super) fn set_aside(&mut self, until_ms: u64) {
        self.aside_until_ms = until_ms;
        self.due_ms = self.due_ms.max(until_ms);
    }

    pub(super) fn dial(&mut self, now_ms: u64) {
        self.dialing = true;
        self.dialed_ms = Some(now_ms);
    }

    /// Nobody there, or nobody who finished the handshake.
    pub(super) fn failed(&mut self, now_ms: u64) {
        self.due_ms = now_ms
            + BACK_OFF_MS
                .checked_shl(self.failures.min(16))
                .unwrap_or(BACK_OFF_MS_MAX)
                .min(BACK_OFF_MS_MAX);
        self.failures = self.failures.saturating_add(1);
        if self.failures >= HEARSAY_FAILURES_MAX {
            self.origins.retain(|origin| *origin == Origin::Fixed);
        }
    }

    /// Somebody there who is no peer.
    pub(super) fn park(&mut self, verdict: DialOutcome, now_ms: u64) {
        self.verdict = Some(verdict);
        self.verified = None;
        self.due_ms = now_ms + PARKED_MS;
    }

    pub(super) fn authenticated(&mut self, member: MemberId, now_ms: u64) {
        self.verified = Some(member);
        self.origins.insert(Origin::Remembered);
        self.boots.retain(|boot| *boot == member.boot);
        self.refresh(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_half_a_minute_and_a_sighting_ends_it() {
        let mut candidate = Candidate::default();
        let waits: Vec<u64> = (0..10)
            .map(|_| {
                candidate.failed(1000);
                candidate.due_ms - 1000
            })
            .collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
        candidate.refresh(1000);
        assert_eq!((candidate.failures, candidate.due_ms), (0, 1000));
    }

    #[test]
    fn repeated_sightings_do_not_make_us_dial_faster() {
        let mut candidate = Candidate::default();
        candidate.dial(1000);
        candidate.refresh(1001);
        assert_eq!(candidate.due_ms, 1250);
    }

    #[test]
    fn a_sighting_does_not_bring_back_early_what_was_set_aside() {
        let mut candidate = Candidate::default();
        candidate.set_aside(6000);
        candidate.refresh(2000);
        assert_eq!(candidate.due_ms, 6000);
        candidate.refresh(7000);
        assert_eq!(candidate.due_ms, 7000);
    }

    #[test]
    fn hearsay_is_forgotten_and_a_fixed_peer_never() {
        let mut candidate = Candidate {
            origins: BTreeSet::from([Origin::Gossip, Origin::Fixed]),
            ..Candidate::default()
        };
        (0..1000).for_each(|_| candidate.failed(0));
        assert_eq!(candidate.origins, BTreeSet::from([Origin::Fixed]));
        assert_eq!(candidate.due_ms, 30_000);
    }
}
