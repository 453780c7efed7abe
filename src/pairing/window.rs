//! How long an invitation lasts: until its time is over, enough machines have the key, or the code
//! was wrong too often.

use derive_more::Display;

/// The counters of one invitation. Times are milliseconds on the caller's clock.
#[derive(Debug)]
pub struct Window {
    ends_ms: u64,
    machines: usize,
    /// Exchanges in which the joiner has proven the code, and has not answered yet.
    under_way: usize,
    wrong: u32,
}

/// Why an invitation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum InvitationEnd {
    /// As many machines as were invited have the key.
    #[display("all invited machines are in")]
    Used,
    /// Its time is over.
    #[display("its time is over")]
    Expired,
    /// The code was wrong three times.
    #[display("the code was wrong three times")]
    WrongCodes,
    /// The operating system takes no more connections at the port.
    #[display("its port takes no connections any more")]
    PortLost,
}

/// The state of an invitation when a confirmation has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The code is right, and there is a place: the key may be sent. The place is taken until
    /// [`Window::took`] or [`Window::declined`].
    Admitted,
    /// The code is wrong; so many more wrong ones end the invitation.
    Wrong {
        /// The number.
        left: u32,
    },
    /// The invitation has ended, or its last place is about to be taken. The confirmation was not
    /// looked at.
    Over,
}

impl Window {
    /// Wrong codes that end an invitation: two typing errors are allowed. Three guesses at eight
    /// digits succeed with a probability of 3 in 100,000,000.
    pub const WRONG_MAX: u32 = 3;

    /// An invitation for so many machines.
    pub fn open(now_ms: u64, lasts_ms: u64, machines: usize) -> Window {
        Window { ends_ms: now_ms.saturating_add(lasts_ms), machines, under_way: 0, wrong: 0 }
    }

    /// Has `is_right` look at a confirmation, if the invitation still stands. No two are looked at
    /// at the same time, so guesses made side by side are counted like others.
    pub fn judge(&mut self, now_ms: u64, is_right: impl FnOnce() -> bool) -> Verdict {
        if self.end(now_ms).is_some() || self.under_way >= self.machines {
            return Verdict::Over;
        }
        if is_right() {
            self.under_way += 1;
            return Verdict::Admitted;
        }
        self.wrong += 1;
        Verdict::Wrong { left: Window::WRONG_MAX - self.wrong }
    }

    /// A machine that was admitted has the key, or may have it; returns how many more may come.
    pub fn took(&mut self) -> usize {
        self.under_way = self.under_way.saturating_sub(1);
        self.machines = self.machines.saturating_sub(1);
        self.machines
    }

    /// A machine that was admitted says that it has not kept the key: its place is free again.
    pub fn declined(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Whether the invitation has ended, and why.
    pub fn end(&self, now_ms: u64) -> Option<InvitationEnd> {
        if self.machines == 0 {
            Some(InvitationEnd::Used)
        } else if self.wrong >= Window::WRONG_MAX {
            Some(InvitationEnd::WrongCodes)
        } else {
            (now_ms >= self.ends_ms).then_some(InvitationEnd::Expired)
        }
    }

    /// Whether an admitted machine has not answered yet.
    pub fn is_busy(&self) -> bool {
        self.under_way > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_wrong_codes_end_it_and_a_right_one_then_too_late() {
        let mut window = Window::open(0, 1000, 2);
        for left in [2, 1, 0] {
            assert_eq!(window.end(999), None);
            assert_eq!(window.judge(5, || false), Verdict::Wrong { left });
        }
        assert_eq!(window.end(6), Some(InvitationEnd::WrongCodes));
        assert_eq!(window.judge(6, || panic!("it was looked at")), Verdict::Over);
    }

    #[test]
    fn a_right_code_between_wrong_ones_forgives_none() {
        let mut window = Window::open(0, 1000, 9);
        for round in 0..3 {
            assert_eq!(window.judge(0, || true), Verdict::Admitted);
            assert_eq!(window.took(), 8 - round);
            assert!(matches!(window.judge(0, || false), Verdict::Wrong { .. }));
        }
        assert_eq!(window.end(0), Some(InvitationEnd::WrongCodes));
    }

    #[test]
    fn it_ends_with_its_time() {
        let mut window = Window::open(500, 1000, 1);
        assert_eq!((window.end(1499), window.end(1500)), (None, Some(InvitationEnd::Expired)));
        assert_eq!(window.judge(1500, || panic!("it was looked at")), Verdict::Over);
        assert_eq!(Window::open(5, u64::MAX, 1).end(u64::MAX - 1), None);
    }

    #[test]
    fn each_machine_takes_one_place() {
        let mut window = Window::open(0, 1000, 2);
        assert_eq!(
            (window.judge(0, || true), window.judge(0, || true)),
            (Verdict::Admitted, Verdict::Admitted)
        );
        assert_eq!(window.judge(0, || panic!("both places are about to be taken")), Verdict::Over);
        window.declined();
        assert_eq!((window.took(), window.is_busy(), window.end(0)), (1, false, None));
        assert_eq!(window.judge(0, || true), Verdict::Admitted);
        assert_eq!((window.took(), window.end(0)), (0, Some(InvitationEnd::Used)));
        assert_eq!(window.judge(0, || panic!("it was looked at")), Verdict::Over);
    }

    #[test]
    fn machines_that_came_count_before_the_time() {
        let mut window = Window::open(0, 1000, 1);
        assert_eq!(window.judge(999, || true), Verdict::Admitted);
        assert!(window.is_busy() && window.end(2000) == Some(InvitationEnd::Expired));
        window.took();
        assert_eq!(window.end(2000), Some(InvitationEnd::Used));
    }
}
