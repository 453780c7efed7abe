//! Layer: Core.
//!
//! What the bursts over one path have told, and when that is believed.
//!
//! A burst can show too little, but never too much: a processor that is busy with something else
//! hides some of a rate, each time another amount.

/// The bursts over one path in one survey.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    begun: u32,
    told: u32,
    /// In kbit/s, from the best.
    best: [u32; ALIKE],
}

impl Tries {
    /// Of a path that cannot be measured.
    pub(super) const LEFT: Tries = Tries { begun: Tries::MAX, told: 0, best: [0; ALIKE] };
    /// A path of which so many told nothing is left.
    pub(super) const MAX: u32 = 40;

    /// One is sent.
    pub(super) fn begin(&mut self) {
        self.begun = self.begun.saturating_add(1);
    }

    /// One has told so many kbit/s, which is not 0.
    pub(super) fn tell(&mut self, kbps: u32) {
        self.told = self.told.saturating_add(1);
        if let Some(worse) = self.best.iter().position(|other| *other < kbps) {
            self.best[worse..].rotate_right(1);
            self.best[worse] = kbps;
        }
    }

    /// The most that one has told, in kbit/s; `None` before the first one.
    pub(super) fn most(&self) -> Option<u32> {
        (self.told > 0).then_some(self.best[0])
    }

    /// Whether there were so many that it is no use to send more.
    pub(super) fn are_over(&self) -> bool {
        self.begun >= Tries::MAX
    }

    /// Whether enough were made for something to rest on the path.
    pub(super) fn are_some(&self) -> bool {
        self.begun as usize >= ALIKE
    }

    /// Whether the path is believed whatever was told: the best three say the same, or six that
    /// told something, or twelve that were sent, were not enough for that.
    pub(super) fn are_sure(&self) -> bool {
        let are_alike = self.best.iter().all(|kbps| *kbps > 0 && !is_less(*kbps, self.best[0]));
        are_alike || self.told >= TOLD_MAX || self.begun >= 2 * TOLD_MAX
    }
}

/// By more than chance: what bursts over one path differ by while nothing is in the way.
pub(super) fn is_less(kbps: u32, than: u32) -> bool {
    u64::from(kbps) * 100 < u64::from(than) * 93
}

/// So many that say the same are believed.
const ALIKE: usize = 3;
/// More of those that told something are not sent, though they do not say the same.
const TOLD_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn after(told: &[u32]) -> Tries {
        let mut tries = Tries::default();
        for kbps in told {
            tries.begin();
            tries.tell(*kbps);
        }
        tries
    }

    #[test]
    fn three_that_say_the_same_are_believed_and_else_six() {
        assert_eq!(after(&[]).most(), None);
        assert!(!after(&[900, 890]).are_sure() && after(&[900, 890, 840]).are_sure());
        assert!(!after(&[900, 890, 830]).are_sure(), "more than 7 % less");
        assert!(after(&[500, 900, 400, 890, 880]).are_sure(), "the best three");
        assert!(
            !after(&[500, 900, 400, 890, 600]).are_sure()
                && after(&[500, 900, 400, 890, 600, 1]).are_sure()
        );
        assert_eq!(after(&[500, 900, 400]).most(), Some(900));
    }

    #[test]
    fn those_that_told_nothing_do_not_count_but_are_not_sent_for_ever() {
        let mut tries = after(&[900, 500]);
        (0..9).for_each(|_| tries.begin());
        assert!(!tries.are_sure());
        tries.begin();
        assert!(tries.are_sure() && tries.are_some() && !tries.are_over());
        assert!(Tries::LEFT.are_over() && Tries::LEFT.are_sure());
    }
}
