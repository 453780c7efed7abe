//! The order in which the paths of a View are measured. Only one measurement runs at a time, so
//! that no two disturb each other, and only while no collective is under way.
//!
//! A path carries the rate of the slower of its two ports. A burst can show a rate that is too low
//! but never one that is too high. So a survey goes through these phases:
//!
//! 1. Every rank sends a burst to the next one, and then each member and the fastest one send a
//!    burst to each other. Now each port has been measured against one that is no slower.
//! 2. Doubtful paths are repeated until they are trusted ([`Tries`]): those that carried less than
//!    both their ports can, or less than their reverse path. Bad luck may be the reason. Once no
//!    doubt is left the rates are good for a plan.
//! 3. All other paths, because a fast cable may be among them; again the doubtful ones; and the
//!    paths whose rates are of an earlier run of this node.
//! 4. If the members' rates differ, pairs send bursts in both directions at once, which shows the
//!    ports that share a medium.
//! 5. Paths without a common port are measured together, which shows the segments that they share.
//!
//! Operations show that a path has become slower. Nothing shows that it has become faster, or was
//! measured at a bad moment. So [spare bursts](Survey::begin_spare) repeat known paths now and then
//! when all phases are over. If a path then carries more than before, the slower paths beside it
//! are measured again.

#[cfg(test)]
mod tests;

use super::division::Division;
use super::media::{Alone, Media};
use super::pair::Pair;
use super::segment_search::SegmentSearch;
use super::tries::{Tries, is_less};
use crate::protocol::{Rank, RankSet, rank_pairs, ranks};
use std::collections::{BTreeMap, BTreeSet};

/// The next measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A burst in one direction.
    Alone(Pair),
    /// Bursts over several paths at once: over the two directions between two members, which is
    /// called an exchange, or over paths without a common sender or receiver.
    Together(Vec<Pair>),
    /// A burst over a path that was already measured.
    Spare(Pair),
}

/// The measuring of one View, as led by rank 0. Times are in milliseconds and monotonic.
#[derive(Clone, Debug)]
pub struct Survey {
    size: usize,
    rates: BTreeMap<Pair, u32>,
    /// The bursts of this survey, by path.
    tries: BTreeMap<Pair, Tries>,
    /// The number of bursts that gave a rate.
    rates_measured: u64,
    /// All pairs have a direct link.
    is_mesh: bool,
    /// The measurement under way and its start; of one over several paths, `came` holds the results
    /// so far.
    under_way: Option<(Probe, u64)>,
    came: BTreeMap<Pair, u32>,
    media: Media,
    segments: SegmentSearch,
    /// Segments are searched.
    finds_segments: bool,
    /// Paths whose known rates are of an earlier run of this node.
    recalled: BTreeSet<Pair>,
    /// Ranks whose ports are known to share a medium.
    radios: BTreeSet<Rank>,
    /// No measurement begins before this time.
    rest_until: u64,
    /// The number of consecutive bursts without a rate.
    in_vain: u32,
    /// The number of spare bursts, by path.
    spared: BTreeMap<Pair, u32>,
    /// A spare burst that was not answered in time; its rate may still come.
    late_spare: Option<Pair>,
    /// A spare burst has shown a higher rate than was known.
    has_risen: bool,
}

impl Survey {
    /// A survey for `size` members; `known` returns the rates that are known already, in kbit/s.
    pub fn new(size: usize, known: impl Fn(Pair) -> Option<u32>) -> Survey {
        let rates = rank_pairs(size).filter_map(|pair| Some((pair, known(pair)?))).collect();
        let (tries, radios) = (BTreeMap::new(), BTreeSet::new());
        Survey {
            size,
            rates,
            tries,
            rates_measured: 0,
            is_mesh: true,
            under_way: None,
            came: BTreeMap::new(),
            media: Media::default(),
            segments: SegmentSearch::default(),
            finds_segments: true,
            recalled: BTreeSet::new(),
            radios,
            rest_until: 0,
            in_vain: 0,
            spared: BTreeMap::new(),
            late_spare: None,
            has_risen: false,
        }
    }

    /// The same survey if these pairs have no direct link. Then each path may have ports of its
    /// own, so all are measured before a plan is made.
    #[must_use]
    pub fn without(mut self, no_direct_link: &[Pair]) -> Survey {
        self.is_mesh = no_direct_link.is_empty();
        no_direct_link
            .iter()
            .flat_map(|(a, b)| [(*a, *b), (*b, *a)])
            .for_each(|pair| self.leave(pair));
        self
    }

    /// The same survey if the segments between these members are known.
    #[must_use]
    pub fn with_known_segments(mut self) -> Survey {
        self.finds_segments = false;
        self
    }

    /// The same survey if the known rates of these paths are of an earlier run of this node. They
    /// are good for a plan, and are measured again after all others.
    #[must_use]
    pub fn with_recalled(mut self, pairs: impl Iterator<Item = Pair>) -> Survey {
        self.recalled = pairs.collect();
        self
    }

    /// Starts the next measurement; to be called only while no collective is under way. `None`
    /// while a measurement is under way, during a back-off, or if none is left.
    pub fn begin(&mut self, now: u64) -> Option<Probe> {
        if self.under_way.is_some() || now < self.rest_until {
            return None;
        }
        let probe = self.wanted()?;
        match &probe {
            Probe::Alone(pair) => self.tries.entry(*pair).or_default().begin(),
            Probe::Spare(_) => {}
            Probe::Together(_) => {
                let alone = Alone { size: self.size, rates: &self.rates, radios: &self.radios };
                self.media.begin(alone);
                self.came.clear();
            }
        }
        self.under_way = Some((probe.clone(), now));
        Some(probe)
    }

    /// Starts a spare burst over a path that may have become faster. The paths take turns, the
    /// slowest first. Radios are left out, because their rates vary all the time. `None` while
    /// anything else is under way or left to be measured, or during a back-off.
    pub fn begin_spare(&mut self, now: u64) -> Option<Probe> {
        if self.under_way.is_some() || now < self.rest_until || self.wanted().is_some() {
            return None;
        }
        let stations: BTreeSet<Rank> =
            self.stations().into_iter().map(|((rank, _), _)| rank).collect();
        let is_station = |pair: &Pair| stations.contains(&pair.0) || stations.contains(&pair.1);
        let is_wire = |pair: &Pair| {
            !self.is_by_radio(*pair) && !is_station(pair) && !self.tries(*pair).are_over()
        };
        let spared = |pair: &Pair| self.spared.get(pair).copied().unwrap_or(0);
        let known = self.rates.iter().filter(|(pair, _)| is_wire(pair));
        let (pair, _) = known.min_by_key(|(pair, kbps)| (spared(pair), **kbps, **pair))?;
        let (pair, probe) = (*pair, Probe::Spare(*pair));
        *self.spared.entry(pair).or_default() += 1;
        self.under_way = Some((probe.clone(), now));
        Some(probe)
    }

    /// Whether a spare burst has shown a higher rate than was known since the last call of this
    /// method.
    pub fn has_risen(&mut self) -> bool {
        std::mem::take(&mut self.has_risen)
    }

    /// Records that the port of this rank is known to share a medium.
    pub fn is_radio(&mut self, rank: Rank) {
        self.radios.insert(rank);
    }

    /// Handles the result of a burst: a rate in kbit/s, or 0 if the burst gave none. Returns
    /// whether it belongs to the measurement under way; a late rate counts all the same.
    pub fn on_rate(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let awaited = [Probe::Alone(pair), Probe::Spare(pair)];
        let ended = self
            .under_way
            .take_if(|(under_way, _)| awaited.contains(under_way))
            .map(|(probe, _)| probe);
        let is_late_spare =
            ended.is_none() && self.late_spare.take_if(|late| *late == pair).is_some();
        if kbps > 0 {
            self.rates_measured += 1;
            self.in_vain = 0;
            if is_late_spare || ended == Some(Probe::Spare(pair)) {
                self.on_spare(pair, kbps);
                return ended.is_some();
            }
            let tries = self.tries.entry(pair).or_default();
            // The first rate of this survey replaces an older one, even a higher one. After that
            // the maximum counts: a burst can show too little but never too much.
            let seen = tries.most().and(self.rates.get(&pair).copied());
            tries.tell(kbps);
            self.rates.insert(pair, kbps.max(seen.unwrap_or(0)));
        } else if ended.is_some() {
            self.rest(now);
        }
        ended.is_some()
    }

    /// Doubles the back-off after each consecutive burst without a rate, usually because an
    /// operation interrupted it. Otherwise a busy group would soon use up all attempts of a path.
    fn rest(&mut self, now: u64) {
        self.rest_until = now + (REST_MS << self.in_vain.min(RESTS_DOUBLE));
        self.in_vain = self.in_vain.saturating_add(1);
    }

    /// Shortens the back-off: from now on no operation interrupts.
    pub fn is_undisturbed(&mut self, now: u64) {
        self.in_vain = 0;
        self.rest_until = self.rest_until.min(now + REST_MS);
    }

    /// Handles a rate from a spare burst. If the path has become faster, either of its machines may
    /// have a new cable. So all slower paths from or to them are measured again.
    fn on_spare(&mut self, pair: Pair, kbps: u32) {
        let known = self.rates.entry(pair).or_default();
        let has_risen = is_less(*known, kbps);
        *known = kbps.max(*known);
        if has_risen {
            let is_beside = |other: &Pair| {
                [other.0, other.1].iter().any(|end| *end == pair.0 || *end == pair.1)
            };
            let is_doubtful = |other: &Pair, rate: u32| {
                is_beside(other) && is_less(rate, kbps) && !self.tries(*other).are_over()
            };
            let slower = self
                .rates
                .iter()
                .filter(|(other, rate)| is_doubtful(other, **rate))
                .map(|(other, _)| *other);
            slower.collect::<Vec<Pair>>().into_iter().for_each(|other| self.again(other));
            // This burst, too, may have shown too little: the earlier ones count no more.
            if !self.tries(pair).are_over() {
                let mut tries = Tries::default();
                tries.begin();
                tries.tell(kbps);
                self.tries.insert(pair, tries);
            }
            self.media.forget(pair);
            self.search_again();
            self.has_risen = true;
        }
    }

    /// Handles the result of one of several bursts that run together: a rate in kbit/s, or 0.
    /// Returns whether all of them have now reported.
    pub fn on_rate_together(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let Some((Probe::Together(pairs), _)) = &self.under_way else { return false };
        if !pairs.contains(&pair) {
            return false;
        }
        self.came.insert(pair, kbps);
        let are_all = self.came.len() == pairs.len();
        if are_all {
            self.end_together(now);
        }
        are_all
    }

    /// Ends the bursts that run together. Those that have not reported gave no rate.
    fn end_together(&mut self, now: u64) {
        let Some((Probe::Together(pairs), _)) = self.under_way.take() else { return };
        let mut came = std::mem::take(&mut self.came);
        pairs.iter().for_each(|pair| {
            came.entry(*pair).or_insert(0);
        });
        if came.values().any(|kbps| *kbps == 0) {
            self.rest(now);
        } else {
            self.in_vain = 0;
        }
        match pairs[..] {
            [(a, b), (c, d)] if (a, b) == (d, c) => {
                let [there, back] = [(a, b), (b, a)].map(|pair| came.get(&pair).copied());
                self.media.on_exchange((a, b), there.unwrap_or(0), back.unwrap_or(0));
            }
            _ => {
                let alone = Alone { size: self.size, rates: &self.rates, radios: &self.radios };
                self.segments.on_joint(alone, &came);
            }
        }
        // A burst can show too little but never too much.
        for (pair, kbps) in came {
            let Some(best) = self.rates.get_mut(&pair) else { continue };
            let has_risen = is_less(*best, kbps);
            *best = kbps.max(*best);
            // The plan uses the rate of single bursts, so these must show it too.
            if has_risen && !self.tries(pair).are_over() {
                self.rates.remove(&pair);
                self.tries.remove(&pair);
            }
        }
    }

    /// The ports that share a medium, each with the number of its medium. A port is given as a
    /// path: it is the one through which the first rank sends to the second. Empty until the survey
    /// has finished all exchanges.
    ///
    /// A port behind a half-duplex segment is none of these, though its exchanges are half duplex.
    pub fn stations(&self) -> Vec<(Pair, u32)> {
        if !rank_pairs(self.size).all(|pair| self.is_done(pair)) || self.shared().is_some() {
            return Vec::new();
        }
        let mut stations = self.media.stations(self.alone());
        let segments = self.segments();
        stations.retain(|((rank, partner), _)| {
            !segments.iter().any(|segment| segment.is_half && segment.is_crossed(*rank, *partner))
        });
        stations
    }

    /// The segments that were found. Empty until the search is over.
    ///
    /// The air looks like a half-duplex segment that leads to the stations. But behind a segment
    /// there are faster paths, and between stations there are none.
    pub fn segments(&self) -> Vec<Division> {
        if !self.is_over() {
            return Vec::new();
        }
        let stations = self.media.stations(self.alone());
        let stations: RankSet = stations.into_iter().map(|((rank, _), _)| rank).collect();
        let mut found = self.segments.found(self.alone());
        found.retain(|division| !division.is_half || !self.is_air(division, stations));
        found
    }

    /// Whether one side consists of stations without a path that is faster than the segment.
    fn is_air(&self, division: &Division, stations: RankSet) -> bool {
        let most = division.kbps[0].max(division.kbps[1]);
        let is_faster = |a: Rank, b: Rank| {
            self.rates.get(&(a, b)).is_some_and(|kbps| u64::from(*kbps) * 4 > u64::from(most) * 5)
        };
        let is_air = |side: &RankSet| {
            let inside = |a| side.iter().any(|b| a != b && is_faster(a, b));
            side.iter().all(|rank| stations.contains(rank)) && !side.iter().any(inside)
        };
        division.sides.iter().any(is_air)
    }

    /// Whether this survey searches segments.
    pub fn finds_segments(&self) -> bool {
        self.finds_segments
    }

    /// Discards the found segments, because a path has changed, and searches again.
    fn search_again(&mut self) {
        self.segments = SegmentSearch::default();
        self.finds_segments = true;
    }

    fn alone(&self) -> Alone<'_> {
        Alone { size: self.size, rates: &self.rates, radios: &self.radios }
    }

    /// Discards everything measured of a path, including exchanges over it, so that it is measured
    /// again.
    pub fn again(&mut self, pair: Pair) {
        self.rates.remove(&pair);
        self.tries.remove(&pair);
        self.media.forget(pair);
        self.search_again();
    }

    /// Gives up a path that cannot be measured.
    pub fn leave(&mut self, pair: Pair) {
        self.under_way.take_if(|(under_way, _)| *under_way == Probe::Alone(pair));
        self.tries.insert(pair, Tries::LEFT);
    }

    /// Ends a measurement that was not answered in time.
    pub fn tick(&mut self, now: u64) {
        match self.under_way.take_if(|(_, since)| now >= *since + PATIENCE_MS) {
            Some((together @ Probe::Together(_), since)) => {
                self.under_way = Some((together, since));
                self.end_together(now);
            }
            Some((Probe::Alone(_), _)) => self.rest(now),
            Some((Probe::Spare(pair), _)) => {
                self.late_spare = Some(pair);
                self.rest(now);
            }
            None => {}
        }
    }

    /// Whether every port has been measured against one that is no slower, as far as possible.
    /// Without a full mesh, all paths must have been measured.
    pub fn knows_the_ports(&self) -> bool {
        let all = || self.is_mesh || rank_pairs(self.size).all(|pair| self.is_done(pair));
        self.of_the_ports().all(|pair| self.is_done(pair)) && all()
    }

    /// The same, and none of the paths measured in this survey is doubtful. Rates of an earlier
    /// View do not delay a plan, and neither do radios, whose bursts need not agree.
    pub fn is_good_for_a_plan(&self) -> bool {
        let is_seen_now =
            |pair: &Pair| self.tries(*pair).most().is_some() && !self.is_by_radio(*pair);
        self.knows_the_ports() && !self.doubtful().iter().any(is_seen_now)
    }

    /// The number of bursts that gave a rate.
    pub fn rates_measured(&self) -> u64 {
        self.rates_measured
    }

    /// Whether nothing but spare bursts is left to be measured.
    pub fn is_over(&self) -> bool {
        self.under_way.as_ref().is_none_or(|(probe, _)| matches!(probe, Probe::Spare(_)))
            && self.wanted().is_none()
    }

    fn wanted(&self) -> Option<Probe> {
        let open = |pair: &Pair| !self.is_done(*pair);
        // The fastest member is known after all ranks have sent once.
        let ports = self.of_the_ports().find(open).or_else(|| self.doubtful().first().copied());
        // An exchange is compared with the single bursts of the same pair, so these come first, and
        // doubtful ones are repeated before it.
        ports
            .or_else(|| rank_pairs(self.size).find(open))
            .or_else(|| rank_pairs(self.size).find(|pair| self.is_unconfirmed(*pair)))
            .map(Probe::Alone)
            .or_else(|| self.shared_or_unsure())
            .or_else(|| self.joint())
    }

    /// The next paths to be measured together.
    fn joint(&self) -> Option<Probe> {
        let paths = if self.finds_segments { self.segments.wanted(self.alone()) } else { None };
        paths.map(Probe::Together)
    }

    /// The next exchange, or a single burst that must come before it. If the rate of a single burst
    /// is too low, an exchange seems to be full duplex.
    fn shared_or_unsure(&self) -> Option<Probe> {
        let (a, b) = self.shared()?;
        let unsure = [(a, b), (b, a)].into_iter().find(|pair| !self.tries(*pair).are_some());
        Some(unsure.map_or_else(|| Probe::Together(vec![(a, b), (b, a)]), Probe::Alone))
    }

    /// The next pair whose exchange helps to find shared media. Among two members it would change
    /// nothing.
    fn shared(&self) -> Option<Pair> {
        if self.size > 2 { self.media.wanted(self.alone()) } else { None }
    }

    fn is_done(&self, pair: Pair) -> bool {
        self.rates.contains_key(&pair) || self.tries(pair).are_over()
    }

    /// Whether the path's rate is of an earlier run, and was not measured since.
    fn is_unconfirmed(&self, pair: Pair) -> bool {
        let tries = self.tries(pair);
        self.recalled.contains(&pair) && !tries.are_over() && tries.most().is_none()
    }

    fn tries(&self, pair: Pair) -> Tries {
        self.tries.get(&pair).copied().unwrap_or_default()
    }

    fn is_by_radio(&self, (from, to): Pair) -> bool {
        self.radios.contains(&from) || self.radios.contains(&to)
    }

    /// The paths that together show each port against one that is no slower. The ring comes first,
    /// because it shows the fastest member.
    fn of_the_ports(&self) -> impl Iterator<Item = Pair> + '_ {
        self.round().chain(self.spokes())
    }

    fn round(&self) -> impl Iterator<Item = Pair> + '_ {
        let next = |rank: Rank| Rank(((rank.index() + 1) % self.size) as u8);
        ranks(self.size).map(move |rank| (rank, next(rank))).filter(|(a, b)| a != b)
    }

    /// The paths from and to the hub, the sender of the fastest path.
    fn spokes(&self) -> impl Iterator<Item = Pair> + '_ {
        let fastest =
            self.rates.iter().max_by_key(|(pair, kbps)| (**kbps, std::cmp::Reverse(**pair)));
        let hub = fastest.map_or(Rank(0), |((from, _), _)| *from);
        ranks(self.size)
            .filter(move |rank| *rank != hub)
            .flat_map(move |rank| [(rank, hub), (hub, rank)])
    }

    /// The doubtful paths: they carried less than their ends have sent and received elsewhere, or
    /// less than their reverse path, and are not trusted yet.
    fn doubtful(&self) -> Vec<Pair> {
        let (mut sent, mut received) = (vec![0; self.size], vec![0; self.size]);
        for ((from, to), kbps) in &self.rates {
            let (sent, received) = (&mut sent[from.index()], &mut received[to.index()]);
            (*sent, *received) = ((*sent).max(*kbps), (*received).max(*kbps));
        }
        let is_low = |pair: Pair, kbps: u32| {
            // An exchange may have shown more than the single bursts, but the plan uses the rate of
            // single bursts.
            let alone = self.tries(pair).most().unwrap_or(kbps);
            let back = self.rates.get(&(pair.1, pair.0)).copied().unwrap_or(0);
            is_less(alone, sent[pair.0.index()].min(received[pair.1.index()]).max(back).max(kbps))
        };
        let low =
            self.rates.iter().filter(|(pair, kbps)| is_low(**pair, **kbps)).map(|(pair, _)| *pair);
        low.filter(|pair| !self.is_believed(*pair)).collect()
    }

    /// Whether more bursts over this path would show nothing new.
    fn is_believed(&self, pair: Pair) -> bool {
        let tries = self.tries(pair);
        tries.are_sure() || self.is_by_radio(pair) && tries.are_some()
    }
}

/// A burst takes a tenth of a second, on a slow path half a second. After this time the peer is
/// taken not to answer.
const PATIENCE_MS: u64 = 3000;
/// The shortest back-off after a burst without a rate, usually because of an operation.
const REST_MS: u64 = 200;
/// The back-off doubles at most this many times, up to 6.4 s.
const RESTS_DOUBLE: u32 = 5;
