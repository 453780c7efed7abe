//! The results of bursts over one path, and the rule when they are trusted.
//!
//! A burst can show a rate that is too low but never one that is too high: a busy processor hides a
//! part of the rate, each time a different one.

/// The bursts over one path in one survey.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tries {
    begun: u32,
    told: u32,
    /// The highest rates in kbit/s, in descending order.
    best: [u32; ALIKE],
}

impl Tries {
    /// For a path that cannot be measured.
    pub(super) const LEFT: Tries = Tries { begun: Tries::MAX, told: 0, best: [0; ALIKE] };
    /// A path is given up after this many bursts.
    pub(super) const MAX: u32 = 40;

    /// Counts a burst that is sent.
    pub(super) fn begin(&mut self) {
        self.begun = self.begun.saturating_add(1);
    }

    /// Records the rate of a burst in kbit/s, not 0.
    pub(super) fn tell(&mut self, kbps: u32) {
        self.told = self.told.saturating_add(1);
        if let Some(worse) = self.best.iter().position(|other| *other < kbps) {
            self.best[worse..].rotate_right(1);
            self.best[worse] = kbps;
        }
    }

    /// The highest rate in kbit/s; `None` before the first one.
    pub(super) fn most(&self) -> Option<u32> {
        (self.told > 0).then_some(self.best[0])
    }

    /// Whether so many bursts were sent that more are useless.
    pub(super) fn are_over(&self) -> bool {
        self.begun >= Tries::MAX
    }

    /// Whether enough bursts were sent to draw conclusions from the path.
    pub(super) fn are_some(&self) -> bool {
        self.begun as usize >= ALIKE
    }

    /// Whether the path's rate is trusted. Either the best three rates agree, or six bursts gave a
    /// rate, or twelve were sent.
    pub(super) fn are_sure(&self) -> bool {
        let are_alike = self.best.iter().all(|kbps| *kbps > 0 && !is_less(*kbps, self.best[0]));
        are_alike || self.told >= TOLD_MAX || self.begun >= 2 * TOLD_MAX
    }
}

/// Whether one rate is lower than another by more than 7 %, which is the variation of bursts over
/// an idle path.
pub(super) fn is_less(kbps: u32, than: u32) -> bool {
    u64::from(kbps) * 100 < u64::from(than) * 93
}

/// This many rates that agree are trusted.
const ALIKE: usize = 3;
/// After this many rates no more bursts are needed, even if the rates do not agree.
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
