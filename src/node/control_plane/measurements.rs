//! The measurement of the paths of one View.

use crate::node::data_link::{Bursts, Traffic};
use crate::protocol::{Manner, Rank, Turn};
use crate::topology::{Pair, Probe, Survey};
use std::collections::BTreeMap;
use std::time::Duration;

/// Measurement of the paths of the installed View.
#[derive(Default)]
pub(super) struct Rates {
    pub(super) bursts: BTreeMap<Rank, Bursts>,
    pub(super) traffic: Traffic,
    /// On rank 0 only.
    pub(super) survey: Option<Survey>,
    /// How often all paths were measured again in this View.
    pub(super) surveys: u32,
    /// How often a path was measured again within that survey.
    pub(super) again: BTreeMap<Pair, u32>,
    /// When a member last wished for a measurement of a path, in milliseconds.
    pub(super) wished: BTreeMap<Pair, u64>,
    /// A member wished for a measurement that is not done yet.
    is_wished: bool,
    /// The turn of the last rate of a path.
    pub(super) seen_in: BTreeMap<Pair, Turn>,
    /// The peers that this node was asked to measure, in which turn, and how.
    pub(super) asked: BTreeMap<Rank, (Turn, Manner)>,
    /// All members have been told which ports share a medium.
    pub(super) stations_told: bool,
    /// Total duration of the reductions since the last spare burst.
    served: Duration,
}

impl Rates {
    pub(super) fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// Uses these bursts to measure the data link with a peer.
    pub(super) fn measure_over(&mut self, peer: Rank, bursts: Bursts) {
        self.bursts.insert(peer, bursts);
    }

    /// Whether a member reported a changed path that is not measured yet.
    pub(super) fn is_wished(&self) -> bool {
        self.is_wished && self.survey.as_ref().is_some_and(|survey| !survey.is_over())
    }

    /// The turn of the path's current measurement.
    pub(super) fn turn_of(&self, pair: Pair) -> Turn {
        Turn { survey: self.surveys, path: self.again.get(&pair).copied().unwrap_or(0) }
    }

    /// Measures a path again in both directions, because it has changed.
    pub(super) fn measure_again(&mut self, (from, to): Pair) {
        for pair in [(from, to), (to, from)] {
            let again = self.again.entry(pair).or_default();
            *again = again.saturating_add(1);
            if let Some(survey) = &mut self.survey {
                survey.again(pair);
            }
        }
        self.is_wished = true;
        self.stations_told = false;
    }

    /// Calls are held: no operation interrupts bursts from now on.
    pub(super) fn calls_are_held(&mut self, now: u64) {
        if let Some(survey) = &mut self.survey {
            survey.is_undisturbed(now);
        }
    }

    /// Adds the duration of reductions.
    pub(super) fn note_served(&mut self, took: Duration) {
        self.served = self.served.saturating_add(took);
    }

    /// The next path to be measured, with its turn. With `may_spare` this may be a path whose rate
    /// is known, if [`SPARE_AFTER`] has passed.
    pub(super) fn next(
        &mut self,
        now: u64,
        is_quiet: bool,
        may_spare: bool,
    ) -> Option<(Probe, Turn)> {
        let survey = self.survey.as_mut()?;
        survey.tick(now);
        let probe = if is_quiet { survey.begin(now) } else { None };
        let probe = probe.or_else(|| {
            let is_time = is_quiet && may_spare && self.served >= SPARE_AFTER;
            let spare = if is_time { survey.begin_spare(now) } else { None }?;
            self.served = Duration::ZERO;
            Some(spare)
        })?;
        // Both directions of a pair have the same count.
        let (Probe::Alone(pair) | Probe::Together(pair) | Probe::Spare(pair)) = probe;
        let path = self.again.get(&pair).copied().unwrap_or(0);
        Some((probe, Turn { survey: self.surveys, path }))
    }
}

/// Total duration of reductions after which a known path is measured again. A burst takes half a
/// second at most, so this costs a sixtieth of the time.
pub(super) const SPARE_AFTER: Duration = Duration::from_secs(30);
