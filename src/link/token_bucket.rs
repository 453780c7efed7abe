//! A token bucket on the caller's clock: a rate, and a burst after a pause.

/// The rate of a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Tokens that are added per second.
    pub per_second: u64,
    /// Most tokens at a time.
    pub burst: u64,
}

/// The tokens that are left.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Thousandths of a token that were there at `at_ms`.
    millitokens: u64,
    at_ms: u64,
}

impl TokenBucket {
    /// Thousandths in a token. A second also has this many milliseconds, so tokens per second equal
    /// thousandths per millisecond.
    const ONE: u64 = 1000;

    /// A full bucket.
    pub fn full(rate: Rate, now_ms: u64) -> TokenBucket {
        TokenBucket { rate, millitokens: rate.burst * TokenBucket::ONE, at_ms: now_ms }
    }

    /// Changes the rate. A higher burst begins with a full bucket.
    pub fn set_rate(&mut self, rate: Rate) {
        if rate.burst > self.rate.burst {
            self.millitokens = rate.burst * TokenBucket::ONE;
        }
        self.rate = rate;
    }

    /// Takes this many tokens, if so many are there.
    pub fn take(&mut self, now_ms: u64, tokens: u64) -> bool {
        self.millitokens = self.millitokens_at(now_ms);
        self.at_ms = self.at_ms.max(now_ms);
        let left = self.millitokens.checked_sub(tokens.saturating_mul(TokenBucket::ONE));
        self.millitokens = left.unwrap_or(self.millitokens);
        left.is_some()
    }

    /// When the next token is there, not earlier than `now_ms`. The rate must not be 0.
    pub fn ready_at(&self, now_ms: u64) -> u64 {
        let missing = TokenBucket::ONE.saturating_sub(self.millitokens_at(now_ms));
        now_ms + missing.div_ceil(self.rate.per_second)
    }

    fn millitokens_at(&self, now_ms: u64) -> u64 {
        let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(self.rate.per_second);
        self.millitokens.saturating_add(gained).min(self.rate.burst * TokenBucket::ONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::full(Rate { per_second: 4, burst: 8 }, 0);
        assert_eq!((0..20).filter(|_| bucket.take(1000, 1)).count(), 8);
        assert_eq!(bucket.ready_at(1000), 1250);
        assert!(!bucket.take(1249, 1) && bucket.take(1250, 1));
        assert_eq!((0..20).filter(|_| bucket.take(60_000, 1)).count(), 8);
    }
}
