//! The measurement of the rates of the View's paths: which path is due, and the results.

use super::coding_speed;
use super::data_link::{Bursts, Traffic};
use crate::identity::{MemberId, NodeId};
use crate::os::InterfaceKind;
use crate::protocol::{Manner, Rank, RateStep, Turn, View, rank_pairs};
use crate::topology::{LinkMap, Pair, Port, Probe, Survey};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

/// Total duration of reductions after which a known path is measured again. A burst takes half a
/// second at most, so this costs a thirtieth of the time.
const SPARE_AFTER: Duration = Duration::from_secs(30);
/// Spare bursts that may be sent then, after the survey's back-off, until one gives a rate: an
/// operation may interrupt them.
const SPARES: u32 = 2;
/// Minimum interval between two wishes for one pair; earlier ones are ignored.
const WISHES_APART_MS: u64 = 1_000;
/// Highest reported rate. Above it the rate depends on processors more than on wires, and varies at
/// random.
const KBPS_MAX: u32 = 8_000_000;

/// Measurement of the paths of the installed View.
#[derive(Default)]
pub(super) struct Rates {
    bursts: BTreeMap<Rank, Bursts>,
    traffic: Traffic,
    /// On rank 0 only.
    survey: Option<Survey>,
    /// How often all paths were measured again in this View.
    surveys: u32,
    /// How often a path was measured again within that survey.
    again: BTreeMap<Pair, u32>,
    /// When a member last wished for a measurement of a path, in milliseconds.
    wished: BTreeMap<Pair, u64>,
    /// A member wished for a measurement that is not done yet.
    is_wished: bool,
    /// The turn of the last rate of a path.
    seen_in: BTreeMap<Pair, Turn>,
    /// The peers that this node was asked to measure, in which turn, and how.
    asked: BTreeMap<Rank, (Turn, Manner)>,
    /// All members have been told which ports share a medium, and which segments there are.
    shares_told: bool,
    /// Total duration of the reductions since the last spare burst that gave a rate, or the last
    /// of [`SPARES`].
    served: Duration,
    /// The spare bursts without a rate since then.
    spares: u32,
}

/// A rate of a path, as a member reports it.
#[derive(Clone, Copy)]
pub(super) struct Rated {
    pub(super) pair: Pair,
    pub(super) port: Port,
    pub(super) kbps: u32,
    pub(super) turn: Turn,
    pub(super) manner: Manner,
}

/// The meaning of a reported rate for the search for a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// A known rate has risen: another plan may be better.
    pub(super) has_risen: bool,
    /// The rate was waited for.
    pub(super) was_awaited: bool,
}

impl Rates {
    // The bursts of this node.

    /// Counts the operations of this node and their frames, which disturb bursts.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Uses these bursts to measure the data link with a peer.
    pub(super) fn measure_over(&mut self, peer: Rank, bursts: Bursts) {
        self.bursts.insert(peer, bursts);
    }

    /// The bursts over the data link with a peer.
    pub(super) fn bursts_to(&self, peer: Rank) -> Option<&Bursts> {
        self.bursts.get(&peer)
    }

    /// Rank 0 asks for a measurement of the path to this peer.
    pub(super) fn ask(&mut self, to: Rank, turn: Turn, manner: Manner) {
        self.asked.insert(to, (turn, manner));
    }

    /// Whether this node's burst to the peer runs together with others.
    pub(super) fn is_together(&self, peer: Rank) -> bool {
        self.asked.get(&peer).is_some_and(|(_, manner)| *manner == Manner::Together)
    }

    /// The report of the rate of this node's path to a peer, as it was asked for.
    pub(super) fn report(&self, to: Rank, port: Port, kbps: u32) -> RateStep {
        let (turn, manner) = self.asked.get(&to).copied().unwrap_or_default();
        // A path through memory is not measured.
        let kbps = if is_measured(port) { kbps.min(KBPS_MAX) } else { kbps };
        rated(to, port, kbps, turn, manner)
    }

    /// The reports of the rates of this node's paths, for a member that was not there when they
    /// were sent.
    pub(super) fn reports(&self, me: Rank, view: &View, links: &LinkMap) -> Vec<RateStep> {
        let order = members(view);
        let known = |peer: Rank| {
            let path = links.path(order[me.index()], order[peer.index()])?;
            let here = self.seen_in.get(&(me, peer));
            let (turn, manner) =
                here.map_or((Turn::default(), Manner::Before), |turn| (*turn, Manner::Alone));
            Some(rated(peer, path.port, path.rate_kbps?.get(), turn, manner))
        };
        view.ranks().filter_map(known).collect()
    }

    // The survey, on rank 0.

    pub(super) fn survey(&self) -> Option<&Survey> {
        self.survey.as_ref()
    }

    /// Whether the data links with so many peers stand.
    pub(super) fn has_links_with(&self, peers: usize) -> bool {
        self.bursts.len() >= peers
    }

    /// Starts the survey with the rates known from earlier Views, if it has not started.
    pub(super) fn begin_survey(&mut self, view: &View, links: &LinkMap) {
        if self.survey.is_some() {
            return;
        }
        let order = members(view);
        let known = |(from, to): Pair| {
            links.path(order[from.index()], order[to.index()])?.rate_kbps.map(NonZeroU32::get)
        };
        let mut survey = Survey::new(view.size(), known).without(&view.no_direct_link);
        let is_recalled = |(from, to): &Pair| {
            let path = links.path(order[from.index()], order[to.index()]);
            path.is_some_and(|path| path.is_recalled && is_measured(path.port))
        };
        let recalled: Vec<Pair> = rank_pairs(view.size()).filter(is_recalled).collect();
        // With the rates of an earlier run, shared segments are measured again, too.
        if recalled.is_empty() && links.are_segments_known(&order) {
            survey = survey.with_known_segments();
        }
        survey = survey.with_recalled(recalled.into_iter());
        for (rank, from) in view.ranks().zip(&order) {
            let shares =
                |to: &MemberId| links.path(*from, *to).is_some_and(|path| path.port.cell.is_some());
            if order.iter().any(shares) {
                survey.is_radio(rank);
            }
        }
        self.survey = Some(survey);
    }

    /// Discards all rates of the View's paths, and measures them again.
    pub(super) fn survey_anew(&mut self, view: &View, links: &mut LinkMap) {
        self.surveys = self.surveys.saturating_add(1);
        links.forget_rates(&members(view));
        self.again.clear();
        self.survey = Some(Survey::new(view.size(), |_| None).without(&view.no_direct_link));
        self.shares_told = false;
    }

    /// Whether a member reported a changed path that is not measured yet.
    pub(super) fn is_wished(&self) -> bool {
        self.is_wished && self.survey.as_ref().is_some_and(|survey| !survey.is_over())
    }

    /// A member wishes for a measurement of a path. Returns whether it will be done.
    pub(super) fn wish(&mut self, now: u64, pair: Pair) -> bool {
        let lately = self.wished.get(&pair).is_some_and(|at| now < at + WISHES_APART_MS);
        if !lately {
            self.wished.insert(pair, now);
            self.measure_again(pair);
        }
        !lately
    }

    /// Measures a path again in both directions, because it has changed.
    fn measure_again(&mut self, (from, to): Pair) {
        for pair in [(from, to), (to, from)] {
            let again = self.again.entry(pair).or_default();
            *again = again.saturating_add(1);
            if let Some(survey) = &mut self.survey {
                survey.again(pair);
            }
        }
        self.is_wished = true;
        self.shares_told = false;
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

    /// The next paths to be measured, each with its turn. With `may_spare` this may be a path whose
    /// rate is known, if [`SPARE_AFTER`] has passed.
    pub(super) fn next(
        &mut self,
        now: u64,
        is_quiet: bool,
        may_spare: bool,
    ) -> Option<(Vec<(Pair, Turn)>, Manner)> {
        let survey = self.survey.as_mut()?;
        survey.tick(now);
        let probe = if is_quiet { survey.begin(now) } else { None };
        let probe = probe.or_else(|| {
            let is_time = is_quiet && may_spare && self.served >= SPARE_AFTER;
            let spare = if is_time { survey.begin_spare(now) } else { None }?;
            self.spares += 1;
            if self.spares == SPARES {
                (self.served, self.spares) = (Duration::ZERO, 0);
            }
            Some(spare)
        })?;
        let (pairs, manner) = match probe {
            Probe::Alone(pair) => (vec![pair], Manner::Alone),
            Probe::Spare(pair) => (vec![pair], Manner::Spare),
            Probe::Together(pairs) => (pairs, Manner::Together),
        };
        Some((pairs.into_iter().map(|pair| (pair, self.turn_of(pair))).collect(), manner))
    }

    /// The turn of the path's current measurement.
    fn turn_of(&self, pair: Pair) -> Turn {
        Turn { survey: self.surveys, path: self.again.get(&pair).copied().unwrap_or(0) }
    }

    // Reports of members.

    /// The rate of a path, measured together with others. Returns whether it was the last one that
    /// was waited for.
    pub(super) fn on_rate_together(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        self.survey.as_mut().is_some_and(|survey| survey.on_rate_together(now, pair, kbps))
    }

    /// The rate of a path, for the link map too. `None` if it does not count. `leads` on rank 0.
    pub(super) fn on_rate(
        &mut self,
        now: u64,
        leads: bool,
        view: &View,
        links: &mut LinkMap,
        rated: Rated,
    ) -> Option<News> {
        let Rated { pair, port, kbps, turn, manner } = rated;
        let (from, to) = (view.member(pair.0)?.id, view.member(pair.1)?.id);
        // Rank 0 counts the surveys itself, and accepts no higher number from others.
        let survey = if leads { turn.survey.min(self.surveys) } else { turn.survey };
        if survey > self.surveys {
            self.surveys = survey;
            links.forget_rates(&members(view));
        }
        if leads && turn < self.turn_of(pair) {
            // Requested before the path changed.
            return None;
        }
        if let Some(kbps) = NonZeroU32::new(kbps) {
            if manner == Manner::Spare {
                (self.served, self.spares) = (Duration::ZERO, 0);
            }
            // A burst may show too low a rate, never too high a one. So a repeated measurement in
            // the same turn, or a spare one, can only raise the rate of a port. Any other
            // measurement replaces the rate, because that is in doubt.
            let again = manner == Manner::Spare || self.seen_in.insert(pair, turn) == Some(turn);
            let before = links
                .path(from, to)
                .filter(|path| again && path.port.number == port.number)
                .and_then(|path| path.rate_kbps);
            links.rate(from, to, port, before.map_or(kbps, |before| before.max(kbps)));
        }
        let Some(survey) = &mut self.survey else { return Some(News::default()) };
        if !is_measured(port) {
            survey.leave(pair);
            return Some(News { has_risen: false, was_awaited: true });
        }
        if port.cell.is_some() {
            survey.is_radio(pair.0);
        }
        let was_awaited = survey.on_rate(now, pair, kbps) && kbps > 0;
        let has_risen = survey.has_risen();
        self.shares_told &= !has_risen;
        Some(News { has_risen, was_awaited })
    }

    /// The shared segments and media, once everything is measured; for all members, and only once.
    pub(super) fn take_shares(&mut self, view: &View, links: &LinkMap) -> Option<Vec<RateStep>> {
        let survey = self.survey.as_ref().filter(|survey| survey.is_over())?;
        if std::mem::replace(&mut self.shares_told, true) {
            return None;
        }
        if !survey.finds_segments() {
            // They are known from an earlier View.
            return Some(stations(survey, view, links).collect());
        }
        let segments = survey.segments().into_iter().map(|segment| {
            let ([near, far], [there_kbps, back_kbps]) = (segment.sides, segment.kbps);
            RateStep::Segment { near, far, there_kbps, back_kbps, is_half: segment.is_half }
        });
        let stations = stations(survey, view, links);
        Some(std::iter::once(RateStep::Searched).chain(stations).chain(segments).collect())
    }

    /// The same for a member that was not there when all others were told.
    pub(super) fn told_shares(&self, view: &View, links: &LinkMap) -> Vec<RateStep> {
        let Some(survey) = self.survey().filter(|_| self.shares_told) else { return Vec::new() };
        let segments = links.segments().iter().map(|segment| {
            let side = |side: &BTreeSet<NodeId>| {
                view.ranks()
                    .zip(&view.members)
                    .filter(|(_, m)| side.contains(&m.id.node))
                    .map(|(rank, _)| rank)
                    .collect()
            };
            let ([near, far], [there, back]) = (&segment.sides, segment.kbps);
            let (there_kbps, back_kbps) = (there.get(), back.get());
            let (near, far, is_half) = (side(near), side(far), segment.is_half);
            RateStep::Segment { near, far, there_kbps, back_kbps, is_half }
        });
        let stations = stations(survey, view, links);
        std::iter::once(RateStep::Searched).chain(stations).chain(segments).collect()
    }
}

fn stations<'a>(
    survey: &Survey,
    view: &View,
    links: &'a LinkMap,
) -> impl Iterator<Item = RateStep> + use<'a> {
    let order = members(view);
    survey.stations().into_iter().filter_map(move |((rank, partner), cell)| {
        let number = links.path(order[rank.index()], order[partner.index()])?.port.number;
        Some(RateStep::Shared { rank, number, cell })
    })
}

fn rated(to: Rank, port: Port, kbps: u32, turn: Turn, manner: Manner) -> RateStep {
    let (kind, number, coding) = (port.kind, port.number, coding_speed::known());
    RateStep::Rated { to, kind, number, kbps, turn, coding, manner }
}

/// Whether paths through this port are measured: loopback is not limited by a wire, and the medium
/// below a tunnel is unknown.
pub(super) fn is_measured(port: Port) -> bool {
    matches!(
        port.kind,
        InterfaceKind::Ethernet
            | InterfaceKind::Wifi
            | InterfaceKind::Thunderbolt
            | InterfaceKind::Bridge
    )
}

/// The members of the View, in rank order.
pub(super) fn members(view: &View) -> Vec<MemberId> {
    view.members.iter().map(|member| member.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{member_id, view_of};
    use crate::topology::Path;

    const RATE: NonZeroU32 = NonZeroU32::new(900_000).expect("not zero");

    fn ethernet() -> Port {
        Port::unmeasured(InterfaceKind::Ethernet, 1)
    }

    fn report(rates: &mut Rates, now: u64, pair: Pair, kbps: u32) {
        let (port, turn) = (ethernet(), Turn::default());
        let rated = Rated { pair, port, kbps, turn, manner: Manner::Spare };
        let _ = rates.on_rate(now, true, &view_of(2), &mut LinkMap::default(), rated);
    }

    /// The spare burst that begins now.
    fn spare(rates: &mut Rates, now: u64) -> Option<Pair> {
        let (paths, manner) = rates.next(now, true, true)?;
        assert_eq!((paths.len(), manner), (1, Manner::Spare));
        Some(paths[0].0)
    }

    /// An operation may interrupt a burst. One more follows in the next pause, not at once.
    #[test]
    fn half_a_minute_of_reductions_allows_a_spare_burst_and_one_in_place_of_a_vain_one() {
        let (mut rates, mut links) = (Rates::default(), LinkMap::default());
        for (from, to) in [(1, 2), (2, 1)] {
            let path = Path { port: ethernet(), rate_kbps: Some(RATE), ..Path::unmeasured(100) };
            links.observe(member_id(from), member_id(to), path);
        }
        rates.begin_survey(&view_of(2), &links);
        let mut now = 0;
        for gives_rates in [true, false, true] {
            assert_eq!(spare(&mut rates, now), None);
            rates.note_served(SPARE_AFTER);
            let first = spare(&mut rates, now).expect("it is due");
            report(&mut rates, now, first, if gives_rates { RATE.get() } else { 0 });
            assert_eq!(spare(&mut rates, now), None, "{gives_rates}");
            now += 60_000;
            if !gives_rates {
                let second = spare(&mut rates, now).expect("another chance");
                report(&mut rates, now, second, 0);
                now += 60_000;
            }
        }
    }
}
