//! The state of measuring and planning in one View.

use super::measurements::Rates;
use crate::collective::Revising;
use crate::protocol::{Plan, View};
use crate::report::Forecast;
use crate::topology::Watch;

/// Measuring and planning in the installed View.
pub(super) struct Planning {
    pub(super) rates: Rates,
    /// On rank 0: the change of the plan in progress.
    pub(super) change: Option<Change>,
    /// The highest revision used so far.
    pub(super) revision: u32,
    /// No operation was in flight at the last look.
    pub(super) was_idle: bool,
    /// The knowledge on which the last search for a plan was based.
    pub(super) looked: Looked,
    pub(super) forecasts: Vec<Forecast>,
    pub(super) watch: Watch,
    /// Some calls leave their codecs to the plan.
    pub(super) asked_for_codecs: bool,
    /// Calls are not held for measuring before this time, in milliseconds.
    pub(super) pause_from: u64,
}

/// A change of the plan.
pub(super) struct Change {
    pub(super) revising: Revising,
    /// The plan, if it is already known. Else calls are held until the links are measured.
    pub(super) plan: Option<Plan>,
    /// End of the measuring, in milliseconds. Extended while the signs change.
    pub(super) until: u64,
    /// Upper limit of `until`.
    pub(super) until_at_most: u64,
    /// The signs at the last look.
    pub(super) signs: Signs,
}

/// The state of the survey at the last search for a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Looked {
    #[default]
    Never,
    /// All ports were measured.
    AtThePorts,
    /// All paths were measured.
    AtThePaths,
}

impl Planning {
    /// For a View that is installed now.
    pub(super) fn of(view: Option<&View>, now: u64) -> Planning {
        Planning {
            rates: Rates::default(),
            change: None,
            revision: view.map_or(0, |view| view.plan.revision),
            was_idle: false,
            looked: Looked::Never,
            forecasts: Vec::new(),
            watch: Watch::new(now),
            asked_for_codecs: false,
            pause_from: now + BUSY_MS,
        }
    }

    /// Searches again, because new knowledge may give a better plan.
    pub(super) fn look_again(&mut self) {
        self.looked = Looked::Never;
    }

    pub(super) fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }
}

/// Signs of progress while calls are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Bytes received by this node.
    pub(super) received_bytes: u64,
    /// Undecided operations.
    pub(super) under_way: usize,
    /// Bursts that gave a rate.
    pub(super) bursts: u64,
}

/// A View that has sent `BUSY_BYTES`, and still has unmeasured links after this time, has no idle
/// moments.
pub(super) const BUSY_MS: u64 = 5_000;
