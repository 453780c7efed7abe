//! One address at which a peer may answer: its origins, its next dial, and the member verified
//! there.

use super::dial_outcome::DialOutcome;
use super::origin::Origin;
use crate::identity::{Boot, MemberId};
use crate::os::AddressPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Back-off after the first failure, doubled for each further one.
const BACK_OFF_MS: u64 = 250;

/// Longest back-off.
const BACK_OFF_MS_MAX: u64 = 30_000;

/// Longest back-off of a trusted address until it counts as gone: parts of a group meet again at
/// most this much after the network is whole, and a dial later.
const TRUSTED_BACK_OFF_MS_MAX: u64 = 5000;

/// Wait after an answer that another dial would only repeat: this node itself, another version,
/// another namespace at an address that no advert of this one lists, or a member that sees other
/// addresses.
const PARKED_MS: u64 = 60_000;

/// The same after the answer of another job at a trusted address: this node's job may start there.
const OTHER_JOB_MS: u64 = 5000;

/// Failures in a row, over about two and a half minutes, after which an unverified address is
/// forgotten.
const HEARSAY_FAILURES_MAX: u32 = 12;

/// The same for a trusted address. A fixed one stays.
const TRUSTED_FAILURES_MAX: u32 = 34;

/// One address; see the module. Times are in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    /// Boots whose present adverts list it.
    pub(super) boots: BTreeSet<Boot>,
    /// Its other origins.
    pub(super) origins: BTreeSet<Origin>,
    /// The member that was last verified there, over a proven path.
    pub(super) verified: Option<MemberId>,
    /// Failed dials since the last success or sighting.
    pub(super) failures: u32,
    /// The outcome of the last dial, if a node that is no peer answered, or a peer over an unproven
    /// path.
    pub(super) outcome: Option<DialOutcome>,
    /// Whether a dial is in flight.
    pub(super) dialing: bool,
    /// Whether any dial has ended.
    pub(super) tried: bool,
    /// Earliest time of the next dial.
    pub(super) due_ms: u64,
    /// Time of the last sighting; the oldest is evicted first.
    pub(super) seen_ms: u64,
    dialed_ms: Option<u64>,
    /// No dial before this time, whatever is sighted.
    aside_until_ms: u64,
}

impl Candidate {
    /// Whether the policy allows this address, given its origins.
    pub(super) fn is_allowed(&self, to: SocketAddr, policy: &AddressPolicy) -> bool {
        let is_advertised = !self.boots.is_empty() && policy.allows_advertised(to);
        let is_named = !self.origins.is_empty() && policy.allows(to);
        self.origins.contains(&Origin::Fixed) || is_advertised || is_named
    }

    /// Configured by the user, or verified in this run or an earlier one: exempt from the limits
    /// for unverified addresses.
    pub(super) fn is_trusted(&self) -> bool {
        let is_own = |origin: &Origin| matches!(origin, Origin::Fixed | Origin::Cache);
        self.verified.is_some() || self.origins.iter().any(is_own)
    }

    /// Whether an advert or another origin still supports it.
    pub(super) fn is_known(&self) -> bool {
        !(self.boots.is_empty() && self.origins.is_empty())
    }

    /// Whether all boots that advertise it have links, or, without such boots, the verified member.
    pub(super) fn is_linked(&self, linked: &BTreeMap<Boot, MemberId>) -> bool {
        if self.boots.is_empty() {
            return self.verified.is_some_and(|member| linked.contains_key(&member.boot));
        }
        self.boots.iter().all(|boot| linked.contains_key(boot))
    }

    /// Records a sighting at `now_ms` and resets the back-off. Two dials are still at least one
    /// first back-off apart.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        self.seen_ms = self.seen_ms.max(now_ms);
        self.failures = 0;
        self.outcome = None;
        self.due_ms = self
            .dialed_ms
            .map_or(now_ms, |dialed_ms| now_ms.max(dialed_ms + BACK_OFF_MS))
            .max(self.aside_until_ms);
    }

    pub(super) fn set_aside(&mut self, until_ms: u64) {
        self.aside_until_ms = until_ms;
        self.due_ms = self.due_ms.max(until_ms);
    }

    /// Whether the first dial since the last sighting is in flight or due.
    pub(super) fn is_first_dial(&self, now_ms: u64) -> bool {
        self.failures == 0 && self.outcome.is_none() && (self.dialing || self.due_ms <= now_ms)
    }

    pub(super) fn dial(&mut self, now_ms: u64) {
        self.dialing = true;
        self.dialed_ms = Some(now_ms);
    }

    /// No connection, or no completed handshake.
    pub(super) fn failed(&mut self, now_ms: u64) {
        let (longest_ms, failures_max) = match self.is_trusted() {
            true => (TRUSTED_BACK_OFF_MS_MAX, TRUSTED_FAILURES_MAX),
            false => (BACK_OFF_MS_MAX, HEARSAY_FAILURES_MAX),
        };
        let longest_ms = if self.failures < failures_max { longest_ms } else { BACK_OFF_MS_MAX };
        self.due_ms = now_ms + (BACK_OFF_MS << self.failures.min(16)).min(longest_ms);
        self.failures = self.failures.saturating_add(1);
        if self.failures >= failures_max {
            self.origins.retain(|origin| *origin == Origin::Fixed);
        }
    }

    /// The member that answered here over an unproven path, and none over a proven one since.
    pub(super) fn unproven(&self) -> Option<MemberId> {
        match self.outcome {
            Some(DialOutcome::Unproven(member)) => Some(member),
            _ => None,
        }
    }

    /// No peer answered, or one whose path is not proven.
    pub(super) fn park(&mut self, outcome: DialOutcome, now_ms: u64) {
        let is_short = outcome == DialOutcome::OtherJob && self.is_trusted();
        self.outcome = Some(outcome);
        self.verified = None;
        self.due_ms = now_ms + if is_short { OTHER_JOB_MS } else { PARKED_MS };
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

    /// A member behind a switch that was without power for minutes is back soon after it.
    #[test]
    fn a_trusted_address_is_dialled_every_five_seconds_for_minutes() {
        let mut candidate =
            Candidate { origins: BTreeSet::from([Origin::Cache]), ..Candidate::default() };
        let mut now = 0;
        let mut longest = 0;
        while candidate.is_trusted() {
            candidate.failed(now);
            longest = longest.max(candidate.due_ms - now);
            now = candidate.due_ms;
        }
        assert_eq!(longest, 5000);
        assert!((140_000..170_000).contains(&now), "{now}");
        assert!(!candidate.is_known());
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
