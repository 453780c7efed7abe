//! When links that live long get fresh keys.
//!
//! The keys of a link come from its handshake. Inside the link they only go forward, so an attacker
//! that reads the memory of a node once could decrypt all that the link carries afterwards.
//! Therefore a link that is a day old is replaced by a new one over the same path, with a new key
//! exchange: the data link moves as to another path, then the control link is redialled. No call
//! notices. The same is done at once with links of a cluster key that is not accepted any more,
//! relayed ones included.

use crate::identity::MemberId;
use std::collections::BTreeMap;
use std::time::Duration;

/// When a link gets fresh keys.
pub const RENEW_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Tries per [`RENEW_AFTER`]: one every half hour.
const RETRIES: u32 = 48;

/// The pause between two tries to renew a link whose cluster key is not accepted any more, in
/// milliseconds.
const PRESSING_MS: u64 = 500;

/// The tries to renew links.
pub(super) struct Renewals {
    me: MemberId,
    after: Duration,
    /// When this node last tried to renew the links with a member, in milliseconds.
    tried: BTreeMap<MemberId, u64>,
}

impl Renewals {
    pub(super) fn new(me: MemberId, after: Duration) -> Renewals {
        Renewals { me, after, tried: BTreeMap::new() }
    }

    /// The age at which this node renews the links with a member. The member of the two with the
    /// smaller node id does this; if it cannot dial, the other one does when they are twice as old.
    pub(super) fn age_max(&self, member: MemberId) -> Duration {
        if self.me.node < member.node { self.after } else { 2 * self.after }
    }

    /// Forgets the tries with other members than these.
    pub(super) fn keep(&mut self, is_linked: impl Fn(MemberId) -> bool) {
        self.tried.retain(|member, _| is_linked(*member));
    }

    /// Whether it is time for a try with a member whose links are old, or stale: by a key that is
    /// not accepted any more.
    pub(super) fn is_due(&self, now: u64, member: MemberId, is_stale: bool) -> bool {
        let pause = u64::try_from((self.after / RETRIES).as_millis()).unwrap_or(u64::MAX);
        let pause = if is_stale { pause.min(PRESSING_MS) } else { pause };
        self.tried_at(member).is_none_or(|at| now >= at + pause)
    }

    pub(super) fn tried_at(&self, member: MemberId) -> Option<u64> {
        self.tried.get(&member).copied()
    }

    /// A try begins.
    pub(super) fn begun(&mut self, now: u64, member: MemberId) {
        self.tried.insert(member, now);
    }
}
