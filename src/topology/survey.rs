//! Layer: Core.
//!
//! Which path is measured next. One at a time, so that no two disturb each other, and only while
//! nothing else goes on.
//!
//! A path carries what the slower of its two ports does. So first everybody sends to the next rank,
//! then everybody exchanges a burst with the member that was seen to be the fastest: then each port
//! has been measured against one that is no slower, and the rates are good for a plan. The other
//! paths follow, because a cable may hide among them. A path that carried less than both its ports
//! can, or than the other way, is in doubt, as chance may have been to blame: it is tried again
//! until it is believed ([`Tries`]), before paths that nobody has looked at. At last members that
//! are not alike exchange bursts, which tells who shares a medium.
//!
//! A path that becomes slower is noticed by the operations over it, one that becomes faster by
//! nothing, nor one that was measured in a bad moment. So when all is known there are [bursts to
//! spare](Survey::begin_spare), now and then: a path that carries more than it was known for has
//! those beside it measured again.

#[cfg(test)]
mod tests;

use super::media::{Alone, Media};
use super::ranks;
use super::tries::{Tries, is_less};
use crate::view::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// From whom to whom.
pub type Pair = (Rank, Rank);

/// What is measured next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A burst one way.
    Alone(Pair),
    /// Bursts both ways at once.
    Together(Pair),
    /// A burst over a path that is known.
    Spare(Pair),
}

/// The measuring of one View, as rank 0 leads it. Time is in milliseconds and never goes back.
#[derive(Clone, Debug)]
pub struct Survey {
    size: usize,
    rates: BTreeMap<Pair, u32>,
    /// What the bursts of this survey have told.
    tries: BTreeMap<Pair, Tries>,
    /// How many of them have told something.
    told: u64,
    /// All have a direct link to all.
    is_mesh: bool,
    /// Since when what is measured, and of bursts both ways what has come.
    under_way: Option<(Probe, u64)>,
    came: [Option<u32>; 2],
    media: Media,
    /// Whose ports are known to share a medium.
    radios: BTreeSet<Rank>,
    /// Not before this time.
    rest_until: u64,
    /// Bursts in a row that told nothing.
    in_vain: u32,
    /// How many bursts to spare a path had.
    spared: BTreeMap<Pair, u32>,
    /// One of them has told that it carries more than it was known for.
    has_risen: bool,
}

impl Survey {
    /// Of a View of so many members, of whose paths some rates are known, in kbit/s.
    pub fn new(size: usize, known: impl Fn(Pair) -> Option<u32>) -> Survey {
        let rates = pairs(size).filter_map(|pair| Some((pair, known(pair)?))).collect();
        let (tries, radios) = (BTreeMap::new(), BTreeSet::new());
        Survey {
            size,
            rates,
            tries,
            told: 0,
            is_mesh: true,
            under_way: None,
            came: [None; 2],
            media: Media::default(),
            radios,
            rest_until: 0,
            in_vain: 0,
            spared: BTreeMap::new(),
            has_risen: false,
        }
    }

    /// The same, where these have no direct link: then each path may have ports of its own, and all
    /// are measured before a plan is made.
    #[must_use]
    pub fn without(mut self, apart: &[Pair]) -> Survey {
        self.is_mesh = apart.is_empty();
        apart.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).for_each(|pair| self.leave(pair));
        self
    }

    /// The next path to be measured now that nothing goes on; it is under way then. `None` while
    /// another one is, or none is left.
    pub fn begin(&mut self, now: u64) -> Option<Probe> {
        if self.under_way.is_some() || now < self.rest_until {
            return None;
        }
        let probe = self.wanted()?;
        match probe {
            Probe::Alone(pair) => self.tries.entry(pair).or_default().begin(),
            Probe::Spare(_) => {}
            Probe::Together(_) => {
                let alone = Alone { size: self.size, rates: &self.rates, radios: &self.radios };
                self.media.begin(alone);
                self.came = [None; 2];
            }
        }
        self.under_way = Some((probe, now));
        Some(probe)
    }

    /// A path that may have become faster, when nothing else is left to be measured: each in turn,
    /// the slowest first. Not one of a radio, which carries more in one moment than in another.
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
        self.under_way = Some((probe, now));
        Some(probe)
    }

    /// Whether a burst to spare has told since this was last asked that a path carries more than it
    /// was known for.
    pub fn has_risen(&mut self) -> bool {
        std::mem::take(&mut self.has_risen)
    }

    /// The port of this rank is known to share a medium.
    pub fn is_radio(&mut self, rank: Rank) {
        self.radios.insert(rank);
    }

    /// What came of a path: a rate in kbit/s, or 0. Says whether it was the one under way.
    pub fn on_rate(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let awaited = [Probe::Alone(pair), Probe::Spare(pair)];
        let ended = self
            .under_way
            .take_if(|(under_way, _)| awaited.contains(under_way))
            .map(|(probe, _)| probe);
        if kbps > 0 {
            self.told += 1;
            self.in_vain = 0;
            if ended == Some(Probe::Spare(pair)) {
                self.on_spare(pair, kbps);
                return true;
            }
            let tries = self.tries.entry(pair).or_default();
            // What was known before is not believed against what is seen now; that can be too
            // little, but never too much.
            let seen = tries.most().and(self.rates.get(&pair).copied());
            tries.tell(kbps);
            self.rates.insert(pair, kbps.max(seen.unwrap_or(0)));
        } else if ended.is_some() {
            self.rest(now);
        }
        ended.is_some()
    }

    /// Operations that come between do so again: after each burst in a row that tells nothing the
    /// next one waits twice as long. Else a busy group would soon have used up all that a path is
    /// given.
    fn rest(&mut self, now: u64) {
        self.rest_until = now + (REST_MS << self.in_vain.min(RESTS_DOUBLE));
        self.in_vain = self.in_vain.saturating_add(1);
    }

    /// Nothing comes between from now on.
    pub fn is_undisturbed(&mut self, now: u64) {
        self.in_vain = 0;
        self.rest_until = self.rest_until.min(now + REST_MS);
    }

    /// A path of which more is seen than was known. Either of its machines may have another cable
    /// now, so what else goes to or from them and carries less is to be seen again.
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
            self.media.forget(pair);
            self.has_risen = true;
        }
    }

    /// What came of a path while its opposite had a burst as well: a rate in kbit/s, or 0. Says
    /// whether that was the last that was awaited.
    pub fn on_rate_together(&mut self, now: u64, pair: Pair, kbps: u32) -> bool {
        let Some((Probe::Together((a, b)), _)) = self.under_way else { return false };
        match pair {
            _ if pair == (a, b) => self.came[0] = Some(kbps),
            _ if pair == (b, a) => self.came[1] = Some(kbps),
            _ => return false,
        }
        let [Some(there), Some(back)] = self.came else { return false };
        self.end_together(now, (a, b), there, back);
        true
    }

    fn end_together(&mut self, now: u64, pair: Pair, there: u32, back: u32) {
        self.under_way = None;
        if there == 0 || back == 0 {
            self.rest(now);
        } else {
            self.in_vain = 0;
        }
        self.media.on_exchange(pair, there, back);
        // A burst can show too little, but never too much.
        for (way, kbps) in [(pair, there), ((pair.1, pair.0), back)] {
            self.rates.entry(way).and_modify(|best| *best = kbps.max(*best));
        }
    }

    /// The ports that were seen to share a medium, each as that by which the first of two ranks
    /// sends to the second, and which medium; empty until all is told of that.
    pub fn stations(&self) -> Vec<(Pair, u32)> {
        if pairs(self.size).all(|pair| self.is_done(pair)) && self.shared().is_none() {
            self.media.stations(self.alone())
        } else {
            Vec::new()
        }
    }

    fn alone(&self) -> Alone<'_> {
        Alone { size: self.size, rates: &self.rates, radios: &self.radios }
    }

    /// What is known of a path is no longer believed, nor what came of exchanges over it.
    pub fn again(&mut self, pair: Pair) {
        self.rates.remove(&pair);
        self.tries.remove(&pair);
        self.media.forget(pair);
    }

    /// This path cannot be measured.
    pub fn leave(&mut self, pair: Pair) {
        self.under_way.take_if(|(under_way, _)| *under_way == Probe::Alone(pair));
        self.tries.insert(pair, Tries::LEFT);
    }

    /// Gives up what has not been answered.
    pub fn tick(&mut self, now: u64) {
        match self.under_way.take_if(|(_, since)| now >= *since + PATIENCE_MS) {
            Some((Probe::Together(pair), _)) => self.end_together(now, pair, 0, 0),
            Some((Probe::Alone(_) | Probe::Spare(_), _)) => self.rest(now),
            None => {}
        }
    }

    /// Whether every port has been measured against one that is no slower, as far as it could be.
    pub fn knows_the_ports(&self) -> bool {
        let all = || self.is_mesh || pairs(self.size).all(|pair| self.is_done(pair));
        self.of_the_ports().all(|pair| self.is_done(pair)) && all()
    }

    /// The same, and of what was measured for it nothing is in doubt. What is known of an earlier
    /// View is good enough, and so is what is known of a radio, whose bursts need not say the same.
    pub fn is_good_for_a_plan(&self) -> bool {
        let is_seen_now =
            |pair: &Pair| self.tries(*pair).most().is_some() && !self.is_by_radio(*pair);
        self.knows_the_ports() && !self.doubtful().iter().any(is_seen_now)
    }

    /// How many bursts have told something.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Whether nothing is left to be measured but what is measured to spare.
    pub fn is_over(&self) -> bool {
        self.under_way.is_none_or(|(probe, _)| matches!(probe, Probe::Spare(_)))
            && self.wanted().is_none()
    }

    fn wanted(&self) -> Option<Probe> {
        let open = |pair: &Pair| !self.is_done(*pair);
        // Who is the fastest shows when all have been seen once.
        let ports = self.of_the_ports().find(open).or_else(|| self.doubtful().first().copied());
        // An exchange is compared with what was seen alone, so that comes first, and what is odd of
        // it is seen to.
        ports
            .or_else(|| pairs(self.size).find(open))
            .map(Probe::Alone)
            .or_else(|| self.shared_or_unsure())
    }

    /// The next exchange, or before it what is not known well enough alone: against too low a rate
    /// an exchange seems to go well.
    fn shared_or_unsure(&self) -> Option<Probe> {
        let (a, b) = self.shared()?;
        let unsure = [(a, b), (b, a)].into_iter().find(|pair| !self.tries(*pair).are_some());
        Some(unsure.map_or(Probe::Together((a, b)), Probe::Alone))
    }

    /// Whose exchange tells more of who shares a medium. Of two members that would change nothing.
    fn shared(&self) -> Option<Pair> {
        if self.size > 2 { self.media.wanted(self.alone()) } else { None }
    }

    fn is_done(&self, pair: Pair) -> bool {
        self.rates.contains_key(&pair) || self.tries(pair).are_over()
    }

    fn tries(&self, pair: Pair) -> Tries {
        self.tries.get(&pair).copied().unwrap_or_default()
    }

    fn is_by_radio(&self, (from, to): Pair) -> bool {
        self.radios.contains(&from) || self.radios.contains(&to)
    }

    /// Paths that together show each port against one that is no slower. All of the first kind come
    /// first: they show who is the fastest.
    fn of_the_ports(&self) -> impl Iterator<Item = Pair> + '_ {
        self.round().chain(self.spokes())
    }

    fn round(&self) -> impl Iterator<Item = Pair> + '_ {
        let next = |rank: Rank| Rank(((rank.index() + 1) % self.size) as u8);
        ranks(self.size).map(move |rank| (rank, next(rank))).filter(|(a, b)| a != b)
    }

    /// To and from the member that sent or received the most.
    fn spokes(&self) -> impl Iterator<Item = Pair> + '_ {
        let fastest =
            self.rates.iter().max_by_key(|(pair, kbps)| (**kbps, std::cmp::Reverse(**pair)));
        let hub = fastest.map_or(Rank(0), |((from, _), _)| *from);
        ranks(self.size)
            .filter(move |rank| *rank != hub)
            .flat_map(move |rank| [(rank, hub), (hub, rank)])
    }

    /// Paths that carried less than their ends have sent and received elsewhere, or than the other
    /// way, and are not believed yet.
    fn doubtful(&self) -> Vec<Pair> {
        let (mut sent, mut received) = (vec![0; self.size], vec![0; self.size]);
        for ((from, to), kbps) in &self.rates {
            let (sent, received) = (&mut sent[from.index()], &mut received[to.index()]);
            (*sent, *received) = ((*sent).max(*kbps), (*received).max(*kbps));
        }
        let is_low = |pair: Pair, kbps: u32| {
            // It may have carried more in an exchange than alone, and the plan goes by what it
            // carried alone.
            let alone = self.tries(pair).most().unwrap_or(kbps);
            let back = self.rates.get(&(pair.1, pair.0)).copied().unwrap_or(0);
            is_less(alone, sent[pair.0.index()].min(received[pair.1.index()]).max(back).max(kbps))
        };
        let low =
            self.rates.iter().filter(|(pair, kbps)| is_low(**pair, **kbps)).map(|(pair, _)| *pair);
        low.filter(|pair| !self.is_believed(*pair)).collect()
    }

    /// Whether no more bursts over a path would tell anything new.
    fn is_believed(&self, pair: Pair) -> bool {
        let tries = self.tries(pair);
        tries.are_sure() || self.is_by_radio(pair) && tries.are_some()
    }
}

fn pairs(size: usize) -> impl Iterator<Item = Pair> {
    ranks(size).flat_map(move |a| ranks(size).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// A burst takes a tenth of a second, on a slow path half of one; after this long somebody does not
/// answer.
const PATIENCE_MS: u64 = 3000;
/// After a burst that was given up, mostly for an operation.
const REST_MS: u64 = 200;
/// So often it doubles, which makes it 6.4 s.
const RESTS_DOUBLE: u32 = 5;
