//! When a node stores the rates of paths for its next start.

/// Whether rates are known that are not stored yet. Times are in milliseconds.
#[derive(Default)]
pub(super) struct KeptPaths {
    /// When they are stored; `None` if all are.
    due: Option<u64>,
}

/// Rates come in groups, and a group is stored at once.
const AFTER_MS: u64 = 2_000;

impl KeptPaths {
    /// Something new is known.
    pub(super) fn note(&mut self, now: u64) {
        self.due.get_or_insert(now + AFTER_MS);
    }

    /// Whether they are stored now.
    pub(super) fn takes(&mut self, now: u64) -> bool {
        self.due.take_if(|due| now >= *due).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_come_together_are_stored_once() {
        let mut kept = KeptPaths::default();
        assert!(!kept.takes(u64::MAX), "there is nothing new");
        kept.note(1_000);
        kept.note(2_500);
        assert!(!kept.takes(2_999) && kept.takes(3_000) && !kept.takes(9_000));
        kept.note(9_000);
        assert!(kept.takes(20_000));
    }
}
