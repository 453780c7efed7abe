//! The limit on dials to unverified addresses.

/// A token bucket on the caller's clock.
#[derive(Clone, Debug)]
pub(super) struct DialRate {
    per_second: u32,
    burst: u32,
    /// Thousandths of a dial that are available at `at_ms`.
    tokens_milli: u64,
    at_ms: u64,
}

impl DialRate {
    /// Thousandths of a dial in one dial. A second also has this many milliseconds, so a rate per
    /// second equals thousandths per millisecond.
    const ONE: u64 = 1000;

    /// A full bucket.
    pub(super) fn new(per_second: u32, burst: u32) -> DialRate {
        DialRate {
            per_second: per_second.max(1),
            burst,
            tokens_milli: u64::from(burst) * DialRate::ONE,
            at_ms: 0,
        }
    }

    /// Takes one dial, if one is available at `now_ms`.
    pub(super) fn take(&mut self, now_ms: u64) -> Option<()> {
        self.tokens_milli = self.tokens_at(now_ms);
        self.at_ms = self.at_ms.max(now_ms);
        self.tokens_milli = self.tokens_milli.checked_sub(DialRate::ONE)?;
        Some(())
    }

    /// When the next dial is available, not earlier than `now_ms`.
    pub(super) fn ready_at(&self, now_ms: u64) -> u64 {
        let missing = DialRate::ONE.saturating_sub(self.tokens_at(now_ms));
        now_ms + missing.div_ceil(u64::from(self.per_second))
    }

    fn tokens_at(&self, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(u64::from(self.per_second));
        self.tokens_milli.saturating_add(gained).min(u64::from(self.burst) * DialRate::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut rate = DialRate::new(4, 8);
        assert_eq!((0..20).filter(|_| rate.take(1000).is_some()).count(), 8);
        assert_eq!(rate.ready_at(1000), 1250);
        assert_eq!(rate.take(1249), None);
        assert_eq!(rate.take(1250), Some(()));
        assert_eq!((0..20).filter(|_| rate.take(60_000).is_some()).count(), 8);
    }
}
